// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/asleep"
	"github.com/goverbs/goverbs/internal/queue"
	"github.com/goverbs/goverbs/verbs"
)

// scene is a watch with a simulated source: the test decides what arrives, and sets the time.
type scene struct {
	t     *testing.T
	w     *watch
	ch    *channel // of the sleeping goroutine
	other *channel

	mu      sync.Mutex // guards the fields below
	time    int64
	waiting int  // arrivals not received yet
	message bool // they are messages for the program
	wakes   bool // they wake another goroutine
	silent  bool
	rest    bool          // there may be connections left out
	slow    time.Duration // how long it takes to receive
	endless bool          // there is always more
	between func()        // called once, between two calls of take
	yields  yielder
	nudge   chan struct{} // holds a token when wait must call its function
}

func newScene(t *testing.T) *scene {
	s := &scene{t: t, nudge: make(chan struct{}, 1)}
	s.w = newWatch(s)
	s.w.now, s.w.term = s.clock, time.Hour
	newChannel := func() *channel {
		ch := &channel{ready: make(chan struct{}, 1), closed: make(chan struct{}), watches: make(map[*watch]int)}
		ch.setWatch(nil, s.w)
		return ch
	}
	s.ch, s.other = newChannel(), newChannel()
	return s
}

func (s *scene) clock() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.time
}

// pass advances the time.
func (s *scene) pass(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.time += int64(d)
}

func (s *scene) wait(f func() bool) error {
	for !f() {
		<-s.nudge
	}
	return nil
}

func (s *scene) wake() { queue.Signal(s.nudge) }

func (s *scene) quiet(on bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent = on
	return true
}

func (s *scene) take() (a arrivals, more bool) {
	a = s.poll()
	s.mu.Lock()
	defer s.mu.Unlock()
	return a, s.endless
}

func (s *scene) poll() (a arrivals) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.conns, s.waiting, a.rest = s.waiting, 0, s.rest
	s.time += int64(s.slow)
	if !s.message {
		a.asked = a.conns
	}
	if s.wakes && a.conns > 0 {
		s.w.events.Add(1)
	}
	return a
}

func (s *scene) yielder() *yielder {
	s.mu.Lock()
	f := s.between
	s.between = nil
	s.mu.Unlock()
	if f != nil {
		f()
	}
	return &s.yields
}

func (s *scene) close() {}

func (s *scene) add(*conn) error { return nil }

func (s *scene) remove(*conn) {}

// arrive simulates an arrival.
func (s *scene) arrive() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting++
}

// left returns how many arrivals have not been received.
func (s *scene) left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting
}

// keeper returns the keeper of the watch, while goroutines are running.
func (s *scene) keeper() keeper {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	return s.w.keeper
}

// becomes waits until k is the keeper.
func (s *scene) becomes(k keeper) {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return s.keeper() == k }, 30*time.Second, time.Millisecond)
}

// received waits until all arrivals have been received.
func (s *scene) received() {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return s.left() == 0 }, 30*time.Second, time.Millisecond)
}

// is requires that k is the keeper, that the source is quiet if and only if the keeper is the
// poller, and that the reader is recalled if it must keep the watch.
func (s *scene) is(k keeper) {
	s.t.Helper()
	require.Equal(s.t, k, s.w.keeper)
	require.Equal(s.t, k == byPoller, s.silent)
	require.Equal(s.t, k != byPoller, s.w.announced.Load())
	if k == byReader {
		require.False(s.t, s.w.aside)
	} else if k != byPoller {
		require.True(s.t, s.w.aside)
	}
}

// event simulates an event for a goroutine asleep in ch.
func (s *scene) event(ch *channel) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.queue = append(ch.queue, new(cq))
}

// sleeps simulates a goroutine that goes to sleep in ch; awakes reverses it.
func (s *scene) sleeps(ch *channel) bool {
	ch.mu.Lock()
	ch.sleepers++
	ch.mu.Unlock()
	return s.w.enter(ch)
}

func (s *scene) awakes(ch *channel) {
	ch.mu.Lock()
	ch.sleepers--
	ch.queue = nil
	ch.mu.Unlock()
}

// nobody puts a new scene into the state in which nobody keeps the watch.
func (s *scene) nobody() {
	s.t.Helper()
	require.False(s.t, s.sleeps(s.ch))
	s.event(s.ch)
	require.True(s.t, s.w.stepAside())
	s.awakes(s.ch)
	s.is(byNobody)
}

// waiter puts a new scene into the state in which a waiter keeps the watch.
func (s *scene) waiter() {
	s.t.Helper()
	s.nobody()
	require.True(s.t, s.sleeps(s.ch))
	s.is(byWaiter)
}

// polls polls n times without pause.
func (s *scene) polls(n int) {
	for range n {
		s.pass(time.Microsecond)
		s.w.poll(s.clock())
	}
}

// busyPolled polls until the poller keeps the watch.
func (s *scene) busyPolled() {
	s.t.Helper()
	s.polls(2 * busyPolls)
	s.is(byPoller)
}

// TestWatchBegins: the reader keeps a new watch.
func TestWatchBegins(t *testing.T) { newScene(t).is(byReader) }

// TestWatchReader tests the transitions from the reader.
func TestWatchReader(t *testing.T) {
	t.Run("wakes who wanted it", func(t *testing.T) { newScene(t).nobody() })
	t.Run("wakes nobody", func(t *testing.T) {
		s := newScene(t)
		require.False(t, s.w.stepAside())
		require.False(t, s.sleeps(s.ch))
		require.False(t, s.w.stepAside(), "who sleeps has not been woken")
		s.is(byReader)
	})
	t.Run("another one sleeps there", func(t *testing.T) {
		s := newScene(t)
		s.sleeps(s.ch)
		s.sleeps(s.ch)
		s.event(s.ch)
		require.False(t, s.w.stepAside())
		s.is(byReader)
	})
	t.Run("another CQ is armed", func(t *testing.T) {
		s := newScene(t)
		s.sleeps(s.ch)
		s.w.armed.Add(1)
		s.event(s.ch)
		require.False(t, s.w.stepAside())
		s.is(byReader)
	})
	t.Run("another CQ of the channel is armed", func(t *testing.T) {
		s := newScene(t)
		s.sleeps(s.ch)
		s.w.armed.Add(1)
		s.ch.armed.Add(1)
		s.event(s.ch)
		require.True(t, s.w.stepAside())
	})
	t.Run("who wanted it has not come again", func(t *testing.T) {
		s := newScene(t)
		s.nobody()
		s.w.recall()
		s.event(s.ch)
		require.False(t, s.w.stepAside())
	})
	t.Run("wakes somebody in place of the poller", func(t *testing.T) {
		s := newScene(t)
		s.sleeps(s.ch)
		s.busyPolled()
		s.event(s.ch)
		require.False(t, s.w.stepAside())
		s.is(byPoller)
	})
	t.Run("polled in time", func(t *testing.T) {
		s := newScene(t)
		s.polls(1)
		s.w.doubt.Store(2)
		s.arrive()
		s.polls(1)
		require.EqualValues(t, 1, s.w.doubt.Load())
	})
	t.Run("no guest is trusted", func(t *testing.T) {
		s := newScene(t)
		s.w.doubt.Store(1)
		s.sleeps(s.ch)
		s.event(s.ch)
		require.False(t, s.w.stepAside())
		s.polls(3 * busyPolls)
		s.is(byReader)
		s.w.arrived(1)
		require.True(t, s.w.stepAside())
		s.is(byNobody)
	})
	t.Run("polled", func(t *testing.T) { newScene(t).busyPolled() })
	t.Run("polled now and then", func(t *testing.T) {
		s := newScene(t)
		for range 4 * busyPolls {
			s.pass(busyPeriod / busyPolls)
			s.w.poll(s.clock())
		}
		s.is(byReader)
	})
}

// TestWatchRead runs the reader: the arrivals that it receives reduce the debt. Once it has woken
// the only sleeping goroutine, it stands aside until it is recalled.
func TestWatchRead(t *testing.T) {
	s := newScene(t)
	gone := make(chan error, 1)
	go func() { gone <- s.w.read() }()
	s.w.doubt.Store(3)
	for range 3 {
		s.arrive()
		s.wake()
		s.received()
	}
	require.Eventually(t, func() bool { return s.w.doubt.Load() == 0 }, 30*time.Second, time.Millisecond)
	for range 3 {
		// the reader: until then it may still be between two calls of take
		asleep.Until(t, 1, "usiw.(*scene).wait", "usiw.TestWatchRead")
		require.False(t, s.sleeps(s.ch))
		s.mu.Lock()
		s.between = func() { // for what it has received
			s.event(s.ch)
			s.w.events.Add(1)
		}
		s.mu.Unlock()
		s.arrive()
		s.wake()
		s.becomes(byNobody)
		s.awakes(s.ch)
		s.arrive()
		s.wake()
		asleep.Until(t, 1, "usiw.(*watch).standAside", "usiw.TestWatchRead")
		require.Equal(t, 1, s.left(), "nobody keeps the watch")
		s.w.recall()
		s.received()
		require.Equal(t, byReader, s.keeper())
	}
	s.w.stop()
	require.NoError(t, <-gone)
}

// TestWatchNobody tests the transitions from nobody.
func TestWatchNobody(t *testing.T) {
	t.Run("somebody goes to sleep", func(t *testing.T) { newScene(t).waiter() })
	t.Run("polled", func(t *testing.T) {
		s := newScene(t)
		s.nobody()
		s.busyPolled()
		require.True(t, s.w.aside)
	})
	t.Run("the lease ends", func(t *testing.T) {
		s := newScene(t)
		s.nobody()
		s.w.expire()
		s.is(byReader)
		require.LessOrEqual(t, s.w.doubt.Load(), int64(0), "nothing had to wait")
	})
	t.Run("the lease ends, after a poll", func(t *testing.T) {
		s := newScene(t)
		s.nobody()
		s.polls(1)
		s.w.expire()
		s.is(byNobody)
		s.w.expire()
		s.is(byReader)
	})
	t.Run("a new lease begins", func(t *testing.T) {
		s := newScene(t)
		s.nobody()
		s.polls(1)
		s.w.mu.Lock()
		s.w.vacate() // what a leaving waiter does
		s.w.mu.Unlock()
		s.w.expire()
		s.is(byReader)
	})
	t.Run("the lease ends, something has waited", func(t *testing.T) {
		s := newScene(t)
		s.nobody()
		s.arrive()
		s.w.expire()
		s.is(byReader)
		require.Zero(t, s.waiting)
		require.EqualValues(t, trust, s.w.doubt.Load())
	})
	t.Run("recalled", func(t *testing.T) {
		s := newScene(t)
		s.nobody()
		s.w.recall()
		s.is(byReader)
	})
	t.Run("polled late", func(t *testing.T) {
		s := newScene(t)
		s.nobody()
		s.arrive()
		s.pass(2 * absence)
		s.polls(1)
		s.is(byReader)
		require.Zero(t, s.waiting)
	})
}

// TestWatchWaiter tests the transitions from the waiter.
func TestWatchWaiter(t *testing.T) {
	t.Run("leaves", func(t *testing.T) {
		s := newScene(t)
		s.waiter()
		s.w.leave(s.ch)
		s.is(byNobody)
	})
	t.Run("leaves another asleep", func(t *testing.T) {
		s := newScene(t)
		s.waiter()
		require.False(t, s.sleeps(s.ch))
		s.is(byWaiter)
		s.w.leave(s.ch)
		s.is(byReader)
	})
	t.Run("leaves another CQ armed", func(t *testing.T) {
		s := newScene(t)
		s.waiter()
		s.w.armed.Add(1)
		s.w.recall() // what a goroutine that arms it does
		s.is(byWaiter)
		s.w.leave(s.ch)
		s.is(byReader)
	})
	t.Run("polled", func(t *testing.T) {
		s := newScene(t)
		s.waiter()
		s.polls(3 * busyPolls)
		s.pass(2 * absence)
		s.arrive()
		s.polls(1)
		s.is(byWaiter)
		require.LessOrEqual(t, s.w.doubt.Load(), int64(0), "the waiter would have received it")
	})
	t.Run("stays longer than the lease", func(t *testing.T) {
		s := newScene(t)
		s.waiter()
		s.arrive()
		s.w.expire()
		s.w.expire()
		s.is(byWaiter)
		require.Equal(t, 1, s.waiting, "it is the waiter's")
	})
	t.Run("was late", func(t *testing.T) {
		s := newScene(t)
		s.nobody()
		s.arrive()
		s.pass(2 * absence)
		require.True(t, s.sleeps(s.ch))
		s.event(s.ch)
		s.ch.keep(context.Background(), s.w)
		s.is(byReader)
		require.EqualValues(t, trust, s.w.doubt.Load())
	})
	t.Run("sleeps", func(t *testing.T) {
		s := newScene(t)
		s.waiter()
		slept := make(chan bool)
		go func() { slept <- s.ch.keep(context.Background(), s.w) }()
		require.Eventually(t, func() bool { return s.ch.looking.Load() == s.w }, 30*time.Second, time.Millisecond)
		s.event(s.ch)
		s.wake()
		require.True(t, <-slept)
	})
	t.Run("need not sleep", func(t *testing.T) {
		s := newScene(t)
		s.waiter()
		s.event(s.ch)
		require.False(t, s.ch.keep(context.Background(), s.w))
	})
	t.Run("was late, more comes later", func(t *testing.T) {
		for rest, doubt := range map[bool]int64{true: trust, false: -1} {
			s := newScene(t)
			s.nobody()
			s.pass(2 * absence)
			require.True(t, s.sleeps(s.ch))
			s.endless, s.rest = true, rest
			s.between = func() { s.arrive(); s.event(s.ch) }
			s.ch.keep(context.Background(), s.w)
			require.Equal(t, doubt, s.w.doubt.Load(), "not all was received at first: %v", rest)
		}
	})
	t.Run("was away for nothing", func(t *testing.T) {
		s := newScene(t)
		s.nobody()
		s.pass(2 * absence)
		require.True(t, s.sleeps(s.ch))
		s.event(s.ch)
		s.ch.keep(context.Background(), s.w)
		s.is(byNobody)
	})
	t.Run("is called while it receives without end", func(t *testing.T) {
		for name, call := range map[string]func(s *scene, cancel func()){
			"by an event":    func(s *scene, _ func()) { s.event(s.ch) },
			"by its context": func(_ *scene, cancel func()) { cancel() },
			"by the end":     func(s *scene, _ func()) { s.w.stop() },
		} {
			t.Run(name, func(t *testing.T) {
				s := newScene(t)
				s.waiter()
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				s.endless, s.between = true, func() { call(s, cancel) }
				s.ch.keep(ctx, s.w)
				require.NotEqual(t, byWaiter, s.w.keeper)
			})
		}
	})
	t.Run("is called just before it sleeps", func(t *testing.T) {
		s := newScene(t)
		s.waiter()
		s.between = func() { s.event(s.ch); s.ch.wake() }
		s.ch.keep(context.Background(), s.w)
		s.is(byNobody)
		require.Nil(t, s.ch.looking.Load())
	})
	t.Run("makes up for what has waited", func(t *testing.T) {
		s := newScene(t)
		s.waiter()
		s.w.doubt.Store(1)
		s.arrive()
		s.event(s.ch)
		s.ch.keep(context.Background(), s.w)
		s.is(byNobody)
	})
	t.Run("is woken", func(t *testing.T) {
		for name, wake := range map[string]func(s *scene, cancel func()){
			"by an event":      func(s *scene, _ func()) { s.event(s.ch); s.ch.wake() },
			"by its context":   func(_ *scene, cancel func()) { cancel() },
			"by the end":       func(s *scene, _ func()) { s.w.stop() },
			"by the channel's": func(s *scene, _ func()) { _ = s.ch.Close() },
		} {
			t.Run(name, func(t *testing.T) {
				s := newScene(t)
				s.waiter()
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				gone := make(chan struct{})
				go func() {
					s.ch.keep(ctx, s.w)
					close(gone)
				}()
				require.Eventually(t, func() bool { return s.ch.looking.Load() == s.w }, 30*time.Second,
					time.Millisecond)
				wake(s, cancel)
				<-gone
				require.NotEqual(t, byWaiter, s.w.keeper)
			})
		}
	})
}

// TestWatchTwoInChannel has two goroutines sleep in one channel whose CQ changes watches in
// between: each event wakes one of them.
func TestWatchTwoInChannel(t *testing.T) {
	for name, guest := range map[string]func(o *scene){
		"nobody keeps the other watch": func(o *scene) {
			require.False(t, o.sleeps(o.other))
			o.event(o.other)
			require.True(t, o.w.stepAside())
			o.awakes(o.other)
		},
		"a poller keeps the other watch": func(o *scene) {
			o.nobody()
			o.busyPolled()
		},
		"the reader keeps the other watch": func(*scene) {},
	} {
		t.Run(name, func(t *testing.T) {
			s, o := newScene(t), newScene(t)
			s.nobody()
			guest(o)
			got := make(chan error, 2)
			sleep := func() {
				_, err := s.ch.Wait(context.Background())
				got <- err
			}
			go sleep()
			require.Eventually(t, func() bool { return s.ch.looking.Load() == s.w }, 30*time.Second, time.Millisecond)
			s.ch.setWatch(s.w, o.w)
			go sleep()
			asleep.Until(t, 2, "usiw.(*channel).Wait", "usiw.TestWatchTwoInChannel")
			for range 2 {
				s.ch.notify(new(cq))
				select {
				case err := <-got:
					require.NoError(t, err)
				case <-time.After(30 * time.Second):
					require.FailNow(t, "nobody is woken")
				}
			}
		})
	}
}

// TestWatchPoller tests the transitions from the poller.
func TestWatchPoller(t *testing.T) {
	t.Run("goes on", func(t *testing.T) {
		s := newScene(t)
		s.busyPolled()
		for range 10 {
			s.arrive()
			s.polls(2)
			s.w.expire()
		}
		s.is(byPoller)
	})
	t.Run("stops", func(t *testing.T) {
		s := newScene(t)
		s.busyPolled()
		s.w.expire()
		s.is(byPoller)
		s.w.expire()
		s.is(byReader)
	})
	t.Run("is late", func(t *testing.T) {
		s := newScene(t)
		s.busyPolled()
		s.arrive()
		s.pass(2 * absence)
		s.polls(1)
		s.is(byReader)
		require.Zero(t, s.waiting)
	})
	t.Run("is late for a message of its own", func(t *testing.T) {
		s := newScene(t)
		s.busyPolled()
		s.message = true
		s.arrive()
		s.pass(2 * absence)
		s.polls(1)
		s.is(byPoller)
	})
	t.Run("is late, and does not receive all at once", func(t *testing.T) {
		s := newScene(t)
		s.busyPolled()
		s.message, s.rest = true, true
		s.arrive()
		s.pass(2 * absence)
		s.polls(2)
		s.is(byPoller)
		s.message, s.rest = false, false
		s.arrive()
		s.polls(1)
		s.is(byReader)
	})
	t.Run("is late for several", func(t *testing.T) {
		s := newScene(t)
		s.busyPolled()
		for range 3 {
			s.arrive()
		}
		s.pass(2 * absence)
		s.polls(1)
		require.EqualValues(t, 3*trust, s.w.doubt.Load())
	})
	t.Run("takes long to receive", func(t *testing.T) {
		s := newScene(t)
		s.busyPolled()
		for range 3 {
			s.slow = 2 * absence
			s.arrive()
			s.polls(1)
			s.slow = 0
			s.arrive()
			s.polls(1)
		}
		s.is(byPoller)
	})
	t.Run("is late for another goroutine's message", func(t *testing.T) {
		s := newScene(t)
		s.busyPolled()
		s.message, s.wakes = true, true
		s.arrive()
		s.pass(2 * absence)
		s.polls(1)
		s.is(byReader)
		require.EqualValues(t, trust, s.w.doubt.Load())
	})
	t.Run("stops, another goroutine's message has waited", func(t *testing.T) {
		s := newScene(t)
		s.busyPolled()
		s.message, s.wakes = true, true
		s.arrive()
		s.w.expire()
		s.w.expire()
		s.is(byReader)
		require.EqualValues(t, trust, s.w.doubt.Load())
	})
	t.Run("stops, a message of its own has waited", func(t *testing.T) {
		s := newScene(t)
		s.busyPolled()
		s.message = true
		s.arrive()
		s.w.expire()
		s.w.expire()
		s.is(byReader)
		require.LessOrEqual(t, s.w.doubt.Load(), int64(0))
	})
	t.Run("is late for nothing", func(t *testing.T) {
		s := newScene(t)
		s.busyPolled()
		s.pass(2 * absence)
		s.polls(1)
		s.is(byPoller)
	})
	t.Run("sleeps, the reader sleeps on the source", func(t *testing.T) {
		s := newScene(t)
		s.busyPolled()
		s.arrive()
		require.False(t, s.sleeps(s.ch))
		s.is(byReader)
		require.Zero(t, s.waiting, "what came in the quiet is not announced again")
	})
	t.Run("sleeps, the reader stands aside", func(t *testing.T) {
		s := newScene(t)
		s.nobody()
		s.busyPolled()
		require.True(t, s.sleeps(s.ch))
		s.is(byWaiter)
	})
	t.Run("recalled", func(t *testing.T) {
		s := newScene(t)
		s.busyPolled()
		s.arrive()
		s.w.recall()
		s.is(byReader)
		require.Zero(t, s.waiting)
	})
}

// TestWatchTrust: one of 1,024 arrivals may wait for the poller or waiter. If it has been in time
// for long, two in a row may.
func TestWatchTrust(t *testing.T) {
	s := newScene(t)
	late := func() {
		s.arrive()
		s.pass(2 * absence)
		s.polls(1)
	}
	for round := range 3 {
		s.busyPolled()
		late()
		s.is(byReader)
		for range trust { // received by the reader, or in time by the poller
			s.polls(busyPolls)
			require.Equal(t, byReader, s.w.keeper, "round %d", round)
			s.w.arrived(1)
		}
	}
	s.w.arrived(10 * credit)
	s.busyPolled()
	late()
	s.is(byPoller)
	late()
	s.is(byPoller)
	late()
	s.is(byReader)
}

// TestWatchAlwaysAway: a program that polls, and is away whenever something arrives, delays at most
// one of 1,000 arrivals.
func TestWatchAlwaysAway(t *testing.T) {
	s := newScene(t)
	const arrivals = 10_000
	late := 0
	for range arrivals {
		s.polls(2 * busyPolls)
		s.arrive()
		if s.w.keeper == byReader {
			a, _ := s.take()
			s.w.arrived(a.conns)
			continue
		}
		late++
		s.pass(2 * absence)
	}
	require.NotZero(t, late)
	require.LessOrEqual(t, late, arrivals/1000)
}

// TestWatchEnds stops a watch in every state: the reader returns, and a sleeping goroutine wakes.
func TestWatchEnds(t *testing.T) {
	for name, bring := range map[string]func(s *scene){
		"reader": func(*scene) {},
		"nobody": (*scene).nobody,
		"poller": (*scene).busyPolled,
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			bring(s)
			gone := make(chan error, 1)
			go func() { gone <- s.w.read() }()
			s.w.stop()
			s.w.stop()
			require.NoError(t, <-gone)
			require.False(t, s.silent)
			require.False(t, s.sleeps(s.ch))
			s.polls(3 * busyPolls)
			require.False(t, s.silent)
		})
	}
}

// follower is a context that counts its followers (context.AfterFunc).
type follower struct {
	context.Context
	done         chan struct{}
	began, ended int
}

func (f *follower) Done() <-chan struct{} { return f.done }

func (f *follower) AfterFunc(func()) (stop func() bool) {
	f.began++
	return func() bool { f.ended++; return true }
}

// TestWatchFollows: waits with the same context register with it once; a different context, or the
// end of the watch, cancels the registration.
func TestWatchFollows(t *testing.T) {
	newFollower := func() *follower {
		return &follower{Context: context.Background(), done: make(chan struct{})}
	}
	a, b, c := newFollower(), newFollower(), newFollower()
	s := newScene(t)
	s.nobody()
	wait := func(ctx context.Context) {
		require.True(t, s.sleeps(s.ch))
		s.event(s.ch)
		s.ch.keep(ctx, s.w)
		s.awakes(s.ch)
	}
	wait(a)
	wait(a)
	wait(context.Background())
	wait(a)
	require.Equal(t, []int{1, 0}, []int{a.began, a.ended})
	wait(b)
	require.Equal(t, []int{1, 1, 1, 0}, []int{a.began, a.ended, b.began, b.ended})
	s.w.stop()
	require.Equal(t, []int{1, 1, 1, 1}, []int{a.began, a.ended, b.began, b.ended})

	s = newScene(t)
	s.nobody()
	s.endless, s.between = true, func() {
		s.w.stop()
		require.Zero(t, c.ended, "it is the waiter's")
	}
	require.True(t, s.sleeps(s.ch))
	s.ch.keep(c, s.w)
	require.Equal(t, []int{1, 1}, []int{c.began, c.ended})
}

// newCQ creates a CQ in ch with a completion that has not been polled.
func (s *scene) newCQ(ch *channel) *cq {
	c := &cq{ctx: &vcontext{dev: new(device), events: queue.NewEvents(verbs.AsyncEvent.OfClosed)}, ch: ch, cap: 1}
	c.push(new(verbs.WC), false)
	return c
}

// TestWatchArmed counts the armed CQs, in the watch and in the channel, whichever watches they get
// and until they are destroyed.
func TestWatchArmed(t *testing.T) {
	s, o := newScene(t), newScene(t)
	c := s.newCQ(s.ch)
	armed := func(inS, inO, inChannel int32) {
		t.Helper()
		require.Equal(t, []int32{inS, inO, inChannel}, []int32{s.w.armed.Load(), o.w.armed.Load(), s.ch.armed.Load()})
	}
	require.NoError(t, c.ReqNotify(true))
	armed(0, 0, 0)
	c.setWatch(s.w)
	armed(1, 0, 1)
	require.NoError(t, c.ReqNotify(false))
	require.NoError(t, c.ReqNotify(true))
	armed(1, 0, 1)
	c.setWatch(o.w)
	armed(0, 1, 1)
	c.setWatch(o.w)
	armed(0, 1, 1)
	require.Equal(t, map[*watch]int{s.w: 1, o.w: 1}, s.ch.watches)
	c.setWatch(nil)
	armed(0, 0, 0)
	require.Equal(t, map[*watch]int{s.w: 1}, s.ch.watches)
	c.setWatch(s.w)
	armed(1, 0, 1)
	require.NoError(t, c.Destroy())
	armed(0, 0, 0)
}

// TestWatchReqNotify arms a CQ while nobody keeps the watch: the reader is recalled if a goroutine
// sleeps for the CQ, or will do so without keeping the watch.
func TestWatchReqNotify(t *testing.T) {
	s := newScene(t)
	c := s.newCQ(s.ch)
	c.setWatch(s.w)
	s.nobody()
	require.NoError(t, c.ReqNotify(false))
	s.is(byNobody)
	s.ch.sleepers++
	require.NoError(t, c.ReqNotify(false))
	s.is(byReader)
	s.ch.sleepers--

	s = newScene(t)
	c = s.newCQ(s.ch)
	c.setWatch(s.w)
	s.nobody()
	s.ch.setWatch(nil, newScene(t).w)
	require.NoError(t, c.ReqNotify(false))
	s.is(byReader)
}

// TestWatchJustArmed: the first empty poll after a CQ is armed receives nothing, because the
// program is about to sleep and receives then. Every other poll does.
func TestWatchJustArmed(t *testing.T) {
	s := newScene(t)
	c := s.newCQ(s.ch)
	c.setWatch(s.w)
	drives := func(receives bool) {
		t.Helper()
		s.arrive()
		c.Drive()
		require.Equal(t, receives, s.left() == 0)
		c.Drive()
		require.Zero(t, s.left())
	}
	drives(true)
	require.NoError(t, c.ReqNotify(false))
	drives(false)
	require.NoError(t, c.ReqNotify(false)) // it is already armed
	drives(true)

	s.ch.sleepers++ // a goroutine is asleep, so the program that arms need not go to sleep itself
	require.NoError(t, c.ReqNotify(false))
	c.mu.Lock()
	c.setArm(queue.Disarmed)
	c.mu.Unlock()
	require.NoError(t, c.ReqNotify(false))
	drives(true)
}

// TestWatchSleep: Sleep returns at once on a CQ that has a completion or has lost some.
func TestWatchSleep(t *testing.T) {
	s := newScene(t)
	c := s.newCQ(s.ch)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	require.NoError(t, c.Sleep(ctx, false))
	c.ring.Pop()
	c.overflow = true
	require.NoError(t, c.Sleep(ctx, false))
}

// TestWatchEvents: unread events of a CQ merge into one, and once the last CQ is gone the channel
// has none.
func TestWatchEvents(t *testing.T) {
	s := newScene(t)
	a, b := s.newCQ(s.ch), s.newCQ(s.ch)
	for range 2 {
		require.False(t, s.ch.notify(a))
		require.False(t, s.ch.notify(b))
		require.False(t, s.ch.notify(a))
		require.Equal(t, []*cq{a, b}, s.ch.queue)
		for range 2 {
			<-s.ch.ready // for the sleeping goroutine
			s.ch.mu.Lock()
			s.ch.next()
			s.ch.mu.Unlock()
		}
		require.Empty(t, s.ch.ready)
		require.Empty(t, s.ch.queue)
	}
}

// TestWatchJoined adds a connection, or those of another watch, to a watch that nobody keeps: a
// sleeping goroutine may have relied on the other watch's reader, or on none.
func TestWatchJoined(t *testing.T) {
	for name, join := range map[string]func(s *scene){
		"a connection": func(s *scene) {
			c := s.newCQ(s.ch)
			s.w.adopt(&conn{q: &qp{sendCQ: c, recvCQ: c}})
			require.Equal(s.t, 1, c.tied)
		},
		"a watch": func(s *scene) {
			o := newScene(s.t)
			require.NoError(s.t, s.w.move(o.w))
			require.True(s.t, o.w.over.Load())
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.nobody()
			join(s)
			s.is(byReader)
		})
	}
}
