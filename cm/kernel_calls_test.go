// SPDX-License-Identifier: BSD-3-Clause

package cm

import (
	"errors"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/queue"
	"github.com/goverbs/goverbs/verbs"
)

// goLibrary is a librdmacm in Go, with one channel at once. Its IDs record the calls on them.
type goLibrary struct {
	mu     sync.Mutex
	ch     *goChannel
	ids    []*goID
	events []rawEvent // not read yet
	answer func(id *goID, call string) error
}

type goChannel struct {
	l             *goLibrary
	bell, stopped chan struct{}
}

// goID implements the calls that the tests reach; others panic.
type goID struct {
	rawID
	l       *goLibrary
	key     uintptr
	calls   []string
	at      netip.AddrPort // bound to
	limits  []time.Duration
	refused []byte
}

// useGo replaces the library with goLibrary during a test, and checks that the test leaves nothing
// open.
func useGo(t *testing.T) *goLibrary {
	t.Helper()
	free := func() bool {
		shared.Lock()
		defer shared.Unlock()
		return shared.ch == nil
	}
	// An attempt of an earlier test may free its ID in the background.
	require.Eventually(t, free, 20*time.Second, time.Millisecond)
	l, before := &goLibrary{}, librdmacm
	librdmacm = l
	t.Cleanup(func() {
		require.Eventually(t, free, 20*time.Second, time.Millisecond)
		librdmacm = before
		require.Eventually(t, func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.ch == nil
		}, 20*time.Second, time.Millisecond, "the channel is closed")
		for _, id := range l.ids {
			require.Equal(t, 1, id.count("destroy"), id.calls)
			require.Equal(t, "destroy", id.calls[len(id.calls)-1], id.calls)
		}
	})
	return l
}

func (l *goLibrary) load() error { return nil }

func (l *goLibrary) open() (rawChannel, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ch = &goChannel{l: l, bell: make(chan struct{}, 1), stopped: make(chan struct{})}
	return l.ch, nil
}

// happens queues an event.
func (l *goLibrary) happens(ev rawEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, ev)
	queue.Signal(l.ch.bell)
}

func (l *goLibrary) newID(key uintptr) *goID {
	l.mu.Lock()
	defer l.mu.Unlock()
	id := &goID{l: l, key: key}
	l.ids = append(l.ids, id)
	return id
}

func (ch *goChannel) create(key uintptr, _ PortSpace) (rawID, error) { return ch.l.newID(key), nil }

func (ch *goChannel) next() (rawEvent, error) {
	ch.l.mu.Lock()
	defer ch.l.mu.Unlock()
	if len(ch.l.events) == 0 {
		return rawEvent{}, syscall.EAGAIN
	}
	ev := ch.l.events[0]
	ch.l.events = ch.l.events[1:]
	return ev, nil
}

func (ch *goChannel) wait(done func() bool) error {
	for !done() {
		select {
		case <-ch.bell:
		case <-ch.stopped:
			return verbs.ErrClosed
		}
	}
	return nil
}

func (ch *goChannel) stop() { close(ch.stopped) }

func (ch *goChannel) close() {
	ch.l.mu.Lock()
	defer ch.l.mu.Unlock()
	ch.l.ch = nil
}

// called records a call and returns the test's answer.
func (id *goID) called(call string) error {
	id.l.mu.Lock()
	id.calls = append(id.calls, call)
	answer := id.l.answer
	id.l.mu.Unlock()
	if answer == nil {
		return nil
	}
	return answer(id, call)
}

func (id *goID) count(call string) (n int) {
	id.l.mu.Lock()
	defer id.l.mu.Unlock()
	for _, c := range id.calls {
		if c == call {
			n++
		}
	}
	return n
}

func (id *goID) setKey(key uintptr) { id.key = key }

func (id *goID) where() rawPlace {
	return rawPlace{local: id.at, remote: netip.MustParseAddrPort("192.0.2.9:9"), port: 1}
}

func (id *goID) setAFOnly() error { return id.called("AFONLY") }

func (id *goID) bind(a netip.AddrPort) error {
	if err := id.called("bind " + a.String()); err != nil {
		return err
	}
	if id.at = a; a.Port() == 0 {
		id.at = netip.AddrPortFrom(a.Addr(), 7306)
	}
	return nil
}

func (id *goID) listen(int) error { return id.called("listen") }

func (id *goID) resolveAddr(_, _ netip.AddrPort, limit time.Duration) error {
	id.limits = append(id.limits, limit)
	return id.called("resolve")
}

func (id *goID) reject(data []byte) error {
	id.refused = data
	return id.called("reject")
}

func (id *goID) destroy() error { return id.called("destroy") }

// listensOn listens on an address with a backlog of one.
func listensOn(t *testing.T, address string) (*kernelListener, error) {
	t.Helper()
	ln, err := listenKernel(t.Context(), address, Config{PortSpace: PortSpaceTCP, Backlog: 1}, nil)
	if err != nil {
		return nil, err
	}
	l := ln.(*kernelListener)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l, nil
}

// TestListenOnBothFamilies: siw refuses IPv4 on a listener for IPv6, so an empty host uses one ID
// per family, with the same port.
func TestListenOnBothFamilies(t *testing.T) {
	lib := useGo(t)
	l, err := listensOn(t, ":0")
	require.NoError(t, err)
	require.Len(t, lib.ids, 2)
	require.Equal(t, []string{"AFONLY", "bind 0.0.0.0:0", "listen"}, lib.ids[0].calls)
	require.Equal(t, []string{"AFONLY", "bind [::]:7306", "listen"}, lib.ids[1].calls)
	require.EqualValues(t, 7306, l.local.Port())

	one, err := listensOn(t, "[::1]:7")
	require.NoError(t, err)
	require.Len(t, one.ends, 1)
	require.Equal(t, []string{"bind [::1]:7", "listen"}, lib.ids[2].calls)
}

// TestListenWithoutIPv6 listens on IPv4 alone. A port that another program uses on IPv6 is in use.
func TestListenWithoutIPv6(t *testing.T) {
	lib := useGo(t)
	lib.answer = func(_ *goID, call string) error {
		if call == "bind [::]:7306" {
			return syscall.EAFNOSUPPORT
		}
		return nil
	}
	l, err := listensOn(t, ":0")
	require.NoError(t, err)
	require.Len(t, l.ends, 1)

	lib.answer = func(_ *goID, call string) error {
		if call == "bind [::]:7306" {
			return syscall.EADDRINUSE
		}
		return nil
	}
	before := len(lib.ids)
	_, err = listensOn(t, ":0")
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	require.Equal(t, 8*2, len(lib.ids)-before, "eight ports")
	before = len(lib.ids)
	_, err = listensOn(t, ":7306")
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	require.Equal(t, 2, len(lib.ids)-before, "one port")
}

// TestListenWildcardTaken: EADDRNOTAVAIL means that the port is in use for a wildcard address only.
func TestListenWildcardTaken(t *testing.T) {
	lib := useGo(t)
	lib.answer = func(_ *goID, call string) error {
		if call == "listen" {
			return nil
		}
		return syscall.EADDRNOTAVAIL
	}
	_, err := listensOn(t, "0.0.0.0:7")
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	_, err = listensOn(t, "192.0.2.1:7")
	require.ErrorIs(t, err, syscall.EADDRNOTAVAIL)
	require.ErrorContains(t, err, "rdma_bind_addr")
}

// TestRequestsWithoutListener: every request is answered or freed, whether or not it has a
// listener.
func TestRequestsWithoutListener(t *testing.T) {
	lib := useGo(t)
	l, err := listensOn(t, "192.0.2.1:7")
	require.NoError(t, err)
	asks := func(key uintptr) *goID {
		id := lib.newID(0)
		lib.happens(rawEvent{event: EventConnectRequest, key: key, id: id})
		return id
	}
	ended := func(id *goID) {
		t.Helper()
		require.Eventually(t, func() bool { return id.count("destroy") == 1 }, 20*time.Second, time.Millisecond)
	}
	unknown := asks(1000)
	ended(unknown)
	require.Zero(t, unknown.count("reject"))

	first := asks(lib.ids[0].key)
	second := asks(lib.ids[0].key)
	ended(second)
	require.Equal(t, "goverbs: backlog full", string(second.refused))
	require.Zero(t, first.count("destroy"))
	require.NoError(t, l.Close())
	ended(first)
	require.Equal(t, 1, first.count("reject"), "by Close")
	require.Empty(t, first.refused)
}

// TestSearchForNeighbour: Linux 6.1 notices a neighbour's answer late, so the lookup is repeated
// with short timeouts.
func TestSearchForNeighbour(t *testing.T) {
	lib := useGo(t)
	lib.answer = func(id *goID, call string) error {
		if call == "resolve" {
			ev := rawEvent{event: EventAddrError, status: -int(syscall.ETIMEDOUT), key: id.key}
			if id.count("resolve") == 3 {
				ev = rawEvent{event: EventAddrResolved, key: id.key}
			}
			id.l.happens(ev)
		}
		return nil
	}
	_, _, err := resolveKernel(t.Context(), "192.0.2.9:9", Config{PortSpace: PortSpaceTCP}, nil)
	require.Error(t, err, "the ID has no device that libibverbs lists")
	require.False(t, errors.Is(err, syscall.ETIMEDOUT), err)
	require.Equal(t, slices.Repeat([]time.Duration{250 * time.Millisecond}, 3), lib.ids[0].limits)
}
