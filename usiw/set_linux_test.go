// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// stub returns a connection that is only a descriptor: a readable pipe.
func stub(t *testing.T) *conn {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = r.Close(), w.Close() })
	_, err = w.Write([]byte{1})
	require.NoError(t, err)
	return &conn{s: &tcpStream{fd: int(r.Fd())}}
}

func newEpollSet(t *testing.T, conns ...*conn) *epollSet {
	t.Helper()
	s, err := newSet(new(yielder))
	require.NoError(t, err)
	for _, c := range conns {
		require.NoError(t, s.add(c))
	}
	return s.(*epollSet)
}

// reports returns how many connections the set reports at once.
func (s *epollSet) reports(t *testing.T) []*conn {
	t.Helper()
	var conns [setEvents]*conn
	n, rest := s.ready(&conns)
	require.Equal(t, n == setEvents, rest)
	return conns[:n]
}

// TestSetRemoved removes connections after the kernel has reported them: others may have data, so
// the reader must not sleep.
func TestSetRemoved(t *testing.T) {
	s := newEpollSet(t)
	defer s.close()
	for range setEvents {
		require.NoError(t, s.add(stub(t)))
	}
	for i := range s.slots { // what remove does between the system call and the look at slots
		s.slots[i].gen++
	}
	a, more := s.take()
	require.Equal(t, arrivals{rest: true}, a)
	require.True(t, more)
	require.Equal(t, arrivals{rest: true}, s.poll())
	for _, full := range []bool{true, false} {
		s.full.Store(full)
		var conns [setEvents]*conn
		n, rest := s.ready(&conns)
		require.Zero(t, n)
		require.True(t, rest)
	}
}

// TestSetPlaces adds and removes connections in any order: slots are reused, and a connection in
// two sets can leave either.
func TestSetPlaces(t *testing.T) {
	a, b, c := stub(t), stub(t), stub(t)
	s, other := newEpollSet(t, a, b), newEpollSet(t, c, b)
	defer s.close()
	defer other.close()
	require.ElementsMatch(t, []*conn{a, b}, s.reports(t))
	require.ElementsMatch(t, []*conn{b, c}, other.reports(t))
	require.NoError(t, other.add(a))
	other.remove(a)
	other.remove(a)
	s.remove(c)
	require.ElementsMatch(t, []*conn{a, b}, s.reports(t))
	require.ElementsMatch(t, []*conn{b, c}, other.reports(t))
	d, e := stub(t), stub(t)
	require.NoError(t, other.add(d))
	require.NoError(t, other.add(e))
	require.ElementsMatch(t, []*conn{b, c, d, e}, other.reports(t))
	was := s.slots[s.at[a]]
	s.remove(a)
	require.Equal(t, []*conn{b}, s.reports(t))
	require.NoError(t, s.add(c))
	require.NotEqual(t, was.gen, s.slots[s.at[c]].gen, "an event of a would be taken for one of c")
	require.Len(t, s.slots, 2)
	require.ElementsMatch(t, []*conn{b, c}, s.reports(t))
	require.Error(t, s.add(c), "it is there already")
	require.Error(t, s.add(&conn{s: &tcpStream{fd: -1}}))
	require.NoError(t, s.add(a))
	require.Len(t, s.slots, 3)
	require.ElementsMatch(t, []*conn{a, b, c}, s.reports(t))
}

// TestSetFull: after a turn that received much, the next covers fewer connections.
func TestSetFull(t *testing.T) {
	s := newEpollSet(t, stub(t), stub(t), stub(t))
	defer s.close()
	seen := make(map[*conn]bool)
	for _, n := range []int{turnBytes + 1, turnBytes} {
		s.filled(arrivals{bytes: n})
		var conns [setEvents]*conn
		k, rest := s.ready(&conns)
		if n > turnBytes {
			require.Equal(t, fullEvents, k)
			require.True(t, rest)
			k, _ = s.ready(&conns)
			require.Equal(t, fullEvents, k)
		}
		for _, c := range conns[:k] {
			seen[c] = true
		}
	}
	require.Len(t, seen, 3)
}

// TestSetEnded removes connections that have ended, or on which nothing more will arrive: otherwise
// the kernel would report them forever.
func TestSetEnded(t *testing.T) {
	a, b, c, d := stub(t), stub(t), stub(t), stub(t)
	s := newEpollSet(t, a, b, c, d)
	defer s.close()
	a.dead.Store(true)
	s.spent(a)
	b.atEOF.Store(true)
	s.spent(b)
	s.spent(c)
	require.ElementsMatch(t, []*conn{c, d}, s.reports(t))
	c.dead.Store(true)
	d.dead.Store(true)
	s.remove(c)
	a0, more := s.take()
	require.Zero(t, a0)
	require.True(t, more)
	require.Empty(t, s.reports(t))
	require.NoError(t, s.add(c))
	require.Zero(t, s.poll())
	require.Empty(t, s.reports(t))
}

// TestSetClosed uses a closed set, whose descriptor number has been reused for another epoll
// instance.
func TestSetClosed(t *testing.T) {
	c := stub(t)
	before := descriptors(t)
	s := newEpollSet(t, c)
	fd := s.fd
	require.Len(t, descriptors(t), len(before)+2)
	s.close()
	require.Equal(t, before, descriptors(t))
	next := newEpollSet(t, c)
	defer next.close()
	for extra := next.fd; extra != fd && extra < fd; { // the lowest free number
		var err error
		extra, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC)
		require.NoError(t, err)
		defer unix.Close(extra)
	}
	require.Empty(t, s.reports(t))
	s.remove(c)
	require.Equal(t, []*conn{c}, next.reports(t))
	if next.fd != fd {
		t.Logf("descriptor %d has not been used again", fd)
	}
}

// TestWatchesMoveFails merges two watches when the kernel refuses one of the connections: all stay
// where they are.
func TestWatchesMoveFails(t *testing.T) {
	a, b, bad, d := stub(t), stub(t), stub(t), stub(t)
	s, other := newEpollSet(t, d), newEpollSet(t, a, b, bad)
	defer s.close()
	defer other.close()
	w, was := newWatch(s), newWatch(other)
	w.conns[d] = struct{}{}
	for _, c := range []*conn{a, b, bad} {
		was.conns[c], c.watched = struct{}{}, was
	}
	require.NoError(t, s.add(bad))
	require.ErrorIs(t, w.move(was), unix.EEXIST)
	require.Equal(t, []*conn{d}, s.reports(t))
	require.ElementsMatch(t, []*conn{a, b, bad}, other.reports(t))
	require.False(t, was.over.Load())
	require.Len(t, w.conns, 1)
	for _, c := range []*conn{a, b, bad} {
		require.Same(t, was, c.watched)
		other.remove(c)
	}
	require.Empty(t, other.reports(t))
}

// TestGateShut: a shut gate is not readable, whether or not its member is. A reopened one reports
// earlier events.
func TestGateShut(t *testing.T) {
	g, err := newGate(stub(t).s.(*tcpStream).fd)
	require.NoError(t, err)
	defer g.close()
	for range 2 {
		for on, n := range map[bool]int{true: 0, false: 1} {
			require.True(t, g.shut(on))
			var evs [1]unix.EpollEvent
			k, err := unix.EpollWait(g.fd, evs[:], 0)
			require.NoError(t, err)
			require.Equal(t, n, k)
		}
	}
}

// TestGatePollable nests epoll instances until the kernel refuses more. newGate must fail if the
// runtime's poller does not accept the gate, because then no goroutine would be woken.
func TestGatePollable(t *testing.T) {
	member := stub(t).s.(*tcpStream).fd
	made := 0
	for range 10 {
		g, err := newGate(member)
		if err != nil {
			break
		}
		called := 0
		require.NoError(t, g.wait(func() bool {
			g.wake()
			called++
			return called == 2
		}), "nested %d deep", made+1)
		g.close()
		made++
		fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
		require.NoError(t, err)
		defer unix.Close(fd)
		require.NoError(t, unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, member, &unix.EpollEvent{Events: unix.EPOLLIN}))
		member = fd
	}
	require.NotZero(t, made)
	require.Less(t, made, 10)
}
