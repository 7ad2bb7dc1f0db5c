// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// sampleLimit bounds a sample; after that its processes are killed.
const sampleLimit = time.Minute

// pair is two processes on this host: one listens, and the other connects to it and prints its
// measurement. In the command lines, {port} is replaced with a free port, {addr} with the address
// that contains it.
type pair struct {
	listen, connect []string
	announces       bool // the listener chooses the port itself and prints "listening ADDRESS"
	env             []string
	host            string        // the address of the listener, "" = 127.0.0.1
	device          string        // kernel device on which the listener listens; "" = TCP
	limit           time.Duration // sampleLimit if 0
}

// errHung reports that a sample exceeded its limit.
var errHung = errors.New("hung")

// run starts both processes and returns what the second prints, and the CPU time that the two used.
func (p *pair) run() (text string, used time.Duration, err error) {
	limit := cmp.Or(p.limit, sampleLimit)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	defer func() {
		if err != nil && ctx.Err() != nil {
			err = fmt.Errorf("%w for %v: %w", errHung, limit, err)
		}
	}()
	addr, err := p.freeAddr()
	if err != nil {
		return "", 0, err
	}
	server := p.command(ctx, p.listen, addr)
	var complaints bytes.Buffer
	server.Stderr = &complaints
	said, err := server.StdoutPipe()
	if err != nil {
		return "", 0, err
	}
	if err := server.Start(); err != nil {
		return "", 0, err
	}
	// end waits a while for the listener: some listeners exit by themselves, others wait for
	// another connection.
	end := func(patience time.Duration) error {
		timer := time.AfterFunc(patience, func() { _ = server.Process.Kill() })
		defer timer.Stop()
		return server.Wait()
	}
	if p.announces {
		var line string
		if line, err = bufio.NewReader(said).ReadString('\n'); err == nil {
			if _, err = fmt.Sscanf(line, "listening %s\n", &addr); err != nil {
				err = fmt.Errorf("prints %q: %w", line, err)
			}
		}
	} else {
		err = p.waitListening(ctx, addr)
	}
	if err != nil {
		_ = end(0)
		return "", 0, fmt.Errorf("%s: %w: %s", strings.Join(p.listen, " "), err, bytes.TrimSpace(complaints.Bytes()))
	}
	client := p.command(ctx, p.connect, addr)
	var why bytes.Buffer
	client.Stderr = &why
	out, err := client.Output()
	if err != nil {
		_ = end(0)
		return "", 0, fmt.Errorf("%s: %w: %s", strings.Join(p.connect, " "), err, bytes.TrimSpace(why.Bytes()))
	}
	if err := end(time.Second); err != nil && p.announces {
		return "", 0, fmt.Errorf("%s: %w: %s", strings.Join(p.listen, " "), err, bytes.TrimSpace(complaints.Bytes()))
	}
	for _, cmd := range []*exec.Cmd{server, client} {
		used += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	return string(out), used, nil
}

func (p *pair) command(ctx context.Context, line []string, addr string) *exec.Cmd {
	_, port, _ := net.SplitHostPort(addr)
	args := make([]string, len(line))
	for i, a := range line {
		args[i] = strings.NewReplacer("{addr}", addr, "{port}", port).Replace(a)
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), p.env...)
	return cmd
}

func (p *pair) freeAddr() (string, error) {
	host := p.host
	if host == "" {
		host = "127.0.0.1"
	}
	ln, err := net.Listen("tcp4", net.JoinHostPort(host, "0"))
	if err != nil {
		return "", err
	}
	return ln.Addr().String(), ln.Close()
}

// waitListening returns once something is listening at addr's port. It does not try to connect,
// because the listener would mistake that for the client.
func (p *pair) waitListening(ctx context.Context, addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	found := func() (bool, error) { return tcpListens(port) }
	if p.device != "" {
		found = func() (bool, error) { return deviceListens(ctx, p.device, addr) }
	}
	for {
		if ok, err := found(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("nobody listens at port %s", port)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// tcpListens reports whether a socket is listening on the port.
func tcpListens(port string) (bool, error) {
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(table)
		if err != nil {
			return false, err
		}
		if listens(string(text), port) {
			return true, nil
		}
	}
	return false, nil
}

// deviceListens reports whether an rdma_cm id is listening on a device's address.
func deviceListens(ctx context.Context, device, addr string) (bool, error) {
	out, err := exec.CommandContext(ctx, "rdma", "resource", "show", "cm_id", "link", device+"/1").CombinedOutput()
	if err != nil {
		return false, fmt.Errorf("rdma: %w: %s", err, bytes.TrimSpace(out))
	}
	return idListens(string(out), addr), nil
}

// idListens reports whether a list of ids, as rdma(8) prints it, contains one that is listening on
// the address.
func idListens(list, addr string) bool {
	for line := range strings.Lines(list) {
		f := strings.Fields(line)
		if slices.Contains(f, "LISTEN") && slices.Contains(f, addr) {
			return true
		}
	}
	return false
}

// listens reports whether a table of sockets (proc_net_tcp in the kernel's documentation) contains
// one that is listening on port.
func listens(table, port string) bool {
	var want int
	if _, err := fmt.Sscan(port, &want); err != nil {
		return false
	}
	const local, state, listen = 1, 3, "0A"
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) > state && f[state] == listen && strings.HasSuffix(f[local], fmt.Sprintf(":%04X", want)) {
			return true
		}
	}
	return false
}
