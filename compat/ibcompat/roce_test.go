// SPDX-License-Identifier: BSD-3-Clause

package ibcompat_test

import (
	"context"
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/compat/ibcompat"
	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/internal/forward"
	"github.com/goverbs/goverbs/internal/regmem"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// roce stands in for a RoCE adapter: a user-space RNIC that reports itself as one and hides its
// masked atomics. So requests take time, connections contend, and the race detector sees
// everything.
type roce struct{ verbs.ProviderDevice }

func (d roce) Info() verbs.DeviceInfo {
	info := d.ProviderDevice.Info()
	info.Name, info.Transport = "roce0", verbs.TransportIB
	return info
}

func (d roce) Unwrap() verbs.ProviderDevice { return d.ProviderDevice }

func (d roce) Open(owner *verbs.Context) (verbs.ProviderContext, error) {
	c, err := d.ProviderDevice.Open(owner)
	if err != nil {
		return nil, err
	}
	return roceContext{c}, nil
}

type roceContext struct{ verbs.ProviderContext }

func (c roceContext) Unwrap() verbs.ProviderContext { return c.ProviderContext }
func (c roceContext) Ops() verbs.OpSet {
	return c.ProviderContext.Ops() &^ verbs.MakeOpSet(verbs.OpMaskedFetchAdd, verbs.OpMaskedCmpSwap)
}

// newRoCE returns such a device, and the same device wrapped.
func newRoCE(t testing.TB) (in, dev *verbs.Device) {
	t.Helper()
	nic, err := usiw.New(usiw.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, nic.Close()) })
	in = verbs.NewDevice(roce{forward.Wrap(nic.Device()).Provider()})
	t.Cleanup(func() { require.NoError(t, in.CloseShared()) })
	dev, err = ibcompat.Wrap(in, ibcompat.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.CloseShared()) })
	return in, dev
}

// soon returns a context with the timeout of a test.
func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// end is one end of a connection, with everything it needs.
type end struct {
	testing.TB
	ctx *verbs.Context
	pd  *verbs.PD
	mr  *verbs.MR
	cq  *verbs.CQ
	qp  *verbs.QP
	id  *cm.ID
}

const allRights = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic

func newEnd(t testing.TB, ctx *verbs.Context, cfg verbs.QPConfig) *end {
	t.Helper()
	e := &end{TB: t, ctx: ctx}
	var err error
	e.pd, err = ctx.AllocPD()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.pd.Close()) })
	e.mr, err = e.pd.AllocMR(4096, allRights)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.mr.Close()) })
	e.cq, err = ctx.CreateCQ(verbs.CQConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.cq.Close()) })
	cfg.SendCQ, cfg.RecvCQ = e.cq, e.cq
	e.qp, err = e.pd.CreateQP(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.qp.Close()) })
	return e
}

func open(t testing.TB, dev *verbs.Device) *verbs.Context {
	t.Helper()
	ctx, err := dev.Open()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ctx.Close()) })
	return ctx
}

// connect connects two devices; a is the active end.
func connect(t testing.TB, active, passive *verbs.Context, cfg verbs.QPConfig) (a, b *end) {
	t.Helper()
	at := netip.MustParseAddrPort("127.0.0.1:0")
	ln, err := cm.Listen(soon(t), at.String(), cm.Config{Context: passive})
	require.NoError(t, err)
	defer func() { require.NoError(t, ln.Close()) }()
	a, b = newEnd(t, active, cfg), newEnd(t, passive, cfg)
	join(t, ln, a, b)
	return a, b
}

func join(t testing.TB, ln *cm.Listener, a, b *end) {
	t.Helper()
	ctx := soon(t)
	var err error
	a.id, err = cm.Resolve(ctx, ln.Addr().String(), cm.Config{Context: a.ctx})
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- a.id.Connect(ctx, a.qp, cm.ConnParam{}) }()
	req, err := ln.Accept(ctx)
	require.NoError(t, err)
	b.id, err = req.Accept(ctx, b.qp, cm.ConnParam{})
	require.NoError(t, err)
	require.NoError(t, <-done)
	t.Cleanup(func() { require.NoError(t, a.id.Close()); require.NoError(t, b.id.Close()) })
}

// sgl returns n bytes of the end's memory.
func (e *end) sgl(off, n int) []verbs.SGE {
	e.Helper()
	sge, err := e.mr.SGE(off, n)
	require.NoError(e, err)
	return []verbs.SGE{sge}
}

// word returns a word of the end's memory.
func (e *end) word(off int) uint64 {
	var b [8]byte
	regmem.Fetch(b[:], e.mr.Bytes()[off:][:8])
	return binary.NativeEndian.Uint64(b[:])
}

func (e *end) put(off int, v uint64) {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], v)
	regmem.Place(e.mr.Bytes()[off:][:8], b[:])
}

// on directs wr at the word at off of the peer's memory, with the word at sink of e's memory as its
// sink.
func (e *end) on(wr verbs.SendWR, sink int, peer *end, off int) verbs.SendWR {
	wr.SGL, wr.RemoteAddr, wr.RKey = e.sgl(sink, 8), peer.mr.Addr()+uint64(off), peer.mr.RKey()
	wr.Flags |= verbs.SendSignaled
	return wr
}

func (e *end) post(wrs ...verbs.SendWR) {
	e.Helper()
	n, err := e.qp.PostSend(wrs)
	require.NoError(e, err)
	require.Equal(e, len(wrs), n)
}

func (e *end) recv(id uint64) {
	e.Helper()
	n, err := e.qp.PostRecv([]verbs.RecvWR{{ID: id, SGL: e.sgl(2048, 64)}})
	require.NoError(e, err)
	require.Equal(e, 1, n)
}

// wait returns the next completion.
func (e *end) wait() verbs.WC {
	e.Helper()
	var wcs [1]verbs.WC
	n, err := e.cq.Wait(soon(e), wcs[:])
	require.NoError(e, err)
	require.Equal(e, 1, n)
	return wcs[0]
}

// ends requires that the next completions have these IDs and this status.
func (e *end) ends(status verbs.WCStatus, ids ...uint64) {
	e.Helper()
	for _, id := range ids {
		wc := e.wait()
		require.Equal(e, id, wc.ID)
		require.Equal(e, status.String(), wc.Status.String(), "request %d", id)
	}
}

var (
	add  = ext.MaskedFetchAddWR(verbs.Remote{Length: 8}, 1, 1<<31|1<<63) // two fields
	swap = ext.MaskedCmpSwapWR(verbs.Remote{Length: 8}, 0, 0, 7, 0xff)   // stores 7 in the last byte
)
