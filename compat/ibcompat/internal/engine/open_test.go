// SPDX-License-Identifier: BSD-3-Clause

package engine

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/compat/ibcompat/internal/wire"
	"github.com/goverbs/goverbs/internal/regmem"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

const longLen = 5000

// crowd is two wrapped devices with connections between them. Each end at b has receives for long
// messages.
type crowd struct {
	*testing.T
	a, b     *verbs.Context
	from, to []*verbs.QP
	acq, bcq *verbs.CQ
	amr, bmr *verbs.MR
}

const receives = 1000

func newCrowd(t *testing.T, without verbs.OpSet, connections int) *crowd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := &crowd{T: t}
	open := func(name string) (vctx *verbs.Context, pd *verbs.PD, cq *verbs.CQ, mr *verbs.MR) {
		n, err := usiw.New(usiw.Config{Name: name, Without: without})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, n.Close()) })
		vctx, err = New(n.Device(), Config{Name: "ib:" + name}).Open()
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, vctx.CloseAll()) })
		pd, err = vctx.AllocPD()
		require.NoError(t, err)
		cq, err = vctx.CreateCQ(verbs.CQConfig{CQE: connections*receives + 64})
		require.NoError(t, err)
		mr, err = pd.AllocMR(receives*longLen, verbs.AccessLocalWrite)
		require.NoError(t, err)
		return vctx, pd, cq, mr
	}
	var apd, bpd *verbs.PD
	c.a, apd, c.acq, c.amr = open("a")
	c.b, bpd, c.bcq, c.bmr = open("b")
	ln, err := cm.Listen(ctx, "127.0.0.1:0", cm.Config{Context: c.b})
	require.NoError(t, err)
	defer func() { require.NoError(t, ln.Close()) }()
	for range connections {
		from, err := apd.CreateQP(
			verbs.QPConfig{SendCQ: c.acq, RecvCQ: c.acq, Cap: verbs.QPCap{MaxSendWR: 64, MaxRecvWR: 4}})
		require.NoError(t, err)
		to, err := bpd.CreateQP(
			verbs.QPConfig{SendCQ: c.bcq, RecvCQ: c.bcq, Cap: verbs.QPCap{MaxSendWR: 4, MaxRecvWR: receives}})
		require.NoError(t, err)
		id, err := cm.Resolve(ctx, ln.Addr().String(), cm.Config{Context: c.a})
		require.NoError(t, err)
		connected := make(chan error, 1)
		go func() { connected <- id.Connect(ctx, from, cm.ConnParam{}) }()
		req, err := ln.Accept(ctx)
		require.NoError(t, err)
		peer, err := req.Accept(ctx, to, cm.ConnParam{})
		require.NoError(t, err)
		require.NoError(t, <-connected)
		t.Cleanup(func() { require.NoError(t, id.Close()); require.NoError(t, peer.Close()) })
		c.from, c.to = append(c.from, from), append(c.to, to)
	}
	return c
}

// receive posts receives for everything that a connection may send.
func (c *crowd) receive(to *verbs.QP) {
	c.Helper()
	for i := range receives {
		sge, err := c.bmr.SGE(i*longLen, longLen)
		require.NoError(c, err)
		_, err = to.PostRecv([]verbs.RecvWR{{ID: uint64(i), SGL: []verbs.SGE{sge}}})
		require.NoError(c, err)
	}
}

// send sends a message for each receive of a connection. They arrive in order and undamaged.
func (c *crowd) send(from *verbs.QP, held func()) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), 2*time.Minute)
	defer cancel()
	sge, err := c.amr.SGE(0, longLen)
	require.NoError(c, err)
	for i := range receives {
		regmem.Place(c.amr.Bytes()[longLen-8:longLen], binary.BigEndian.AppendUint64(nil, uint64(i)))
		_, err := from.PostSend([]verbs.SendWR{verbs.Send(sge)})
		require.NoError(c, err)
		for _, cq := range []*verbs.CQ{c.acq, c.bcq} {
			var wcs [1]verbs.WC
			_, err := cq.Wait(ctx, wcs[:])
			require.NoError(c, err)
			require.NoError(c, wcs[0].Err())
			if cq == c.bcq {
				require.EqualValues(c, i, wcs[0].ID)
				require.EqualValues(c, longLen, wcs[0].ByteLen)
			}
		}
		var got [8]byte
		regmem.Fetch(got[:], c.bmr.Bytes()[(i+1)*longLen-8:][:8])
		require.EqualValues(c, i, binary.BigEndian.Uint64(got[:]))
		held()
	}
}

func contextOf(t *testing.T, c *verbs.Context) *vcontext {
	v, err := verbs.Own[*vcontext](c.Provider())
	require.NoError(t, err)
	return v
}

// TestOpenBounded checks that a thousand receives for long messages on each of several connections
// hold a bounded number of keys, and that everything sent arrives. A device that has used up its
// keys, or cannot open memory, receives long messages in Parts.
func TestOpenBounded(t *testing.T) {
	const connections = 4
	for _, l := range []struct {
		name    string
		without verbs.OpSet
		taken   int64 // keys in use by other QPs of the device
		most    int64 // keys left for these
	}{
		{"keys", 0, 0, connections * mostOpen},
		{"few keys left", 0, mostKeys - 100, 100},
		{"no keys left", 0, mostKeys, 0},
		{"cannot", verbs.MakeOpSet(verbs.OpBindMW), 0, 0},
	} {
		t.Run(l.name, func(t *testing.T) {
			c := newCrowd(t, l.without, connections)
			v := contextOf(t, c.b)
			v.keyed.Store(l.taken)
			for _, to := range c.to {
				c.receive(to)
			}
			var most int64
			for _, from := range c.from {
				c.send(from, func() { most = max(most, v.keyed.Load()-l.taken) })
			}
			require.LessOrEqual(t, most, l.most)
			require.Equal(t, l.most > 0, most > 0)
			for _, qp := range append(c.from, c.to...) {
				require.NoError(t, qp.Close())
			}
			require.Equal(t, l.taken, v.keyed.Load())
			require.Zero(t, v.segments.Load())
			require.Zero(t, contextOf(t, c.a).segments.Load())
		})
	}
}

// TestOpenFlushed checks that unused receives release their keys when the QP is flushed, and with
// them memory windows of the RNIC, whose number equals that of the keys.
func TestOpenFlushed(t *testing.T) {
	nic := usiw.Config{Name: "below", MaxMW: 3}
	n, err := usiw.New(nic)
	require.NoError(t, err)
	defer func() { require.NoError(t, n.Close()) }()
	own := newPeer(t, New(n.Device(), Config{Name: "ib:below"}))
	v := contextOf(t, own.ctx)
	q, err := verbs.Own[*qp](own.qp.Provider())
	require.NoError(t, err)
	for range 4 { // more often than there may be windows
		require.NoError(t, own.qp.Modify(
			verbs.QPAttr{State: verbs.QPStateInit, PortNum: 1, AccessFlags: verbs.AccessRemoteWrite},
			verbs.QPAttrState|verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrAccessFlags))
		sge, err := own.mr.SGE(0, longLen)
		require.NoError(t, err)
		for range 3 {
			_, err = own.qp.PostRecv([]verbs.RecvWR{{SGL: []verbs.SGE{sge}}})
			require.NoError(t, err)
		}
		q.mu.Lock()
		for i := range 3 {
			var a wire.Advert
			require.True(t, q.advert(q.recvs.At(i), &a, 1<<10))
			require.Len(t, a.Segments, 1)
		}
		require.EqualValues(t, 3, v.keyed.Load())
		require.Equal(t, 3, q.opened)
		q.mu.Unlock()
		require.NoError(t, own.qp.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPAttrState))
		require.Zero(t, v.keyed.Load())
		require.Zero(t, q.opened)
	}
}

// TestAdvertsBounded checks that whatever a peer advertises, what is retained is bounded: as many
// receives as the protocol allows, with a few bytes each, and some of their segments. Messages for
// the others are sent in Parts. One receive more ends the connection.
func TestAdvertsBounded(t *testing.T) {
	for _, full := range []bool{false, true} {
		t.Run(fmt.Sprintf("full=%v", full), func(t *testing.T) {
			raw, own := newPeersOf(t, wire.MaxSlots)
			v := contextOf(t, own.ctx)
			q, err := verbs.Own[*qp](own.qp.Provider())
			require.NoError(t, err)
			if full { // all in use by other QPs of the device
				v.segments.Store(mostDeviceSegments)
			}
			segments := make([]wire.Segment, wire.MaxSGE)
			for i := range segments {
				segments[i] = wire.Segment{Addr: 1 << 20, RKey: 77, Length: 4000}
			}
			const each = 16
			advert := (&wire.Advert{Total: 4000 * wire.MaxSGE, Segments: segments}).Append(nil)
			for first := uint64(0); first < wire.MaxTold; first += each {
				h := wire.Header{Kind: wire.Ack, Adverts: each, First: first}
				raw.say(append(h.Append(nil), bytes.Repeat(advert, each)...))
				require.Eventually(t, func() bool { // it has taken the message, and its slot is free
					q.mu.Lock()
					defer q.mu.Unlock()
					return uint64(q.adverts.Len()) == first+each
				}, 30*time.Second, 100*time.Microsecond)
				var wcs [4]verbs.WC
				_, err := raw.cq.Poll(wcs[:])
				require.NoError(t, err)
			}
			held := v.segments.Load()
			if full {
				require.EqualValues(t, mostDeviceSegments, held)
				sge, err := own.mr.SGE(0, 10*4096) // in more Parts than the peer allows at once
				require.NoError(t, err)
				_, err = own.qp.PostSend([]verbs.SendWR{verbs.Send(sge)})
				require.NoError(t, err)
				for raw.hears(1)[0].Kind != wire.Part { // sent before
				}
			} else {
				require.EqualValues(t, mostSegments, held)
			}
			require.NoError(t, own.qp.Err())
			h := wire.Header{Kind: wire.Ack, Adverts: 1, First: wire.MaxTold}
			raw.say((&wire.Advert{Total: 1}).Append(h.Append(nil)))
			select {
			case <-own.id.Done():
			case <-time.After(30 * time.Second):
				require.FailNow(t, "the connection goes on")
			}
			var violated *ProtocolError
			require.ErrorAs(t, own.qp.Err(), &violated)
			require.ErrorContains(t, violated, "4097 receives")
			require.NoError(t, own.qp.Close())
			require.Equal(t, full, v.segments.Load() != 0)
		})
	}
}
