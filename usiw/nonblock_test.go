// SPDX-License-Identifier: BSD-3-Clause

package usiw_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/iwarp/ddp"
	"github.com/goverbs/goverbs/internal/iwarp/mpa"
	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// stalled makes a connection whose peer has stopped reading, and fills it: the send queue of 32
// Sends of 1 MiB is full.
func stalled(n *rawNIC, request mpa.Frame) (e *rawEnd, p *rawPeer, mr *verbs.MR, posted int) {
	n.t.Helper()
	e, p = n.passive(rawOpts{cap: verbs.QPCap{MaxSendWR: 32}, frame: &request})
	mr = e.large(1 << 20)
	// The socket buffers may still grow for a moment. A sender that is not waiting for room is
	// about to fill them.
	for still := 0; still < 10; time.Sleep(20 * time.Millisecond) {
		more := e.flood(mr, 1000)
		_, waits := n.nic.Batch(e.qp.Num())
		if still++; more > 0 || waits == 0 {
			still = 0
		}
		posted += more
		require.Less(n.t, posted, 1000, "the queue does not fill up")
	}
	require.GreaterOrEqual(n.t, posted, 32)
	return e, p, mr, posted
}

// TestStalledPeer posts to a peer that has stopped reading. Nothing blocks, requests stay pending
// and the queue fills up, while the other direction and other connections continue. Everything
// completes once the peer reads again.
func TestStalledPeer(t *testing.T) {
	n := newRawNIC(t, usiw.Config{})
	e, p, mr, posted := stalled(n, rawRequest())
	other, q := n.passive(rawOpts{})
	alive := n.mr(64, 0x1000, rawAccess)

	// The requests of a list are accepted while there is room, and the error names the limit.
	began := time.Now()
	k, err := e.qp.PostSend([]verbs.SendWR{{Opcode: verbs.WRSend}, {Opcode: verbs.WRSend}})
	require.Less(t, time.Since(began), rawWait)
	require.ErrorIs(t, err, verbs.ErrQueueFull)
	require.Less(t, k, 2)
	require.Zero(t, k)

	// The requests that the sockets accepted are complete, in order. The others are pending, and
	// none fails.
	done := 0
	var wcs [64]verbs.WC
	for {
		m, err := e.scq.Poll(wcs[:])
		require.NoError(t, err)
		if m == 0 {
			break
		}
		for _, wc := range wcs[:m] {
			require.Equal(t, verbs.WCSuccess, wc.Status)
			require.EqualValues(t, done, wc.ID)
			done++
		}
	}
	require.Equal(t, posted-32, done)

	// The peer's messages still arrive.
	buf := e.recv(8)[0]
	p.send(rawTagged(rdmap.OpWrite, alive.RKey(), alive.Addr(), pattern(64, 1)), rawSend(1, eight))
	require.Equal(t, verbs.WC{ID: 1, Opcode: verbs.WCRecv, ByteLen: 8, QPNum: e.qp.Num()}, e.received())
	require.Equal(t, eight, buf)
	require.Equal(t, pattern(64, 1), alive.Bytes())
	// The peer's requests are answered when there is room. That they cannot be answered yet delays
	// nothing else.
	e.recv(0)
	p.send(rawRead(1, fetch(alive, 0, 64)), rawSend(2, nil), rawAtomic(2, add(e.words(0, 1), 0)))
	for i := uint32(1); i <= 5; i++ {
		q.alive(alive)
		other.recv(8)
		q.send(rawSend(i, eight))
		require.Equal(t, verbs.WCSuccess, other.received().Status)
	}
	require.Equal(t, verbs.QPStateRTS, e.qp.State())
	e.idle(e.scq)

	// The peer reads again.
	sends, answers := 0, 0
	for got := 0; sends < posted || answers < 2; {
		u := p.read()
		if ddp.IsTagged(u[0]) {
			answers++
			require.Zero(t, got, "an answer inside of a message")
			continue
		}
		h, err := ddp.ParseUntagged(u)
		require.NoError(t, err)
		if h.QN == ddp.QNAtomicResponse {
			answers++
			continue
		}
		require.EqualValues(t, sends+1, h.MSN)
		require.EqualValues(t, got, h.MO)
		if got += len(u) - ddp.UntaggedLen; h.Last {
			require.Equal(t, mr.Len(), got)
			got, sends = 0, sends+1
		}
	}
	for ; done < posted; done++ {
		wc := e.sent()
		require.Equal(t, verbs.WCSuccess, wc.Status)
		require.EqualValues(t, done, wc.ID)
	}
}

// TestStalledPeerTimeout gives up a peer that accepts nothing for PeerTimeout.
func TestStalledPeerTimeout(t *testing.T) {
	t.Parallel()
	const timeout = 2 * time.Second
	n := newRawNIC(t, usiw.Config{PeerTimeout: timeout, CloseTimeout: 200 * time.Millisecond})
	_, q := n.passive(rawOpts{})
	alive := n.mr(64, 0x1000, rawAccess)
	began := time.Now() // nothing waited before this
	e, _, _, posted := stalled(n, rawRequest())
	e.recv(8)
	for time.Since(began) < timeout*3/4 {
		q.alive(alive)
		if state := e.qp.State(); time.Since(began) < timeout {
			require.Equal(t, verbs.QPStateRTS, state, "given up before PeerTimeout")
		}
		time.Sleep(10 * time.Millisecond)
	}
	e.finished()
	require.Less(t, time.Since(began), timeout+rawWait)
	require.ErrorIs(t, e.qp.Err(), syscall.ETIMEDOUT)
	ev := e.event()
	require.Equal(t, verbs.EventQPFatal, ev.Type)
	require.ErrorIs(t, ev.Err, syscall.ETIMEDOUT)
	require.Less(t, e.sendsDone(posted), posted)
	require.Equal(t, verbs.WCWRFlushErr, e.received().Status)
	// The other connection was idle for longer than that, which is no reason to give it up.
	time.Sleep(timeout / 4)
	q.alive(alive)
}

// TestStalledPeerSlow does not give up a peer that occasionally accepts a little.
func TestStalledPeerSlow(t *testing.T) {
	t.Parallel()
	const timeout = 3 * time.Second // a busy machine may delay this test's reads
	n := newRawNIC(t, usiw.Config{PeerTimeout: timeout, CloseTimeout: 200 * time.Millisecond})
	e, p := n.passive(rawOpts{cap: verbs.QPCap{MaxSendWR: 32}})
	require.NoError(t, p.conn.SetReadBuffer(1<<16))
	e.flood(e.large(1<<20), 1000)
	began := time.Now()
	for time.Since(began) < 2*timeout {
		p.bytes(128 << 10)
		time.Sleep(timeout / 20)
	}
	require.Equal(t, verbs.QPStateRTS, e.qp.State(), "%v", e.qp.Err())
}

// TestStalledPeerReads: a peer sends as many Reads as were agreed on and does not read the
// responses. The NIC's own requests, and other connections, continue.
func TestStalledPeerReads(t *testing.T) {
	n := newRawNIC(t, usiw.Config{CloseTimeout: 200 * time.Millisecond})
	e, p := n.passive(rawOpts{})
	_, q := n.passive(rawOpts{})
	alive := n.mr(64, 0x1000, rawAccess)
	mr := e.large(4 << 20)
	for msn := uint32(1); msn <= 16; msn++ {
		p.send(rawRead(msn, fetch(mr, 0, 4<<20)))
	}
	// Posts are accepted, and so are messages of the peer.
	for i := range 64 {
		began := time.Now()
		e.post(verbs.SendWR{ID: uint64(i), Opcode: verbs.WRSend, SGL: []verbs.SGE{e.sge(alive)}})
		require.Less(t, time.Since(began), rawWait)
		e.recv(8)
		p.send(rawSend(uint32(i+1), eight))
		require.Equal(t, verbs.WCSuccess, e.received().Status)
		q.alive(alive)
	}
	require.Equal(t, verbs.QPStateRTS, e.qp.State())
	within(t, 1200*time.Millisecond, "ID.Close", func() { require.NoError(t, e.id.Close()) })
	e.sendsDone(64)
}

// TestStalledPeerClose closes connections whose peer has stopped reading, in every possible way.
func TestStalledPeerClose(t *testing.T) {
	t.Parallel()
	n := newRawNIC(t, usiw.Config{CloseTimeout: 200 * time.Millisecond})
	for name, end := range map[string]func(e *rawEnd) error{
		"ID.Close":   func(e *rawEnd) error { return e.id.Close() },
		"Disconnect": func(e *rawEnd) error { return e.id.Disconnect() },
		"Modify": func(e *rawEnd) error {
			return e.qp.Modify(verbs.QPAttr{State: verbs.QPStateErr},
				verbs.QPAttrState)
		},
		"Drain":        func(e *rawEnd) error { return e.qp.Drain(soon(e.t)) },
		"the peer":     nil,
		"MR.Close":     nil,
		"the peer RST": nil,
	} {
		t.Run(name, func(t *testing.T) {
			e, p, mr, posted := stalled(n.as(t), rawRequest())
			switch name {
			case "the peer":
				p.close()
				e.finished()
			case "the peer RST":
				p.reset()
				e.finished()
			case "MR.Close":
				// Without CRC the NIC refers to data in the region. They cannot be sent, so the
				// connection ends (Config.DeregTimeout).
				n := newRawNIC(t, usiw.Config{CRC: usiw.Off, CloseTimeout: 200 * time.Millisecond,
					DeregTimeout: 200 * time.Millisecond})
				request := rawRequest()
				request.CRC = false
				e, _, mr, posted = stalled(n, request)
				within(t, 1200*time.Millisecond, name, func() { require.NoError(t, mr.Close()) })
				e.finished()
			default:
				within(t, 1200*time.Millisecond, name, func() { require.NoError(t, end(e)) })
				require.Equal(t, verbs.QPStateErr, e.qp.State())
			}
			for i, failed := 0, false; i < posted; i++ {
				wc := e.sent()
				require.EqualValues(t, i, wc.ID)
				failed = failed || wc.Status != verbs.WCSuccess
				require.Equal(t, failed, wc.Status != verbs.WCSuccess, "a success behind a failure")
			}
		})
	}
}
