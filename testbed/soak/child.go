// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/goverbs/goverbs/testbed/load"
)

const childClients = 2

// child is a process that exits in an orderly way when in reaches EOF, unless it is killed before.
// It writes its servers as "DEVICE=ADDRESS" to out, one per line.
func child(seed uint64, servers []string, in io.Reader, out io.Writer) error {
	var names []string
	to := make(map[string]*peer)
	for _, s := range servers {
		name, address, ok := strings.Cut(s, "=")
		if !ok {
			return fmt.Errorf("no DEVICE=ADDRESS: %q", s)
		}
		names = append(names, name)
		to[name] = &peer{address: address}
	}
	p, err := open(names)
	if err != nil {
		return err
	}
	for _, d := range p.devices {
		d.peers = []*peer{to[d.name], {address: d.node.Addr()}}
		fmt.Fprintf(out, "%s=%s\n", d.name, d.node.Addr())
	}
	p.start(seed, childClients)
	end := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, in)
		close(end)
	}()
	select {
	case <-end:
	case <-p.failed:
	}
	err = p.halt()
	select {
	case <-p.failed:
		return errors.Join(p.failure, err)
	default:
	}
	return errors.Join(err, p.close())
}

// offspring is the parent's view of a child.
type offspring struct {
	cmd   *exec.Cmd
	in    io.Closer
	peers map[string]*peer
}

// startChild starts a child and adds its servers to the parent's peers.
func (p *process) startChild(seed uint64) (*offspring, error) {
	var servers []string
	for _, d := range p.devices {
		servers = append(servers, d.name+"="+d.node.Addr())
	}
	o := &offspring{peers: make(map[string]*peer)}
	o.cmd = exec.Command("/proc/self/exe", "-servers", strings.Join(servers, ","), "-seed",
		strconv.FormatUint(seed, 10))
	o.cmd.Env = append(os.Environ(), childVariable+"=1")
	o.cmd.Stderr = os.Stderr
	in, err := o.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	o.in = in
	out, err := o.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := o.cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(out)
	for range p.devices {
		if !lines.Scan() {
			return nil, fmt.Errorf("a child has not come up: %w", o.cmd.Wait())
		}
		name, address, _ := strings.Cut(lines.Text(), "=")
		o.peers[name] = &peer{address: address}
	}
	for _, d := range p.devices {
		d.mu.Lock()
		d.peers = append(d.peers, o.peers[d.name])
		d.mu.Unlock()
	}
	return o, nil
}

// childVariable makes a test binary act as a child.
const childVariable = "GOVERBS_SOAK_CHILD"

// leave removes a child's servers from the parent's peers. After this, they may be gone.
func (p *process) leave(o *offspring) {
	for _, d := range p.devices {
		gone := o.peers[d.name]
		gone.killed.Store(true)
		d.mu.Lock()
		for i, x := range d.peers {
			if x == gone {
				d.peers = append(d.peers[:i], d.peers[i+1:]...)
				break
			}
		}
		d.mu.Unlock()
	}
}

// kill kills a child.
func (p *process) kill(o *offspring) error {
	p.leave(o)
	if err := o.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("a child has ended by itself: %w", errors.Join(err, o.cmd.Wait()))
	}
	err := o.cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == -1 {
		return nil
	}
	return fmt.Errorf("a child has ended by itself: %w", err)
}

// dismiss lets a child exit in an orderly way.
func (p *process) dismiss(o *offspring) error {
	p.leave(o)
	_ = o.in.Close()
	ended := make(chan error, 1)
	go func() { ended <- o.cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			return fmt.Errorf("a child: %w", err)
		}
		return nil
	case <-time.After(5 * load.Limit):
		_ = o.cmd.Process.Kill()
		return fmt.Errorf("%w: waited for a child to end", load.ErrHang)
	}
}
