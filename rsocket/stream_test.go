// SPDX-License-Identifier: BSD-3-Clause

package rsocket

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// wire carries one direction of a stream between an outbound and an inbound, in memory: messages in
// order, entries before the messages that announce them.
type wire struct {
	t   *testing.T
	in  inbound
	out outbound

	data    []uint32 // data messages that have not arrived
	grants  []wireGrant
	buffer  []byte // the receiver's
	sent    int    // bytes
	read    int
	base    uint64
	posted  int   // posted and not freed
	sending []run // incomplete messages in the send buffer
}

type wireGrant struct {
	limit   uint16
	publish bool
	e       entry
}

// newWire returns a wire whose buffers can double the given number of times.
func newWire(t *testing.T, half int, credits uint16, size, doublings int, iwarp bool) *wire {
	w := &wire{t: t, base: 1 << 32, buffer: make([]byte, 2*half<<doublings)}
	w.in.init(half, half<<doublings, credits, 0)
	w.out.init(&connData{credits: credits, buffer: entry{addr: w.base, key: 1, length: uint32(half)}}, iwarp, size,
		size<<doublings)
	w.grant()
	return w
}

// nth returns the byte at a position of the stream.
func nth(i int) byte { return byte(i*i>>3 ^ i) }

// send sends up to n bytes as one message and reports whether it could.
func (w *wire) send(n int) bool {
	w.out.rewind()
	from, room := w.out.room()
	if n = min(n, room); n == 0 {
		return false
	}
	w.fill(from, n)
	to := w.out.take(n)
	must(w.t, n == int(to.length), "length")
	at := int(to.addr - w.base)
	must(w.t, at+n <= len(w.buffer), "inside the buffer, in one run")
	for i := range n {
		w.buffer[at+i] = nth(w.sent + i)
	}
	w.sent += n
	w.data = append(w.data, uint32(n))
	w.sending = append(w.sending, run{from, n})
	return true
}

// fill checks that a message of n bytes at offset from of the send buffer overwrites no incomplete
// message. It checks the oldest ones, which are next in the ring.
func (w *wire) fill(from, n int) {
	must(w.t, from >= 0 && from+n <= w.out.top, "inside the send buffer")
	for _, m := range w.sending[:min(len(w.sending), 16)] {
		must(w.t, from+n <= m.at || m.at+m.n <= from, "bytes that are still to be sent are overwritten")
	}
}

// run is a part of a buffer.
type run struct{ at, n int }

// complete frees the oldest message in the send buffer.
func (w *wire) complete() bool {
	if len(w.sending) == 0 {
		return false
	}
	w.out.free(w.sending[0].n)
	w.sending = w.sending[1:]
	return true
}

func (w *wire) arrive() bool {
	if len(w.data) == 0 {
		return false
	}
	must(w.t, w.in.data(w.data[0]) == nil, "data refused")
	w.data = w.data[1:]
	w.check()
	return true
}

func (w *wire) recv(n int) bool {
	at, run := w.in.run()
	if n = min(n, run); n == 0 {
		return false
	}
	for i := range n {
		must(w.t, nth(w.read+i) == w.buffer[at+i], "wrong byte")
	}
	w.read += n
	w.in.consume(n)
	w.grant()
	w.check()
	return true
}

func (w *wire) grant() {
	for {
		due, publish := w.in.grantDue()
		if !due {
			return
		}
		var e entry
		if publish {
			at, n := w.in.publish()
			e = entry{addr: w.base + uint64(at), key: 1, length: uint32(n)}
		}
		w.grants = append(w.grants, wireGrant{w.in.grant(), publish, e})
	}
}

func (w *wire) granted() bool {
	if len(w.grants) == 0 {
		return false
	}
	g := w.grants[0]
	w.grants = w.grants[1:]
	must(w.t, w.out.grant(uint32(g.limit)|uint32(w.read%2)<<16) == nil, "bit 16 does not count")
	if g.publish {
		must(w.t, w.out.wanted() && w.out.publish(g.e) == nil, "entry")
	}
	return true
}

// check checks the invariants.
func (w *wire) check() {
	in := &w.in
	must(w.t, in.half <= in.top, "the size of the ring")
	must(w.t, in.unread+in.left+in.spare*in.half+in.freed == 2*in.half, "the bytes of the buffer")
	must(w.t, in.received-in.consumed <= in.granted-in.consumed, "received and granted")
	must(w.t, in.granted-in.consumed <= in.credits, "granted")
	must(w.t, in.count <= int(in.credits), "lengths")
}

// must is a require.True for conditions that are checked a million times.
func must(t *testing.T, ok bool, what string) {
	if !ok {
		t.Helper()
		t.Fatal(what)
	}
}

// TestStreamModel takes random steps on both sides, with buffers and credits of every size, for
// more than 65,536 messages in total; nothing may be lost, misplaced or stuck.
func TestStreamModel(t *testing.T) {
	for seed := range uint64(24) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		half, credits, size := 1+rnd.IntN(1<<rnd.IntN(13)), uint16(16+rnd.IntN(1<<rnd.IntN(16))),
			1+rnd.IntN(1<<rnd.IntN(14))
		if credits > maxQueue {
			credits = maxQueue
		}
		doublings := rnd.IntN(4)
		w := newWire(t, half, credits, size, doublings, seed%2 == 0)
		steps := []func() bool{
			func() bool { return w.send(1 + rnd.IntN(1<<rnd.IntN(12))) },
			func() bool { return w.send(1) },
			w.complete, w.arrive, w.granted,
			func() bool { return w.recv(1 + rnd.IntN(1<<rnd.IntN(12))) },
		}
		for range 10_000 {
			steps[rnd.IntN(len(steps))]()
		}
		for progress := true; progress; {
			progress = false
			for _, f := range []func() bool{w.complete, w.arrive, w.granted, func() bool { return w.recv(1 << 20) }} {
				for f() {
					progress = true
				}
			}
		}
		require.Equal(t, w.sent, w.read, "seed %d", seed)
		require.True(t, w.send(1), "seed %d: when all has been read, more can be sent", seed)
	}
}

// TestRingsGrow: a ring of 2,000 bytes that may grow to 16,000 grows if the peer sends large
// messages, or more than the ring holds before the program reads, but not if the program keeps up
// with small messages.
func TestRingsGrow(t *testing.T) {
	for _, c := range []struct {
		name          string
		message       int
		ahead         int // messages in flight before one is read
		recvd, posted int // the final sizes of the rings
	}{
		{"large messages", 1 << 20, 1, 16000, 16000},
		{"a reader that is late", 300, 1 << 20, 16000, 2000},
		{"small messages", 300, 1, 2000, 2000},
		{"halves", 500, 2, 2000, 2000},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWire(t, 1000, 100, 2000, 3, false)
			for range 200 {
				for n := 0; n < c.ahead && w.send(c.message); n++ {
					if c.message < 1000 {
						w.complete()
					}
				}
				for w.arrive() || w.complete() {
				}
				for w.recv(1<<20) || w.granted() {
				}
			}
			require.Equal(t, w.sent, w.read)
			require.Equal(t, c.recvd, 2*w.in.half)
			require.Equal(t, c.posted, w.out.size)
		})
	}
}

// TestRewind: a sender that is never far ahead uses only the start of its ring.
func TestRewind(t *testing.T) {
	w := newWire(t, 1000, 100, 2000, 0, false)
	for range 100 {
		from, _ := w.out.room()
		require.Less(t, from, 200)
		require.True(t, w.send(100))
		for w.arrive() || w.complete() || w.recv(1<<20) || w.granted() {
		}
	}
}

// TestFirstSizes: buffers start at the size of librdmacm's and reach their full size by doubling.
func TestFirstSizes(t *testing.T) {
	for buffer, first := range map[int]int{4096: 4096, 10_002: 10_002, 131072: 131072, 131074: 131074, 262144: 131072,
		1 << 20: 131072, 3 << 20: 196608, 600_000: 150_000, 524_290: 524_290, 1 << 30: 131072} {
		require.Equal(t, first, 2*firstHalf(buffer), buffer)
	}
	require.Equal(t, 300_001, firstSize(300_001))
	require.Equal(t, 131072, firstSize(1<<20))
	require.Equal(t, 150_000, firstSize(300_000))
}

// TestSequenceWraps: message numbers and limits pass 65,535 with every number of credits.
func TestSequenceWraps(t *testing.T) {
	for _, credits := range []uint16{16, 384, 32768, 40000, maxQueue} {
		w := newWire(t, 1<<20, credits, 1<<20, 0, false)
		for range 70_000 {
			for !w.send(1) {
				for w.complete() || w.arrive() || w.recv(1<<21) {
				}
				must(t, w.granted(), "no grant is on its way")
			}
		}
		for w.arrive() || w.recv(1<<21) {
		}
		require.Equal(t, 70_000, w.read)
		require.Equal(t, uint16(70_000%65536), w.in.received)
	}
}

func TestInboundRefuses(t *testing.T) {
	fresh := func() *inbound {
		in := new(inbound)
		in.init(100, 100, 16, 2)
		return in
	}
	requireViolation(t, fresh().data(0), EmptyData)
	requireViolation(t, fresh().data(101), TooMuchData)
	requireViolation(t, fresh().data(1<<29-1), TooMuchData)
	requireViolation(t, fresh().mapping(2), BadIndex)
	in := fresh()
	require.NoError(t, in.data(60))
	requireViolation(t, in.data(41), TooMuchData) // beyond the end of the entry, although the other half is free
	require.NoError(t, in.data(40))
	requireViolation(t, in.data(1), TooMuchData) // the second half is not published
	require.True(t, func() bool { due, publish := in.grantDue(); return due && publish }())
	at, n := in.publish()
	require.Equal(t, []int{100, 100}, []int{at, n})
	in.grant()
	require.NoError(t, in.data(100))
	in = fresh()
	for range 16 {
		require.NoError(t, in.data(1))
	}
	requireViolation(t, in.data(1), Uncredited)
	requireViolation(t, in.mapping(0), Uncredited)
	in = fresh()
	in.ended = true
	requireViolation(t, in.data(1), DataAfterEnd)
}

// TestMappingsAreConsumed: a mapping consumes a credit, which is returned. 1,000 of them do not
// block the stream.
func TestMappingsAreConsumed(t *testing.T) {
	var in inbound
	in.init(100, 100, 16, 1)
	in.publish()
	in.grant()
	limit := in.granted
	for i := range 1000 {
		require.NoError(t, in.mapping(0), i)
		if due, _ := in.grantDue(); due {
			limit = in.grant()
		}
	}
	require.Greater(t, limit, uint16(1000))
}

func TestOutboundRefuses(t *testing.T) {
	var o outbound
	peer := connData{credits: 100, buffer: entry{1, 1, 1000}}
	o.init(&peer, false, 4096, 4096)
	require.NoError(t, o.grant(100), "the same again")
	requireViolation(t, o.grant(99), CreditsTakenBack)
	requireViolation(t, o.grant(101), CreditsTakenBack) // nothing can have been consumed
	for range 10 {
		o.take(1)
	}
	require.NoError(t, o.grant(110))
	requireViolation(t, o.grant(109), CreditsTakenBack)
	requireViolation(t, o.grant(111), CreditsTakenBack)
	requireViolation(t, o.publish(entry{1, 1, 0}), BadMemory)
	requireViolation(t, o.publish(entry{^uint64(0), 1, 2}), BadMemory)
	o.init(&peer, true, 4096, 4096)
	require.EqualValues(t, maxMargin, o.margin)
	for range 100 - maxMargin {
		require.True(t, o.credit())
		o.take(1)
	}
	require.False(t, o.credit(), "the margin is left")
}

// FuzzCredits: whatever numbers a peer sends, the limit never decreases and never exceeds the
// maximum.
func FuzzCredits(f *testing.F) {
	f.Add(uint16(16), []byte{1, 1, 0, 16, 2, 1, 255, 255})
	f.Add(uint16(65000), []byte{1, 0, 0, 16, 2, 1, 255, 255})
	f.Fuzz(func(t *testing.T, credits uint16, script []byte) {
		if credits == 0 {
			return
		}
		var o outbound
		o.init(&connData{credits: credits, buffer: entry{0, 1, 1<<32 - 1}}, false, 1<<20, 1<<20)
		sent, limit := 0, int(credits) // without wrapping
		for len(script) >= 3 {
			value := uint32(script[1])<<8 | uint32(script[2])
			if script[0]%2 == 0 {
				for range value {
					if !o.credit() {
						require.Equal(t, limit, sent)
						break
					}
					o.take(1)
					o.free(1)
					sent++
					must(t, sent <= limit, "sent beyond the limit")
				}
			} else {
				// The possible limit with these 16 bits, if there is one: not below the old limit
				// and not above sent + credits.
				want := -1
				for l := limit; l <= sent+int(credits); l++ {
					if uint32(l)&0xffff == value {
						want = l
						break
					}
				}
				err := o.grant(value)
				require.Equal(t, want >= 0, err == nil, "limit %#x, sent %d, limit was %d, credits %d", value, sent,
					limit, credits)
				if err == nil {
					limit = want
				}
			}
			script = script[3:]
		}
	})
}

// FuzzInbound: whatever messages arrive, the state stays consistent, and refused messages have no
// effect.
func FuzzInbound(f *testing.F) {
	f.Add(uint16(100), uint16(16), []byte{0, 0, 60, 0, 0, 40, 4, 0, 50, 0, 0, 100})
	f.Fuzz(func(t *testing.T, half, credits uint16, script []byte) {
		if half == 0 || credits == 0 || credits > maxQueue {
			return
		}
		w := &wire{t: t}
		w.in.init(int(half), 4*int(half), credits, 3)
		for len(script) >= 3 {
			value := uint32(script[1])<<8 | uint32(script[2])
			before := w.in
			var err error
			switch script[0] % 4 {
			case 0:
				err = w.in.data(value)
			case 1:
				err = w.in.mapping(value)
			case 2:
				if n := min(int(value), w.in.unread); n > 0 {
					w.in.consume(n)
				}
			case 3:
				if due, publish := w.in.grantDue(); due {
					if publish {
						w.in.publish()
					}
					w.in.grant()
				}
			}
			if err != nil {
				require.ErrorIs(t, err, ErrProtocol)
				before.lens, w.in.lens = nil, nil
				require.Equal(t, before, w.in)
				return
			}
			w.check()
			script = script[3:]
		}
	})
}

// TestSendQueue: a writer that finds no room always has a completion to wait for.
func TestSendQueue(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for _, depth := range []int{16, 17, 384} {
		var q sendQueue
		q.init(depth)
		var due []bool // for each posted message, whether it is signalled
		used, buffer := 0, 4096
		for range 10_000 {
			n := rnd.IntN(buffer/4 + 1)
			for q.free < 2+controlRoom || used+n > buffer {
				first := 0
				for first < len(due) && !due[first] {
					first++
				}
				must(t, first < len(due), "no completion will come")
				used -= q.pop()
				due = due[first+1:]
			}
			due = append(due, q.push(1+rnd.IntN(2), n, buffer, false))
			used += n
		}
	}
}
