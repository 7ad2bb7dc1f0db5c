// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

// asProgram makes the test binary run as the program.
const asProgram = "PINGPONG_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// program starts the program. wait waits for it to exit and returns what it printed.
func program(t *testing.T, args ...string) (wait func() (string, error)) {
	t.Helper()
	return command(t, os.Args[0], []string{asProgram + "=1"}, args...)
}

func command(t *testing.T, name string, env []string, args ...string) (wait func() (string, error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Start())
	return func() (string, error) {
		err := cmd.Wait()
		return out.String(), err
	}
}

// freePort returns a TCP port on which nothing is listening, outside the range of ephemeral ports.
func freePort(t *testing.T) string {
	t.Helper()
	for range 1000 {
		port := strconv.Itoa(20000 + rand.N(8000))
		if ln, err := net.Listen("tcp", ":"+port); err == nil {
			require.NoError(t, ln.Close())
			return port
		}
	}
	require.FailNow(t, "no free port")
	return ""
}

// client runs a client as soon as there is a server.
func client(t *testing.T, host string, args ...string) (out string, err error) {
	t.Helper()
	return clientOf(t, program, host, args...)
}

func clientOf(t *testing.T, program func(*testing.T, ...string) func() (string, error), host string,
	args ...string) (out string, err error) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		out, err = program(t, append(args, host)...)()
		if !regexp.MustCompile("refused|Couldn't connect").MatchString(out) {
			break
		}
	}
	return out, err
}

// output returns a pattern for the output of both sides.
func output(gid, bytes, iters string) *regexp.Regexp {
	place := ` address: +LID 0x[0-9a-f]{4}, QPN 0x[0-9a-f]{6}, PSN 0x[0-9a-f]{6}, GID ` + gid + `\n`
	return regexp.MustCompile(`^  local` + place + `  remote` + place +
		bytes + ` bytes in \d+\.\d\d seconds = [\d.]+ Mbit/sec\n` + iters +
		` iters in \d+\.\d\d seconds = [\d.]+ usec/iter\n$`)
}

// TestDevices: two programs connect to each other on one address.
func TestDevices(t *testing.T) {
	for device, c := range map[string]struct {
		bytes string
		args  []string
	}{
		"ib:usiw0":       {"163840", []string{}},
		"ib:usiw0-plain": {"4000000", []string{"-s", "100000", "-r", "2", "-m", "4096"}},
	} {
		args := append([]string{"-d", device, "-p", freePort(t), "-c", "-e", "-n", "20"}, c.args...)
		server := program(t, args...)
		got, err := client(t, "127.0.0.1", args...)
		require.NoError(t, err, got)
		want := output("::ffff:127.0.0.1", c.bytes, "20")
		require.Regexp(t, want, got)
		got, err = server()
		require.NoError(t, err, got)
		require.Regexp(t, want, got, "nothing is invalid either")
	}
}

// TestMixed: one side has atomics, the other does not, and one polls.
func TestMixed(t *testing.T) {
	port := freePort(t)
	server := program(t, "-d", "ib:usiw0-plain", "-p", port, "-n", "3", "-g", loopbackRow(t))
	got, err := client(t, "localhost", "-d", "ib:usiw0", "-p", port, "-n", "3", "-e", "-g", loopbackRow(t))
	require.NoError(t, err, got)
	got, err = server()
	require.NoError(t, err, got)
}

// loopbackRow returns the index of 127.0.0.1 in the GID table.
func loopbackRow(t *testing.T) string {
	t.Helper()
	o, err := parse([]string{"-n", "1"})
	require.NoError(t, err)
	e, err := newEnd(o)
	require.NoError(t, err)
	defer e.close()
	row, err := e.row(tcpAddr("127.0.0.1"))
	require.NoError(t, err)
	return strconv.Itoa(row.Index)
}

func tcpAddr(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 1} }

// TestRefused: what cannot work returns an error.
func TestRefused(t *testing.T) {
	for _, args := range [][]string{{"-p", "70000"}, {"-i", "0"}, {"-s", "0"}, {"-m", "1500"}, {"-r", "0"}, {"-n", "0"},
		{"-l", "16"}, {"-g", "256"}} {
		_, err := parse(args)
		require.ErrorIs(t, err, verbs.ErrInvalid, args)
		require.ErrorContains(t, err, args[1])
	}
	_, err := parse([]string{"one", "two"})
	require.ErrorContains(t, err, "two")

	o, err := parse([]string{"-d", "usiw0", "-p", freePort(t)})
	require.NoError(t, err)
	require.ErrorIs(t, run(t.Context(), o, t.Output()), verbs.ErrNotSupported, "iWARP itself has no address handles")
	o.device = "ib:none0"
	require.ErrorIs(t, run(t.Context(), o, t.Output()), verbs.ErrNoDevice)

	// A peer that sends nonsense, and a port that the device does not have.
	o, err = parse([]string{"-p", freePort(t), "127.0.0.1"})
	require.NoError(t, err)
	ln, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(o.port))
	require.NoError(t, err)
	defer ln.Close()
	go func() {
		nc, err := ln.Accept()
		if err == nil {
			_, _ = nc.Write(bytes.Repeat([]byte("x"), placeLen))
			_ = nc.Close()
		}
	}()
	require.ErrorIs(t, run(t.Context(), o, t.Output()), verbs.ErrInvalid)
	o.ibPort = 2
	require.ErrorIs(t, run(t.Context(), o, t.Output()), verbs.ErrInvalid)
}

// TestPlace: the text of a place is the same as ibv_rc_pingpong's.
func TestPlace(t *testing.T) {
	p := place{0x12, 0xabc, 0x123456, verbs.GID{10: 0xff, 11: 0xff, 12: 10, 15: 1}}
	const text = "0012:000abc:123456:00000000000000000000ffff0a000001\x00"
	require.Equal(t, text, p.text())
	require.Len(t, text, placeLen)
	got, err := parsePlace([]byte(text))
	require.NoError(t, err)
	require.Equal(t, p, got)
	for i := range text {
		bad := []byte(text)
		bad[i] = 'x'
		_, err := parsePlace(bad)
		require.ErrorIs(t, err, verbs.ErrInvalid, "%q", bad)
	}
}

// The two programs on one host. The server's port and the locations of the QPs vary from run to
// run.
func Example() {
	port := strconv.Itoa(20000 + rand.N(8000))
	start := func(args ...string) *exec.Cmd {
		cmd := exec.Command(os.Args[0],
			append([]string{"--device", "ib:usiw0", "--port", port, "--iters", "10", "--events"}, args...)...)
		cmd.Env = append(os.Environ(), asProgram+"=1")
		return cmd
	}
	server := start()
	if err := server.Start(); err != nil {
		panic(err)
	}
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if out, err := start("127.0.0.1").Output(); err == nil { // before that, the server is not listening yet
			fmt.Println(regexp.MustCompile(`(?m)^\d+ (bytes|iters)`).FindAllString(string(out), -1))
			break
		}
	}
	fmt.Println(server.Wait())
	// Output:
	// [81920 bytes 10 iters]
	// <nil>
}
