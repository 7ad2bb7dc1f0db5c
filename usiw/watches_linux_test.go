// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"context"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/asleep"
	"github.com/goverbs/goverbs/verbs"
)

// gathers reports whether the side's connection is in a set.
func (s *side) gathers() bool {
	_, ok := s.watch().src.(set)
	return ok
}

// exchange sends a message in each direction. Any goroutine may receive them.
func exchange(t *testing.T, a, b *side, receive func(s *side) verbs.WC) {
	t.Helper()
	a.send(b)
	require.Equal(t, verbs.WC{Opcode: verbs.WCRecv, QPNum: b.qp.Num()}, receive(b))
	b.send(a)
	require.Equal(t, verbs.WC{Opcode: verbs.WCRecv, QPNum: a.qp.Num()}, receive(a))
}

func polls(s *side) verbs.WC { return s.polledNext(s.rcq) }

func sleeps(s *side) verbs.WC { return s.next(s.rcq) }

// TestWatchesAlone: a connection that shares no CQ has its own watch.
func TestWatchesAlone(t *testing.T) {
	n := newSides(t, Config{})
	a, b := n.join(n.side(nil, nil), n.side(nil, nil))
	c, d := n.join(n.side(nil, nil), n.side(nil, nil))
	seen := make(map[*watch]bool)
	for _, s := range []*side{a, b, c, d} {
		require.False(t, s.gathers())
		seen[s.watch()] = true
	}
	require.Len(t, seen, 4)
}

// TestWatchesShared: connections that share a receive CQ, a send CQ, or both have one watch. A
// goroutine that polls or sleeps serves them, otherwise the watch's reader does.
func TestWatchesShared(t *testing.T) {
	for name, newSide := range map[string]func(n *sides, cq *verbs.CQ) *side{
		"receive CQ": func(n *sides, cq *verbs.CQ) *side { return n.side(nil, cq) },
		"send CQ":    func(n *sides, cq *verbs.CQ) *side { return n.side(cq, nil) },
		"one for both": func(n *sides, cq *verbs.CQ) *side {
			s := n.side(cq, cq)
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newSides(t, Config{})
			left, right := n.cq(), n.cq()
			const many = 2*setEvents + 1
			var as, bs []*side
			for range many {
				a, b := n.join(newSide(n, left), newSide(n, right))
				as, bs = append(as, a), append(bs, b)
			}
			for i := range as {
				require.Same(t, as[0].watch(), as[i].watch())
				require.Same(t, bs[0].watch(), bs[i].watch())
			}
			require.True(t, as[0].gathers())
			require.NotSame(t, as[0].watch(), bs[0].watch())
			for i := range as {
				exchange(t, as[i], bs[i], polls)
				exchange(t, as[i], bs[i], sleeps)
			}
			// All connections have data at once.
			for i := range as {
				as[i].send(bs[i])
			}
			got := make(map[uint32]bool)
			for i := range bs {
				cq := bs[i].rcq
				if name != "send CQ" {
					cq = right
				}
				wc := bs[i].polledNext(cq)
				require.Equal(t, verbs.WCRecv, wc.Opcode)
				got[wc.QPNum] = true
			}
			require.Len(t, got, many)
			// No goroutine polls or sleeps on the other side.
			for i := range as {
				_, err := as[i].qp.PostSend(as[i].read(bs[i]))
				require.NoError(t, err)
				wc := as[i].next(as[i].scq)
				require.NoError(t, wc.Err())
			}
		})
	}
}

// TestWatchesMerge joins two sets, and two connections, through another connection.
func TestWatchesMerge(t *testing.T) {
	for name, many := range map[string]int{"sets": 3, "connections": 1} {
		t.Run(name, func(t *testing.T) {
			n := newSides(t, Config{})
			cqs := []*verbs.CQ{n.cq(), n.cq()}
			var as, bs []*side
			for i := range 2 * many {
				a, b := n.join(n.side(nil, cqs[i%2]), n.side(nil, nil))
				as, bs = append(as, a), append(bs, b)
			}
			require.NotSame(t, as[0].watch(), as[1].watch())
			require.Equal(t, many > 1, as[0].gathers())
			was := []*watch{as[0].watch(), as[1].watch()}

			// Goroutines sleep on both watches, and poll, while the watches merge.
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			got := make(chan verbs.WC, 2)
			for _, cq := range cqs {
				go func() {
					var wcs [1]verbs.WC
					_, _ = cq.Wait(ctx, wcs[:])
					got <- wcs[0]
				}()
			}
			a, b := n.join(n.side(cqs[0], cqs[1]), n.side(nil, nil))
			require.True(t, a.gathers())
			for i := range as {
				require.Same(t, a.watch(), as[i].watch())
			}
			for _, w := range was {
				if w != a.watch() {
					<-w.ended
				}
			}
			bs[0].send(as[0])
			require.Equal(t, as[0].qp.Num(), (<-got).QPNum)
			bs[1].send(as[1])
			require.Equal(t, as[1].qp.Num(), (<-got).QPNum)
			exchange(t, a, b, polls)
			for i := range as {
				exchange(t, as[i], bs[i], polls)
				exchange(t, as[i], bs[i], sleeps)
				bs[i].answeredBy(as[i])
			}
		})
	}
}

// watches returns the watches of CQs.
func watches(cqs ...*verbs.CQ) (ws []*watch) {
	for _, q := range cqs {
		ws = append(ws, q.Provider().(*cq).watch.Load())
	}
	return ws
}

// TestWatchesAgain reuses CQs after their last connection has ended, and while others remain.
func TestWatchesAgain(t *testing.T) {
	for name, many := range map[string]int{"alone": 1, "shared": 3} {
		t.Run(name, func(t *testing.T) {
			n := newSides(t, Config{})
			scq, rcq := n.cq(), n.cq()
			for range 3 {
				var as, bs []*side
				for range many {
					a, b := n.join(n.side(nil, nil), n.side(scq, rcq))
					as, bs = append(as, a), append(bs, b)
				}
				w := bs[0].watch()
				for i := range as {
					require.Equal(t, []*watch{w, w}, watches(scq, rcq))
					exchange(t, as[i], bs[i], polls)
					exchange(t, as[i], bs[i], sleeps)
					as[i].answeredBy(bs[i])
					require.NoError(t, as[i].id.Close())
					require.NoError(t, bs[i].id.Close())
					bs[i].polledFlushed()
				}
				require.Equal(t, []*watch{nil, nil}, watches(scq, rcq))
				require.Empty(t, w.cqs)
				<-w.ended
			}
		})
	}
}

// TestWatchesMergeAgain joins sets that have merged before to a larger one: no CQ is left behind.
func TestWatchesMergeAgain(t *testing.T) {
	n := newSides(t, Config{})
	var cqs []*verbs.CQ
	for range 3 {
		cqs = append(cqs, n.cq())
	}
	for range 3 {
		n.join(n.side(cqs[0], cqs[0]), n.side(nil, nil))
		n.join(n.side(cqs[1], cqs[1]), n.side(nil, nil))
	}
	for range 9 {
		n.join(n.side(cqs[2], cqs[2]), n.side(nil, nil))
	}
	n.join(n.side(cqs[0], cqs[1]), n.side(nil, nil))
	one := watches(cqs...)
	require.Same(t, one[0], one[1])
	require.NotSame(t, one[0], one[2])
	n.join(n.side(cqs[0], cqs[2]), n.side(nil, nil))
	require.Equal(t, []*watch{one[2], one[2], one[2]}, watches(cqs...))
	require.Len(t, one[2].cqs, 3)
	<-one[0].ended
}

// files returns how many descriptors are open, except those of the NIC's yielder, which creates
// more when several goroutines yield at once.
func files(t *testing.T, s *side) int {
	y := &s.conn.dev.yielder
	y.mu.Lock()
	defer y.mu.Unlock()
	return len(descriptors(t)) - y.made
}

// TestWatchesFull joins connections while one of them waits for room in its socket and so loses its
// descriptor in Go's poller: it continues once there is room, and closes the descriptors that it
// used in the meantime.
func TestWatchesFull(t *testing.T) {
	// The peer's goroutine that the test stops may hold one of the places of a turn, of which there
	// are as many as processors. The sender needs another one.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0))))
	n := newSides(t, Config{})
	cq := n.cq()
	a, b := n.join(n.side(cq, cq), n.side(nil, nil))
	files := func() int { return files(t, b) }
	before := files()
	full := func() {
		for range 16 {
			a.post(verbs.WRRDMAWrite, 4<<20, b)
		}
		asleep.Until(t, 1, "usiw.(*tcpStream).waitWritable", "usiw.(*conn).waitRoom")
	}
	written := 0 // requests of a whose completions were polled
	sent := func() {
		for ; written < 16; written++ {
			wc := a.polledNext(cq)
			require.NoError(t, wc.Err())
		}
		written = 0
	}
	unread := func(f func()) { // the peer does not read during this
		b.conn.rx.mu.Lock()
		defer b.conn.rx.mu.Unlock()
		f()
	}
	var c, d *side
	unread(func() {
		full()
		c, d = n.join(n.side(cq, cq), n.side(nil, nil))
		require.True(t, a.gathers())
		exchange(t, d, c, func(s *side) verbs.WC {
			wc := polls(s)
			for ; wc.QPNum == a.qp.Num(); written++ { // the sockets may have room for some of its data
				require.NoError(t, wc.Err())
				wc = polls(s)
			}
			return wc
		})
	})
	sent()
	for range 3 {
		unread(full)
		sent()
	}
	require.NoError(t, c.id.Close())
	require.NoError(t, d.id.Close())
	// The set has two descriptors, and that of the lone connection is closed.
	require.Eventually(t, func() bool { return files() <= before+1 }, patience, patience/1000)
}

// TestWatchesEnd ends the connections of a set one after the other, from either side and with a
// reset: the others continue, and with the last one the watch ends and its descriptors are closed.
func TestWatchesEnd(t *testing.T) {
	n := newSides(t, Config{})
	cq := n.cq()
	first, _ := n.join(n.side(nil, nil), n.side(nil, nil)) // from here on the runtime's descriptors are open
	before := files(t, first)
	var as, bs []*side
	for range 4 {
		a, b := n.join(n.side(nil, nil), n.side(cq, cq))
		as, bs = append(as, a), append(bs, b)
	}
	w := bs[0].watch()
	bs[3].busyPolled()
	for i, end := range []func() error{as[0].id.Close, bs[1].id.Close, as[2].reset, as[3].id.Close} {
		require.NoError(t, end())
		<-bs[i].id.Done()
		for _, j := range []int{3} {
			if j > i {
				bs[j].polledFlushed()
				exchange(t, as[j], bs[j], polls)
				as[j].answeredBy(bs[j])
			}
		}
	}
	<-w.ended
	for i := range as {
		require.NoError(t, as[i].id.Close())
		require.NoError(t, bs[i].id.Close())
	}
	require.Eventually(t, func() bool { return files(t, first) <= before }, patience, patience/1000)
}

// polledFlushed polls all completions in the receive CQ.
func (s *side) polledFlushed() {
	var wcs [64]verbs.WC
	for n := 1; n > 0; {
		var err error
		n, err = s.rcq.Poll(wcs[:])
		require.NoError(s.t, err)
	}
}

// TestPollerLetsOthersRun: on a single processor, one goroutine polls continuously for the answers
// of another, which waits for the network. The other goroutine does not depend on the runtime's
// monitor.
func TestPollerLetsOthersRun(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	a, b := twoSides(t, Config{})
	var answering sync.WaitGroup
	const rounds = 50
	answering.Go(func() {
		for range rounds {
			wc := b.next(b.rcq)
			if wc.Err() != nil {
				return
			}
			b.send(a)
		}
	})
	vain := 0
	for range rounds {
		a.send(b)
		var wcs [1]verbs.WC
		for n := 0; n == 0; vain++ {
			var err error
			n, err = a.rcq.Poll(wcs[:])
			require.NoError(t, err)
			runtime.Gosched()
		}
	}
	answering.Wait()
	require.Less(t, vain/rounds, 1000, "polls in vain for each answer") // about 10,000 fit into the monitor's 10 ms
}
