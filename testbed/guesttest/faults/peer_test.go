// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package faults

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/compat/ibcompat"
	"github.com/goverbs/goverbs/testbed/load"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// peerVariable makes the test binary run as a peer. It contains the role, the device and the
// address.
const peerVariable = "GOVERBS_FAULTS_PEER"

// The roles of a peer. It writes a line when it is ready and exits when its standard input ends, or
// when it is killed.
const (
	roleServe = "serve" // a node; the line is its address
	roleMute  = "mute"  // accepts no request; writes a line with the address, and one when the request has arrived
	roleStay  = "stay"  // connects and does nothing
	roleUse   = "use"   // connects, executes every operation several times, then exits by itself
)

// peerMain runs the peer.
func peerMain(role []string) int {
	err := peerRun(role[0], role[1], role[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		return 1
	}
	return 0
}

func peerRun(role, name, address string) error {
	dev, err := peerDevice(name)
	if err != nil {
		return err
	}
	ctx := context.Background()
	switch role {
	case roleServe:
		n, err := load.Serve(dev, address, new(load.Counts), func(err error) { fmt.Fprintln(os.Stderr, "peer:", err) })
		if err != nil {
			return err
		}
		fmt.Println(n.Addr())
		_, _ = io.Copy(io.Discard, os.Stdin)
		return n.Close()
	case roleMute:
		ln, err := cm.Listen(ctx, address, cm.Config{Device: dev})
		if err != nil {
			return err
		}
		fmt.Println(ln.Addr())
		if _, err := ln.Accept(ctx); err != nil {
			return err
		}
		fmt.Println("request")
	case roleStay, roleUse:
		c, err := load.Dial(dev, address, load.Options{Counts: new(load.Counts), Seed: 9})
		if err != nil {
			return err
		}
		fmt.Println("connected")
		if role == roleUse {
			for range 10 {
				if err := c.EachStep(); err != nil {
					return err
				}
			}
			return c.Close()
		}
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	return nil
}

func peerDevice(name string) (*verbs.Device, error) {
	if below, ok := strings.CutPrefix(name, "ib:"); ok {
		dev, err := peerDevice(below)
		if err != nil {
			return nil, err
		}
		return ibcompat.Wrap(dev, ibcompat.Config{})
	}
	if name != "usiw" {
		return verbs.DeviceByName(name)
	}
	nic, err := usiw.New(usiw.Config{})
	if err != nil {
		return nil, err
	}
	return nic.Device(), nil
}

// peer is a process started by the test.
type peer struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   io.Closer
	out  *bufio.Scanner
	over bool
}

// start starts a peer, prefixed with the command before, if any.
func start(t *testing.T, role, device, address string, before ...string) *peer {
	t.Helper()
	args := append(before, "/proc/self/exe")
	if len(before) > 0 {
		exe, err := os.Executable()
		require.NoError(t, err)
		args[len(args)-1] = exe
	}
	p := &peer{t: t, cmd: exec.Command(args[0], args[1:]...)}
	p.cmd.Env = append(os.Environ(), peerVariable+"="+role+" "+device+" "+address)
	p.cmd.Stderr = os.Stderr
	in, err := p.cmd.StdinPipe()
	require.NoError(t, err)
	p.in = in
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	p.out = bufio.NewScanner(out)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() {
		if !p.over {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
	})
	return p
}

// line returns the next line of the peer.
func (p *peer) line() string {
	p.t.Helper()
	lines := make(chan string, 1)
	go func() {
		if p.out.Scan() {
			lines <- p.out.Text()
		} else {
			lines <- ""
		}
	}()
	line := closes(p.t, lines, "a line of the peer")
	require.NotEmpty(p.t, line, "the peer has ended")
	return line
}

// kill kills the peer with SIGKILL.
func (p *peer) kill() {
	p.t.Helper()
	p.over = true
	require.NoError(p.t, p.cmd.Process.Kill())
	err := p.cmd.Wait()
	var exit *exec.ExitError
	require.ErrorAs(p.t, err, &exit)
	require.Equal(p.t, -1, exit.ExitCode(), "the peer was killed")
}

// leave waits for the peer to exit cleanly.
func (p *peer) leave() {
	p.t.Helper()
	p.over = true
	_ = p.in.Close()
	ended := make(chan error, 1)
	go func() { ended <- p.cmd.Wait() }()
	require.NoError(p.t, closes(p.t, ended, "the end of the peer"))
}
