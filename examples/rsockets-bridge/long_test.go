// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/internal/testprogram"
)

// These tests take minutes. They run if GOVERBS_TEST_LONG is set: make test-bridge.
const longVariable = "GOVERBS_TEST_LONG"

// longLimit bounds the run of a program in these tests.
const longLimit = 5 * time.Minute

// everyDevice runs a long test on the user-space RNIC, and in the guest on kernel devices.
func everyDevice(t *testing.T, test func(t *testing.T, device, host string)) {
	if os.Getenv(longVariable) == "" {
		t.Skip("runs with " + longVariable + "=1")
	}
	for device, host := range map[string]string{"usiw0": "127.0.0.1", "rxe0": kernelHosts["rxe0"],
		"siw0": kernelHosts["siw0"]} {
		t.Run(device, func(t *testing.T) {
			if device != "usiw0" {
				rdmatest.KernelDevice(t, device)
			}
			test(t, device, host)
		})
	}
}

// serves starts a server and waits until it is listening on an address. It is killed at the end of
// the test.
func serves(t *testing.T, address, name string, args ...string) *testprogram.Program {
	t.Helper()
	p := testprogram.Start(t, exec.Command(name, args...))
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", address)
		if err != nil {
			return false
		}
		return c.Close() == nil
	}, limit, 20*time.Millisecond, "%v", p)
	return p
}

// Redis: what one connection sets, others get, and redis-benchmark runs 50 connections with
// pipelining.
func TestLongRedis(t *testing.T) {
	everyDevice(t, func(t *testing.T, device, host string) {
		address := nobody(t)
		_, port, _ := net.SplitHostPort(address)
		serves(t, address, program(t, "redis-server", "redis-server"),
			"--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", t.TempDir())
		front, _ := chain(t, device, host, "tcp://"+address)
		_, port, _ = net.SplitHostPort(front.address(t))
		cli, benchmark := program(t, "redis-cli", "redis-tools"), program(t, "redis-benchmark", "redis-tools")
		for i := range 10 {
			value := strings.Repeat(strconv.Itoa(i), 1<<(2*i))
			require.Equal(t, "OK\n",
				output(t, longLimit, cli, "-p", port, "set", "key", value[:min(len(value), 100<<10)]))
			require.Equal(t, value[:min(len(value), 100<<10)]+"\n", output(t, longLimit, cli, "-p", port, "get", "key"))
		}
		clients := "50"
		if device != "usiw0" {
			// on the guest's emulated processor, 50 concurrent connections take longer than the
			// bridge's timeout
			clients = "8"
		}
		out := output(t, longLimit, benchmark, "-p", port, "-n", "20000", "-c", clients, "-P", "4", "-t",
			"ping,set,get,lrange_100", "--csv")
		for _, name := range []string{`"PING_MBULK"`, `"SET"`, `"GET"`, `"LRANGE_100 (first 100 elements)"`} {
			require.Contains(t, out, name)
		}
		require.Empty(t, front.lines("msg=aborted"))
	})
}

// iperf3 uses one control connection and four for data, in each direction.
func TestLongIperf3(t *testing.T) {
	everyDevice(t, func(t *testing.T, device, host string) {
		iperf3 := program(t, "iperf3", "iperf3")
		for _, direction := range []string{"--client-sends", "--reverse"} {
			address := nobody(t)
			_, port, _ := net.SplitHostPort(address)
			server := testprogram.Start(t,
				exec.Command(iperf3, "--server", "--bind", "127.0.0.1", "--port", port, "--one-off", "--forceflush"))
			server.Out.Await(t, "listening on")
			front, _ := chain(t, device, host, "tcp://"+address)
			_, port, _ = net.SplitHostPort(front.address(t))
			args := []string{"--client", "127.0.0.1", "--port", port, "--parallel", "4", "--bytes", "64M", "--json"}
			if direction == "--reverse" {
				args = append(args, direction)
			}
			var result struct {
				End struct {
					Sent     struct{ Bytes int64 } `json:"sum_sent"`
					Received struct{ Bytes int64 } `json:"sum_received"`
				}
			}
			require.NoError(t, json.Unmarshal([]byte(output(t, longLimit, iperf3, args...)), &result))
			require.GreaterOrEqual(t, result.End.Sent.Bytes, int64(64<<20))
			require.Positive(t, result.End.Received.Bytes)
			server.Ends(t, 0)
		}
	})
}

// sshd is an OpenSSH server whose keys exist for the duration of the test.
type sshd struct{ address, key, port string }

func startSSHD(t *testing.T) sshd {
	t.Helper()
	dir := t.TempDir()
	keygen := program(t, "ssh-keygen", "openssh-client")
	for _, name := range []string{"host", "user"} {
		output(t, longLimit, keygen, "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, name))
	}
	address := nobody(t)
	host, port, _ := net.SplitHostPort(address)
	config := filepath.Join(dir, "config")
	require.NoError(t, os.WriteFile(config, []byte(strings.Join([]string{
		"ListenAddress " + host, "Port " + port, "HostKey " + filepath.Join(dir, "host"),
		"AuthorizedKeysFile " + filepath.Join(dir, "user.pub"), "StrictModes no", "UsePAM no", "PermitRootLogin yes",
		"PasswordAuthentication no", "PidFile none", "Subsystem sftp internal-sftp", "",
	}, "\n")), 0o600))
	if os.Getuid() == 0 {
		require.NoError(t, os.MkdirAll("/run/sshd", 0o755)) // its privilege separation directory
	}
	p := testprogram.Start(t, exec.Command(program(t, "sshd", "openssh-server"), "-D", "-e", "-f", config))
	p.Out.Await(t, "Server listening")
	return sshd{address: address, key: filepath.Join(dir, "user")}
}

// options returns the options of ssh and scp for this server through a bridge.
func (s sshd) options(t *testing.T, b *process) []string {
	_, port, _ := net.SplitHostPort(b.address(t))
	return []string{"-F", "none", "-i", s.key, "-o", "Port=" + port, "-o", "StrictHostKeyChecking=no", "-o",
		"UserKnownHostsFile=/dev/null", "-o", "BatchMode=yes", "-o", "LogLevel=ERROR"}
}

// scp copies 64 MiB in both directions, and an ssh session survives a minute of inactivity.
func TestLongSSH(t *testing.T) {
	everyDevice(t, func(t *testing.T, device, host string) {
		server := startSSHD(t)
		front, back := chain(t, device, host, "tcp://"+server.address)
		options := server.options(t, front)
		session := testprogram.Start(t,
			exec.Command(program(t, "ssh", "openssh-client"), append(options, "127.0.0.1", "sleep 60; echo awake")...))
		data := random(64 << 20)
		dir := t.TempDir()
		here, there, again := filepath.Join(dir, "here"), filepath.Join(dir, "there"), filepath.Join(dir, "again")
		require.NoError(t, os.WriteFile(here, data, 0o600))
		scp := program(t, "scp", "openssh-client")
		output(t, longLimit, scp, append(options, here, "127.0.0.1:"+there)...)
		output(t, longLimit, scp, append(options, "127.0.0.1:"+there, again)...)
		for _, name := range []string{there, again} {
			file, err := os.ReadFile(name)
			require.NoError(t, err)
			require.Equal(t, sum(data), sum(file), name)
		}
		session.Out.Await(t, "awake")
		session.Ends(t, 0)
		for _, b := range []*process{front, back} {
			require.Empty(t, b.lines("msg=aborted"))
		}
	})
}

// A thousand connections are open concurrently, and each gets its own bytes back.
func TestLongThousand(t *testing.T) {
	const conns = 1000
	everyDevice(t, func(t *testing.T, device, host string) {
		if device != "usiw0" {
			t.Skip("the guest has no memory for so many")
		}
		ln, url := listenAt(t, schemeTCP)
		serveEach(t, ln, echo)
		front, back := chain(t, device, host, url, "--metrics", "127.0.0.1:0")
		open := make([]stream, conns)
		errs := make(chan error, conns)
		address := front.address(t)
		for i := range open {
			go func() {
				c, err := net.DialTimeout("tcp", address, limit)
				if err == nil {
					open[i] = c.(stream)
					err = echoes(c, fmt.Sprintf("connection %d", i))
				}
				errs <- err
			}()
		}
		for range open {
			require.NoError(t, <-errs)
		}
		require.Equal(t, conns, front.metrics(t)["active"])
		for i, c := range open {
			go func() { errs <- echoes(c, strings.Repeat(fmt.Sprintf("again %d ", i), 1000)) }()
		}
		for range open {
			require.NoError(t, <-errs)
		}
		t.Logf("resident memory of the two: %s, %s", resident(t, front), resident(t, back))
		for _, c := range open {
			require.NoError(t, c.Close())
		}
		require.Eventually(t, func() bool { return front.metrics(t)["active"] == 0 }, limit, 20*time.Millisecond)
		require.Empty(t, front.lines("msg=aborted"))
		require.Len(t, back.lines("msg=done"), conns)
	})
}

// echoes has a peer echo a text.
func echoes(c net.Conn, text string) error {
	if err := c.SetDeadline(time.Now().Add(longLimit)); err != nil {
		return err
	}
	if _, err := io.WriteString(c, text); err != nil {
		return err
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(c, got); err != nil {
		return err
	}
	if string(got) != text {
		return fmt.Errorf("%.40q came back for %.40q", got, text)
	}
	return nil
}

// resident returns the memory usage of a process.
func resident(t *testing.T, p *process) string {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Cmd.Process.Pid))
	require.NoError(t, err)
	return string(regexp.MustCompile(`VmRSS:\s*(.*)`).FindSubmatch(status)[1])
}
