// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package usiw

import (
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// epollSet is a set of sockets: an epoll instance (epoll(7)), whose descriptor becomes readable
// when any of its sockets does. A socket with unread data is reported again, after the others.
// System calls that do not block ask this instance which sockets have data. Waits use the gate, a
// second instance in the runtime's poller whose only member is the first. One system call on the
// gate silences the whole set, however many sockets it has.
type epollSet struct {
	fd     int
	gate   *gate
	yields *yielder
	full   atomic.Bool // the last take or poll received much; the next one covers fewer connections

	life  sync.RWMutex // held while fd is used; guards ended
	ended bool

	mu    sync.Mutex // guards the fields below
	slots []setSlot
	at    map[*conn]int32 // index in slots; a connection may briefly be in two sets
	free  []int32         // indexes of free slots
}

// setSlot is the slot of a connection. The generation distinguishes events of an earlier connection
// in the same slot.
type setSlot struct {
	c   *conn
	gen int32
}

func newSet(b *yielder) (set, error) {
	s := &epollSet{yields: b, at: make(map[*conn]int32)}
	var err error
	if s.fd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if s.gate, err = newGate(s.fd); err != nil {
		unix.Close(s.fd)
		return nil, err
	}
	return s, nil
}

// add puts the socket of c into the set.
func (s *epollSet) add(c *conn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.free) == 0 {
		s.slots = append(s.slots, setSlot{})
		s.free = append(s.free, int32(len(s.slots)-1))
	}
	i := s.free[len(s.free)-1]
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP, Fd: i, Pad: s.slots[i].gen}
	if err := unix.EpollCtl(s.fd, unix.EPOLL_CTL_ADD, c.s.(*tcpStream).fd, &ev); err != nil {
		return os.NewSyscallError("epoll_ctl", err)
	}
	s.free = s.free[:len(s.free)-1]
	s.slots[i].c = c
	s.at[c] = i
	return nil
}

// remove removes the socket of c, if it is in the set.
func (s *epollSet) remove(c *conn) {
	s.life.RLock()
	defer s.life.RUnlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	i, ok := s.at[c]
	if !ok || s.ended {
		return
	}
	_ = unix.EpollCtl(s.fd, unix.EPOLL_CTL_DEL, c.s.(*tcpStream).fd, nil)
	delete(s.at, c)
	s.slots[i].c = nil
	s.slots[i].gen++
	s.free = append(s.free, i)
}

// ready returns connections on which data have arrived, and reports whether there may be others.
func (s *epollSet) ready(conns *[setEvents]*conn) (n int, rest bool) {
	var evs [setEvents]unix.EpollEvent
	s.life.RLock()
	if s.ended {
		s.life.RUnlock()
		return 0, false
	}
	most := uintptr(setEvents)
	if s.full.Load() {
		most = fullEvents
	}
	k, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(s.fd), uintptr(unsafe.Pointer(&evs[0])), most, 0, 0,
		0)
	s.life.RUnlock()
	if errno != 0 || k == 0 {
		return 0, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ev := range evs[:k] {
		if slot := &s.slots[ev.Fd]; slot.c != nil && slot.gen == ev.Pad {
			conns[n] = slot.c
			n++
		}
	}
	return n, k == most
}

func (s *epollSet) take() (a arrivals, more bool) {
	var conns [setEvents]*conn
	k, rest := s.ready(&conns)
	a.rest = rest
	for _, c := range conns[:k] {
		got, _ := c.receive()
		a.add(got)
		s.spent(c)
	}
	s.filled(a)
	return a, k > 0 || rest // all of the reported connections may have been removed since
}

func (s *epollSet) poll() (a arrivals) {
	var conns [setEvents]*conn
	k, rest := s.ready(&conns)
	a.rest = rest
	for _, c := range conns[:k] {
		a.add(c.poll())
		s.spent(c)
	}
	s.filled(a)
	return a
}

// filled makes the next take or poll cover fewer connections if this one received much. The
// connections left out then come first.
func (s *epollSet) filled(a arrivals) {
	if full := a.bytes > turnBytes; full != s.full.Load() {
		s.full.Store(full)
	}
}

func (s *epollSet) yielder() *yielder { return s.yields }

// spent removes a connection on which no more data will arrive. Otherwise the instance would report
// it forever.
func (s *epollSet) spent(c *conn) {
	if c.dead.Load() || c.atEOF.Load() {
		s.remove(c)
	}
}

func (s *epollSet) wait(f func() bool) error { return s.gate.wait(f) }

func (s *epollSet) wake() { s.gate.wake() }

func (s *epollSet) quiet(on bool) bool { return s.gate.shut(on) }

func (s *epollSet) close() {
	s.gate.close()
	s.life.Lock()
	defer s.life.Unlock()
	s.ended = true
	unix.Close(s.fd)
}

// gate is an epoll instance in the runtime's poller, with a single member.
type gate struct {
	fd     int // of file
	member int
	file   *os.File
	raw    syscall.RawConn
	ready  func() bool // the function passed to wait
	fn     func(fd uintptr) bool
}

func newGate(member int) (*gate, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	g := &gate{fd: fd, member: member}
	if err = unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, member, &unix.EpollEvent{Events: unix.EPOLLIN}); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("epoll_ctl", err)
	}
	// package os registers only non-blocking descriptors with the poller
	if err = unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	g.file = os.NewFile(uintptr(fd), "usiw")
	if g.raw, err = g.file.SyscallConn(); err == nil {
		err = g.file.SetReadDeadline(time.Time{}) // fails if the descriptor is not in the runtime's poller
	}
	if err != nil {
		g.file.Close()
		return nil, err
	}
	g.fn = func(uintptr) bool { return g.ready() }
	return g, nil
}

func (g *gate) wait(f func() bool) error {
	g.ready = f
	for {
		err := g.raw.Read(g.fn)
		if err == nil || !os.IsTimeout(err) || g.file.SetReadDeadline(time.Time{}) != nil {
			return err
		}
	}
}

func (g *gate) wake() { _ = g.file.SetReadDeadline(time.Unix(1, 0)) }

// shut(true) hides the member's events from the runtime's poller. shut(false) lets them through
// again, including earlier ones.
func (g *gate) shut(on bool) bool {
	ev := unix.EpollEvent{Events: unix.EPOLLIN}
	if on {
		ev.Events = 0
	}
	return unix.EpollCtl(g.fd, unix.EPOLL_CTL_MOD, g.member, &ev) == nil
}

func (g *gate) close() { _ = g.file.Close() }
