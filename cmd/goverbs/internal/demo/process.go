// SPDX-License-Identifier: BSD-3-Clause

package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/goverbs/goverbs/cmd/goverbs/internal/devices"
	"github.com/goverbs/goverbs/verbs"
)

// process is a child process that runs this program. It exits at the end of its stdin, and
// therefore also when this process dies for any reason. Its messages are lines of JSON on its
// stdout.
type process struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *json.Decoder
	stderr *tail
	exited chan struct{} // closed once it has exited and err is set
	err    error
}

// children are the processes that are still running.
var children processes

// KillChildren kills every process started here that is still running.
func KillChildren() { children.kill() }

type processes struct {
	mu    sync.Mutex // guards alive
	alive map[*process]struct{}
}

func (ps *processes) add(p *process) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.alive == nil {
		ps.alive = make(map[*process]struct{})
	}
	ps.alive[p] = struct{}{}
}

func (ps *processes) remove(p *process) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	delete(ps.alive, p)
}

// kill kills all of them.
func (ps *processes) kill() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for p := range ps.alive {
		_ = p.cmd.Process.Kill()
	}
}

// startProcess starts this program with other arguments.
func startProcess(args ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(self, args...), stderr: new(tail), exited: make(chan struct{})}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, p.stdin.Close())
	}
	p.stdout = json.NewDecoder(r)
	p.cmd.Stdout, p.cmd.Stderr = w, p.stderr
	p.cmd.WaitDelay = time.Second
	err = p.cmd.Start()
	w.Close()
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	children.add(p)
	go func() {
		p.err = p.cmd.Wait()
		children.remove(p)
		close(p.exited)
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// tell writes one line of JSON to the child's stdin.
func (p *process) tell(v any) error { return json.NewEncoder(p.stdin).Encode(v) }

// letGo tells the child to exit. It may be called on nil and more than once.
func (p *process) letGo() {
	if p != nil {
		_ = p.stdin.Close()
	}
}

// endsBy reports whether the child has exited or exits on its own within d. It may be called on
// nil.
func (p *process) endsBy(d time.Duration) bool {
	if p == nil {
		return false
	}
	select {
	case <-p.exited:
		return true
	default:
	}
	select {
	case <-p.exited:
		return true
	case <-time.After(d):
		return false
	}
}

// wait waits for the child to exit, and kills it after patience. The error includes the last line
// of the child's stderr. It may be called on nil and more than once.
func (p *process) wait(patience time.Duration) error {
	if p == nil {
		return nil
	}
	late := ""
	if !p.endsBy(patience) {
		late = fmt.Sprintf("not ended after %v, ", patience)
		_ = p.cmd.Process.Kill()
		<-p.exited
	}
	if p.err == nil {
		return nil
	}
	if text := p.stderr.String(); text != "" {
		return fmt.Errorf("%s%w: %s", late, p.err, text)
	}
	return fmt.Errorf("%s%w", late, p.err)
}

// tail keeps the last line written to it.
type tail struct {
	mu  sync.Mutex // guards end
	end []byte
}

// tailSize is how much of a line is kept.
const tailSize = 1024

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end = append(t.end, b...)
	if extra := len(t.end) - tailSize; extra > 0 {
		t.end = append(t.end[:0], t.end[extra:]...)
	}
	return len(b), nil
}

// String returns the last line.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := strings.TrimSpace(string(t.end))
	return strings.TrimSpace(s[strings.LastIndexByte(s, '\n')+1:])
}

// startServer starts the listening half on a free port of this host, and returns the process and
// its address.
func startServer(ctx context.Context, dev *verbs.Device, breaks []string) (*process, string, error) {
	ip, err := devices.OwnAddress(dev)
	if err != nil {
		return nil, "", err
	}
	args := []string{"demo", "--child", "--device", devices.Name(dev), "--listen", netip.AddrPortFrom(ip, 0).String()}
	for _, b := range breaks {
		args = append(args, "--break", b)
	}
	p, err := startProcess(args...)
	if err != nil {
		return nil, "", err
	}
	defer context.AfterFunc(ctx, p.letGo)()
	var first listening
	if err := p.stdout.Decode(&first); err != nil {
		p.letGo()
		if werr := p.wait(endPatience); werr != nil {
			err = werr
		}
		return nil, "", fmt.Errorf("listening process: %w", err)
	}
	return p, first.Address, nil
}

// listening is the message of the listening half to its parent.
type listening struct {
	Address string `json:"address"`
}
