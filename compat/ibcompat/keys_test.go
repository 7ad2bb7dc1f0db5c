// SPDX-License-Identifier: BSD-3-Clause

package ibcompat_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/compat/ibcompat"
	"github.com/goverbs/goverbs/compat/ibcompat/internal/wire"
	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/internal/regmem"
	"github.com/goverbs/goverbs/verbs"
)

// long is a receive for a message that may exceed a slot, in the middle of a region without remote
// rights.
type long struct {
	mr  *verbs.MR
	sge verbs.SGE
}

const longLen = 8192

func (e *end) long() long {
	e.Helper()
	mr, err := e.pd.AllocMR(3*longLen, verbs.AccessLocalWrite)
	require.NoError(e, err)
	e.Cleanup(func() { require.NoError(e, mr.Close()) })
	regmem.Place(mr.Bytes(), bytes.Repeat([]byte{0xee}, 3*longLen))
	sge, err := mr.SGE(longLen, longLen)
	require.NoError(e, err)
	return long{mr, sge}
}

func (l long) posted(e *end, id uint64) {
	e.Helper()
	_, err := e.qp.PostRecv([]verbs.RecvWR{{ID: id, SGL: []verbs.SGE{l.sge}}})
	require.NoError(e, err)
}

// now returns the current contents of the memory.
func (l long) now() []byte {
	b := make([]byte, 3*longLen)
	regmem.Fetch(b, l.mr.Bytes())
	return b
}

// advertised returns the adverts of the next messages, until there are n of them.
func (r *raw) advertised(n int) (ads []wire.Advert) {
	r.Helper()
	for len(ads) < n {
		h, rest := r.hears(wire.Credit, wire.Ack)
		for range h.Adverts {
			var a wire.Advert
			var err error
			rest, err = wire.ParseAdvert(rest, &a)
			require.NoError(r, err)
			ads = append(ads, a)
		}
	}
	return ads
}

// joins connects another raw peer on the same PD to the same wrapped device, where its end shares
// b's PD.
func (r *raw) joins(b *end) (r2 *raw, b2 *end) {
	r.Helper()
	ctx := soon(r)
	end2 := func(e *end) *end {
		c := *e
		var err error
		c.cq, err = c.ctx.CreateCQ(verbs.CQConfig{})
		require.NoError(r, err)
		r.Cleanup(func() { require.NoError(r, c.cq.Close()) })
		c.qp, err = c.pd.CreateQP(verbs.QPConfig{SendCQ: c.cq, RecvCQ: c.cq})
		require.NoError(r, err)
		r.Cleanup(func() { require.NoError(r, c.qp.Close()) })
		return &c
	}
	r2, b2 = &raw{end: end2(r.end)}, end2(b)
	r2.allocate()
	ln, err := cm.Listen(ctx, "127.0.0.1:0", cm.Config{Context: b2.ctx})
	require.NoError(r, err)
	defer func() { require.NoError(r, ln.Close()) }()
	r2.id, err = cm.Resolve(ctx, ln.Addr().String(), cm.Config{Context: r2.ctx})
	require.NoError(r, err)
	require.NoError(r, r2.id.BindQP(r2.qp))
	r2.receive()
	done := make(chan error, 1)
	go func() { done <- r2.id.Connect(ctx, r2.qp, cm.ConnParam{PrivateData: (&wire.Greeting{}).Append(nil)}) }()
	req, err := ln.Accept(ctx)
	require.NoError(r, err)
	b2.id, err = req.Accept(ctx, b2.qp, cm.ConnParam{})
	require.NoError(r, err)
	require.NoError(r, <-done)
	r.Cleanup(func() { require.NoError(r, r2.id.Close()); require.NoError(r, b2.id.Close()) })
	return r2, b2
}

// writes writes EVIL to memory of the peer. It returns once the peer has executed the Write, or has
// closed the connection, in which case refused is true.
func (r *raw) writes(at uint64, key uint32) (refused bool) {
	r.Helper()
	copy(r.mem.Bytes()[rawSlots*rawLen:], "EVIL")
	sge, err := r.mem.SGE(rawSlots*rawLen, 4)
	require.NoError(r, err)
	wr := verbs.Write(verbs.Remote{Addr: at, Length: 1 << 30, RKey: key}, sge)
	// an empty Read, whose answer follows the Write
	read := verbs.Read(verbs.Remote{Addr: at, Length: 1 << 30}, verbs.SGE{})
	read.SGL, read.ID = nil, 77
	_, err = r.qp.PostSend([]verbs.SendWR{wr, read})
	require.NoError(r, err)
	for {
		wc := r.wait()
		switch {
		case wc.Err() != nil:
			return true
		case wc.IsRecv():
			r.got = append(r.got, bytes.Clone(r.mem.Bytes()[int(wc.ID)*rawLen:][:wc.ByteLen]))
		case wc.ID == 77:
			return false
		}
	}
}

// TestHostileKeys checks that the keys that a peer gets for filling a receive open only that
// receive, only to that QP, and only until a message has consumed it.
func TestHostileKeys(t *testing.T) {
	placed := func(r *raw, n uint64) { r.say(message(wire.Header{Kind: wire.Placed, Value: n})) }
	for _, c := range []struct {
		name string
		does func(r *raw, b *end, l long, at uint64, key uint32) (refused bool)
		ok   bool
	}{
		{"Inside", func(r *raw, b *end, l long, at uint64, key uint32) bool { return r.writes(at+longLen-4, key) },
			true},
		{"Behind", func(r *raw, b *end, l long, at uint64, key uint32) bool { return r.writes(at+longLen-3, key) },
			false},
		{"Before", func(r *raw, b *end, l long, at uint64, key uint32) bool { return r.writes(at-1, key) }, false},
		{"AfterPlaced", func(r *raw, b *end, l long, at uint64, key uint32) bool {
			placed(r, 0)
			b.ends(verbs.WCSuccess, 1)
			return r.writes(at, key)
		}, false},
		{"AfterData", func(r *raw, b *end, l long, at uint64, key uint32) bool {
			r.say(message(wire.Header{Kind: wire.Data}))
			b.ends(verbs.WCSuccess, 1)
			return r.writes(at, key)
		}, false},
		{"AfterImmediate", func(r *raw, b *end, l long, at uint64, key uint32) bool {
			r.say(message(wire.Header{Kind: wire.WriteImm, Flags: wire.FlagImm}))
			b.ends(verbs.WCSuccess, 1)
			return r.writes(at, key)
		}, false},
		{"StaleKey", func(r *raw, b *end, l long, at uint64, key uint32) bool { // the memory is open again under another key
			placed(r, 0)
			b.ends(verbs.WCSuccess, 1)
			l.posted(b, 2)
			r.say(message(wire.Header{Kind: wire.Credit, Flags: wire.FlagAsk, Taken: r.taken,
				Value: uint64(verbs.AccessRemoteRead)}))
			require.NotEqual(r, key, r.advertised(1)[0].Segments[0].RKey)
			return r.writes(at, key)
		}, false},
		{"RegionClosed", func(r *raw, b *end, l long, at uint64, key uint32) bool {
			require.NoError(r, l.mr.Close())
			return r.writes(at, key)
		}, false},
		{"OtherQP", func(r *raw, b *end, l long, at uint64, key uint32) bool {
			r2, b2 := r.joins(b)
			r2.greets()
			require.True(r, r2.writes(at, key))
			<-b2.id.Done()
			require.NoError(r, b.qp.Err())
			return r.writes(at+longLen-4, key) // and the valid key still works
		}, true},
		{"Read", func(r *raw, b *end, l long, at uint64, key uint32) bool {
			r.post(verbs.Read(verbs.Remote{Addr: at, Length: 1 << 30, RKey: key}, r.sgl(0, 4)...))
			wc := r.wait()
			return wc.Err() != nil
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, b := newRaw(t, ext.Operations, ibcompat.Config{}, 0)
			l := b.long()
			l.posted(b, 1)
			want := l.now()
			r.say(rawHello.Append(nil))
			ad := r.advertised(1)[0]
			require.EqualValues(t, longLen, ad.Total)
			require.Len(t, ad.Segments, 1)
			require.Equal(t, l.mr.Addr()+longLen, ad.Segments[0].Addr)
			require.NotEqual(t, l.mr.RKey(), ad.Segments[0].RKey)
			refused := c.does(r, b, l, ad.Segments[0].Addr, ad.Segments[0].RKey)
			require.Equal(t, !c.ok, refused)
			if c.ok {
				copy(want[2*longLen-4:], "EVIL")
				require.NoError(t, b.qp.Err())
			} else {
				<-b.id.Done()
				require.Error(t, b.qp.Err())
			}
			if c.name != "RegionClosed" {
				require.Equal(t, want, l.now())
			}
		})
	}
}
