// SPDX-License-Identifier: BSD-3-Clause

package capture_test

import (
	"context"
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/siw"
	"github.com/goverbs/goverbs/verbs"
)

// waitLimit bounds every wait of a test.
const waitLimit = 30 * time.Second

// The region of an end: what it sends and what the peer reads, where receives and Reads go, where the peer writes, and
// words for atomics and their sinks. They are apart, because a Write arrives at some time after it has completed.
const (
	source = 0
	sink   = 256 << 10
	target = 512 << 10
	word   = 768 << 10
	memory = 1 << 20
)

// end is one end of a connection.
type end struct {
	t            *testing.T
	ctx          *verbs.Context
	pd           *verbs.PD
	sends, recvs *verbs.CQ
	qp           *verbs.QP
	id           *cm.ID
	mr           *verbs.MR
}

// newNIC makes a NIC that is gone at the end of the test.
func newNIC(t *testing.T, cfg siw.Config) *verbs.Device {
	t.Helper()
	nic, err := siw.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, nic.Close()) })
	return nic.Device()
}

// newEnd makes an unconnected end on a NIC.
func newEnd(t *testing.T, dev *verbs.Device) *end {
	t.Helper()
	e := &end{t: t}
	var err error
	e.ctx, err = dev.Open()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.ctx.CloseAll()) })
	e.pd, err = e.ctx.AllocPD()
	require.NoError(t, err)
	e.sends, err = e.ctx.CreateCQ(verbs.CQConfig{})
	require.NoError(t, err)
	e.recvs, err = e.ctx.CreateCQ(verbs.CQConfig{})
	require.NoError(t, err)
	e.qp, err = e.pd.CreateQP(verbs.QPConfig{SendCQ: e.sends, RecvCQ: e.recvs})
	require.NoError(t, err)
	e.mr, err = e.pd.AllocMR(memory, verbs.AccessLocalWrite|verbs.AccessRemoteAtomic|verbs.AccessRemoteRead|
		verbs.AccessRemoteWrite|verbs.AccessMWBind)
	require.NoError(t, err)
	return e
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	t.Cleanup(cancel)
	return ctx
}

// connect connects a to b, which listens at address.
func connect(t *testing.T, a, b *end, address string) {
	t.Helper()
	ctx := testContext(t)
	ln, err := cm.Listen(ctx, address, cm.Config{Context: b.ctx})
	require.NoError(t, err)
	defer func() { require.NoError(t, ln.Close()) }()
	accepted := make(chan error, 1)
	go func() {
		req, err := ln.Accept(ctx)
		if err == nil {
			b.id, err = req.Accept(ctx, b.qp, cm.ConnParam{PrivateData: []byte("answer")})
		}
		accepted <- err
	}()
	a.id, err = cm.Resolve(ctx, ln.Addr().String(), cm.Config{Context: a.ctx})
	require.NoError(t, err)
	require.NoError(t, a.id.Connect(ctx, a.qp, cm.ConnParam{PrivateData: []byte("question")}))
	require.NoError(t, <-accepted)
	t.Cleanup(func() { require.NoError(t, a.id.Close()); require.NoError(t, b.id.Close()) })
}

// pair makes two connected ends on NICs of their own.
func pair(t *testing.T, acfg, bcfg siw.Config, address string) (a, b *end) {
	t.Helper()
	a, b = newEnd(t, newNIC(t, acfg)), newEnd(t, newNIC(t, bcfg))
	connect(t, a, b, address)
	return a, b
}

// disconnect ends a connection and returns when both sides have seen everything of it.
func disconnect(t *testing.T, a, b *end) {
	t.Helper()
	require.NoError(t, a.id.Disconnect())
	require.NoError(t, a.id.Close())
	require.NoError(t, b.id.Close())
}

// sgl returns a piece of the region, nil for one without octets.
func (e *end) sgl(off, n int) []verbs.SGE {
	e.t.Helper()
	if n == 0 {
		return nil
	}
	sge, err := e.mr.SGE(off, n)
	require.NoError(e.t, err)
	return []verbs.SGE{sge}
}

func (e *end) bytes(off, n int) []byte     { return e.mr.Bytes()[off : off+n] }
func (e *end) addr(off int) uint64         { return e.mr.Addr() + uint64(off) }
func (e *end) number(off int) uint64       { return binary.NativeEndian.Uint64(e.bytes(off, 8)) }
func (e *end) setNumber(off int, v uint64) { binary.NativeEndian.PutUint64(e.bytes(off, 8), v) }

// fill puts a pattern at the beginning of the source.
func (e *end) fill(n int) []byte {
	b := e.bytes(source, n)
	for i := range b {
		b[i] = byte(7*i + i>>8)
	}
	return b
}

// do posts requests, the last of which is signalled, and returns its completion.
func (e *end) do(wrs ...verbs.SendWR) verbs.WC {
	e.t.Helper()
	wrs[len(wrs)-1].Flags |= verbs.SendSignaled
	n, err := e.qp.PostSend(wrs)
	require.NoError(e.t, err)
	require.Equal(e.t, len(wrs), n)
	return e.next(e.sends)
}

// recv posts a receive of n octets.
func (e *end) recv(n int) {
	e.t.Helper()
	wr := verbs.RecvWR{SGL: e.sgl(sink, n)}
	_, err := e.qp.PostRecv([]verbs.RecvWR{wr})
	require.NoError(e.t, err)
}

// next waits for a completion.
func (e *end) next(cq *verbs.CQ) verbs.WC {
	e.t.Helper()
	var wcs [1]verbs.WC
	_, err := cq.Wait(testContext(e.t), wcs[:])
	require.NoError(e.t, err)
	return wcs[0]
}

// reject has a connect to b, which refuses.
func reject(t *testing.T, a, b *end, reason string) {
	t.Helper()
	ctx := testContext(t)
	ln, err := cm.Listen(ctx, "127.0.0.1:0", cm.Config{Context: b.ctx})
	require.NoError(t, err)
	defer func() { require.NoError(t, ln.Close()) }()
	refused := make(chan error, 1)
	go func() {
		req, err := ln.Accept(ctx)
		if err == nil {
			err = req.Reject([]byte(reason))
		}
		refused <- err
	}()
	id, err := cm.Resolve(ctx, ln.Addr().String(), cm.Config{Context: a.ctx})
	require.NoError(t, err)
	qp, err := a.pd.CreateQP(verbs.QPConfig{SendCQ: a.sends, RecvCQ: a.recvs})
	require.NoError(t, err)
	require.ErrorIs(t, id.Connect(ctx, qp, cm.ConnParam{}), cm.ErrRejected)
	require.NoError(t, <-refused)
	require.NoError(t, id.Close())
}
