// SPDX-License-Identifier: BSD-3-Clause

package usiw_test

import (
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/iwarp/ddp"
	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// maxStalled is the smallest value of Config.MaxStalled: room for about ten full batches, or four
// hundred small ones.
const maxStalled = 4 << 20

// stallNIC is a NIC whose stall account is monitored until the test ends, with a connection to an
// honest peer.
type stallNIC struct {
	*rawNIC
	mr     *verbs.MR
	honest *rawEnd
	peer   *rawPeer
	reads  uint32 // Reads of peer
	want   []byte // the contents of mr
	ends   []*rawEnd
	peers  []*rawPeer
}

func newStallNIC(t *testing.T) *stallNIC { return newStallNICOf(t, maxStalled) }

// newStallNICOf is newStallNIC with another limit.
func newStallNICOf(t *testing.T, limit int) *stallNIC {
	n := &stallNIC{rawNIC: newRawNIC(t,
		usiw.Config{Network: smallNetwork{}, MaxStalled: limit, PeerTimeout: time.Hour})}
	n.want = pattern(256<<10, 1)
	n.mr = n.region(n.pd, n.want, 0, rawAccess)
	n.honest, n.peer = n.passive(rawOpts{})
	stop, most := make(chan struct{}), make(chan int64)
	go func() {
		var high int64
		for {
			used, _, _ := n.nic.Stalled()
			high = max(high, used)
			select {
			case <-stop:
				most <- high
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		require.LessOrEqual(t, <-most, int64(limit))
	})
	return n
}

// add makes a connection to another peer.
func (n *stallNIC) add() *rawPeer {
	n.t.Helper()
	e, p := n.passive(rawOpts{cap: verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4}})
	n.ends, n.peers = append(n.ends, e), append(n.peers, p)
	return p
}

// whole returns a Read of the whole region.
func (n *stallNIC) whole(msn uint32) []byte {
	return rawRead(msn, rdmap.ReadRequest{SinkSTag: 7, Size: uint32(n.mr.Len()), SrcSTag: n.mr.RKey(),
		SrcTO: n.mr.Addr()})
}

// segment reads the next segment of the response to such a Read, of which got bytes have arrived
// before, and returns its length.
func (n *stallNIC) segment(p *rawPeer, got int) int {
	n.t.Helper()
	u := p.read()
	h, err := ddp.ParseTagged(u)
	require.NoError(n.t, err)
	require.EqualValues(n.t, got, h.TO)
	data := u[ddp.TaggedLen:]
	require.Equal(n.t, n.want[got:got+len(data)], data)
	require.Equal(n.t, h.Last, got+len(data) == len(n.want))
	return len(data)
}

// goesOn requires that the Reads of the honest peer are still answered.
func (n *stallNIC) goesOn() {
	n.t.Helper()
	n.reads++
	b := n.peer.encode(rawTagged(rdmap.OpWrite, n.mr.RKey(), n.mr.Addr(), n.want[:20000]))
	n.peer.write(b[:10000])
	n.peer.write(append(b[10000:], n.peer.encode(n.whole(n.reads))...))
	for got := 0; got < len(n.want); {
		got += n.segment(n.peer, got)
	}
}

// ended returns the connections that ended, and requires that the limit was the cause.
func (n *stallNIC) ended() (which []int) {
	n.t.Helper()
	for i, e := range n.ends {
		select {
		case <-e.id.Done():
		default:
			continue
		}
		which = append(which, i)
		for _, err := range []error{e.qp.Err(), e.id.Err()} {
			var le *verbs.LimitError
			require.ErrorAs(n.t, err, &le)
			require.Equal(n.t, "Config.MaxStalled", le.Name)
			require.EqualValues(n.t, maxStalled, le.Limit)
			require.Greater(n.t, le.Value, le.Limit)
		}
	}
	return which
}

// settles waits until the account matches what the connections hold and exceeds least.
func (n *stallNIC) settles(least int64) {
	n.t.Helper()
	var used, found int64
	require.Eventually(n.t, func() bool {
		used, found, _ = n.nic.Stalled()
		return used == found && used > least
	}, rawWait, time.Millisecond, "account %d, found %d", &used, &found)
}

// clears closes all peers and waits until nothing is held for them.
func (n *stallNIC) clears() {
	n.t.Helper()
	for i, e := range n.ends {
		if i%2 == 0 {
			require.NoError(n.t, e.id.Disconnect())
		}
		n.peers[i].close()
		within(n.t, rawWait, "the end", func() { <-e.id.Done() })
	}
	require.Eventually(n.t, func() bool {
		used, found, buffers := n.nic.Stalled()
		return used == 0 && found == 0 && buffers == 0
	}, rawWait, time.Millisecond)
}

// TestStalledReaders: 260 peers request much data, and read nothing, or a few bytes occasionally.
// The memory held for them is bounded, the connections whose data have waited longest end, and an
// honest peer is not affected.
func TestStalledReaders(t *testing.T) {
	n := newStallNIC(t)
	trickle := make([]byte, 2<<10)
	for i := range 260 {
		p := n.add()
		for msn := range uint32(8) {
			p.send(n.whole(msn + 1))
		}
		if i == 0 {
			n.settles(0) // the first peer's stall is the oldest
		}
		if i%10 == 0 {
			n.goesOn()
			for j := 0; j <= min(i, 10); j += 2 {
				_ = n.peers[j].conn.SetReadDeadline(time.Now().Add(rawWait))
				_, _ = io.ReadFull(n.peers[j].conn, trickle) // the connection may have been ended
			}
		}
	}
	n.settles(maxStalled / 2)
	n.goesOn()
	require.Equal(t, verbs.QPStateRTS, n.honest.qp.State(), "%v", n.honest.qp.Err())
	which := n.ended()
	t.Logf("%d were ended: %v", len(which), which)
	require.Contains(t, which, 0, "the first one, which trickles")
	require.Less(t, len(which), 10, "small batches leave room for the rest")
	require.Less(t, which[len(which)-1], 20, "of the oldest ones; neighbours fill their sockets in any order")
	n.clears()
}

// TestStalledTrickle: reading a few bytes does not make a peer's stall younger. Its data have
// waited longest, so its connection ends, and later ones do not.
func TestStalledTrickle(t *testing.T) {
	n := newStallNIC(t)
	const later = 3
	for range 1 + later {
		held, _, _ := n.nic.Stalled()
		p := n.add()
		require.NoError(t, p.conn.SetReadBuffer(16<<10)) // so that the sockets accept a small part of a batch
		p.send(n.whole(1), n.whole(2))
		n.settles(held)
	}
	qpn := n.ends[0].qp.Num()
	var before uint64
	var batch, waits int
	require.Eventually(t, func() bool { before, batch = n.nic.Batch(qpn); return batch > 0 }, rawWait, time.Millisecond)
	sent := before
	// a socket reports room only once a certain amount is free
	for taken := uint64(0); sent == before && taken < before; taken += 2 << 10 {
		n.peers[0].bytes(2 << 10)
		sent, _ = n.nic.Batch(qpn)
	}
	require.Eventually(t, func() bool { sent, waits = n.nic.Batch(qpn); return sent > before && waits > 0 }, rawWait,
		time.Millisecond)
	require.Less(t, sent, uint64(batch), "some of the batch is left")
	require.Equal(t, batch, waits, "it is the same one")
	require.Eventually(t, func() bool {
		n.nic.EvictOldest(1 + later)
		return len(n.ended()) > 0
	}, rawWait, time.Millisecond)
	require.Equal(t, []int{0}, n.ended())
	n.clears()
}

// TestStalledParts: 170 peers send most of a large FPDU, and then a few bytes occasionally.
func TestStalledParts(t *testing.T) {
	n := newStallNIC(t)
	most := rawFPDU(rawTagged(rdmap.OpWrite, n.mr.RKey(), n.mr.Addr(), make([]byte, 65000)), true)[:50000]
	const peers = 170
	for i := range peers {
		n.add().write(most)
		if i%10 == 0 {
			n.goesOn()
			for j := 70; j < i; j += 10 { // earlier ones keep receive buffers
				_, _ = n.peers[j].conn.Write(most[:1]) // the connection may have been ended
			}
		}
	}
	n.settles(maxStalled / 2)
	require.Eventually(t, func() bool { _, _, buffers := n.nic.Stalled(); return buffers == 64 }, rawWait,
		time.Millisecond)
	n.goesOn()
	require.Equal(t, verbs.QPStateRTS, n.honest.qp.State(), "%v", n.honest.qp.Err())
	least := peers - 64 - maxStalled/len(most)
	require.Eventually(t, func() bool { return len(n.ended()) >= least }, rawWait, time.Millisecond)
	which := n.ended()
	t.Logf("%d were ended: %v", len(which), which)
	require.Less(t, len(which), least+10)
	require.Contains(t, which, 70, "one that trickles")
	n.clears()
}

// TestStalledTogether: a peer that neither reads nor continues sending is evicted once, whichever
// of its two stalls is older.
func TestStalledTogether(t *testing.T) {
	n := newStallNIC(t)
	part := rawFPDU(rawTagged(rdmap.OpWrite, n.mr.RKey(), n.mr.Addr(), make([]byte, 65000)), true)[:50000]
	for i := range 120 {
		p := n.add()
		p.send(n.whole(1), n.whole(2))
		p.write(part)
		if i%10 == 0 {
			n.goesOn()
		}
	}
	n.settles(maxStalled / 2)
	n.goesOn()
	require.NotEmpty(t, n.ended())
	n.clears()
}

// TestStalledSlowly: many peers that are merely slow receive all their data. Full batches for all
// of them would need more than twice the limit. The limit leaves room for batches that are built
// concurrently before any of them is counted; on a busy machine these may be many.
func TestStalledSlowly(t *testing.T) {
	const limit = 4 * maxStalled
	n := newStallNICOf(t, limit)
	const peers = 150
	for range peers {
		n.add().send(n.whole(1))
	}
	n.settles(limit / 2)
	for got, left := make([]int, peers), peers; left > 0; {
		for i, p := range n.peers {
			if got[i] == len(n.want) {
				continue
			}
			if got[i] += n.segment(p, got[i]); got[i] == len(n.want) {
				left--
			}
		}
	}
	require.Empty(t, n.ended())
	n.clears()
}

// TestSmallBatches sends large payloads, for which small batches have the least room: copied or
// not, in one or several pieces, and with markers.
func TestSmallBatches(t *testing.T) {
	for _, markers := range []usiw.Policy{usiw.Off, usiw.On} {
		const size, most = 1 << 20, 4
		a, b := newRawNIC(t, usiw.Config{Markers: markers}), newRawNIC(t, usiw.Config{Markers: markers})
		t.Cleanup(a.nic.Crowd())
		x, y := join(a, b, verbs.QPCap{MaxSendSGE: most})
		from, to := x.random(size, 3), y.large(size)
		y.recv(make([]int, 2*most)...)
		for pieces := 1; pieces <= most; pieces++ {
			for _, length := range []int{size, 2000 * pieces} {
				var sgl []verbs.SGE
				for i := range pieces {
					sge, err := from.SGE(i*length/pieces, (i+1)*length/pieces-i*length/pieces)
					require.NoError(t, err)
					sgl = append(sgl, sge)
				}
				clear(to.Bytes())
				x.post(verbs.SendWR{Opcode: verbs.WRRDMAWriteWithImm, SGL: sgl, RemoteAddr: to.Addr(), RKey: to.RKey()})
				require.Equal(t, verbs.WCSuccess, x.sent().Status)
				require.EqualValues(t, length, y.received().ByteLen)
				require.Equal(t, from.Bytes()[:length], to.Bytes()[:length])
			}
		}
		clear(to.Bytes())
		y.post(verbs.SendWR{Opcode: verbs.WRRDMARead, SGL: []verbs.SGE{y.sge(to)}, RemoteAddr: from.Addr(),
			RKey: from.RKey()})
		require.Equal(t, verbs.WCSuccess, y.sent().Status)
		require.Equal(t, from.Bytes(), to.Bytes())
	}
}

func TestMaxStalledRange(t *testing.T) {
	for _, v := range []int{-1, 1, 4<<20 - 1, 1<<30 + 1} {
		_, err := usiw.New(usiw.Config{MaxStalled: v})
		require.ErrorIs(t, err, verbs.ErrInvalid)
		require.ErrorContains(t, err, fmt.Sprintf("Config.MaxStalled: %d is not from 4194304 to 1073741824", v))
	}
	for _, v := range []int{0, 4 << 20, 1 << 30} {
		nic, err := usiw.New(usiw.Config{MaxStalled: v})
		require.NoError(t, err)
		require.NoError(t, nic.Close())
	}
}
