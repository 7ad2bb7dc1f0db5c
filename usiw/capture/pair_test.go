// SPDX-License-Identifier: BSD-3-Clause

package capture_test

import (
	"context"
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/usiw/usiwtest"
	"github.com/goverbs/goverbs/verbs"
)

// waitLimit bounds every wait of a test.
const waitLimit = 30 * time.Second

// The layout of an end's region: what it sends and the peer reads, where receives and Reads go,
// where the peer writes, and words for atomics and their results. The parts do not overlap, because
// a Write may arrive some time after it has completed.
const (
	source = 0
	sink   = 256 << 10
	target = 512 << 10
	word   = 768 << 10
	memory = 1 << 20
)

// end is one end of a connection.
type end struct {
	*usiwtest.End
	t *testing.T
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	t.Cleanup(cancel)
	return ctx
}

// overTCP is the address at which pairs over TCP listen.
const overTCP = "127.0.0.1:0"

// pair returns two connected ends.
func pair(t *testing.T, cfg usiwtest.PairConfig) (a, b *end, link *usiwtest.Link) {
	t.Helper()
	cfg.Mem = memory
	cfg.AParam.PrivateData, cfg.BParam.PrivateData = []byte("question"), []byte("answer")
	p := usiwtest.Connect(t, cfg)
	return &end{p.A, t}, &end{p.B, t}, p.Link
}

// disconnect ends a connection and returns once both sides have seen all of it.
func disconnect(t *testing.T, a, b *end) {
	t.Helper()
	require.NoError(t, a.ID.Disconnect())
	require.NoError(t, a.ID.Close())
	require.NoError(t, b.ID.Close())
}

// sgl returns a range of the region, or nil if n is 0.
func (e *end) sgl(off, n int) []verbs.SGE {
	e.t.Helper()
	if n == 0 {
		return nil
	}
	sge, err := e.MR.SGE(off, n)
	require.NoError(e.t, err)
	return []verbs.SGE{sge}
}

func (e *end) bytes(off, n int) []byte     { return e.MR.Bytes()[off : off+n] }
func (e *end) addr(off int) uint64         { return e.MR.Addr() + uint64(off) }
func (e *end) number(off int) uint64       { return binary.NativeEndian.Uint64(e.bytes(off, 8)) }
func (e *end) setNumber(off int, v uint64) { binary.NativeEndian.PutUint64(e.bytes(off, 8), v) }

// fill writes a pattern to the start of the source.
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
	wc, err := e.Do(testContext(e.t), wrs...)
	require.NoError(e.t, err)
	return wc
}

// recv posts a receive of n bytes.
func (e *end) recv(n int) {
	e.t.Helper()
	wr := verbs.RecvWR{SGL: e.sgl(sink, n)}
	_, err := e.QP.PostRecv([]verbs.RecvWR{wr})
	require.NoError(e.t, err)
}

// next waits for a completion.
func (e *end) next(cq *verbs.CQ) verbs.WC {
	e.t.Helper()
	wc, err := usiwtest.Next(testContext(e.t), cq)
	require.NoError(e.t, err)
	return wc
}

// reject connects a, of a pair that is not connected yet, to b, which rejects the request.
func reject(t *testing.T, p *usiwtest.Pair, reason string) {
	t.Helper()
	ctx := testContext(t)
	ln, err := cm.Listen(ctx, overTCP, cm.Config{Context: p.B.Context})
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
	id, err := cm.Resolve(ctx, ln.Addr().String(), cm.Config{Context: p.A.Context})
	require.NoError(t, err)
	qp, err := p.A.PD.CreateQP(verbs.QPConfig{SendCQ: p.A.SendCQ, RecvCQ: p.A.RecvCQ})
	require.NoError(t, err)
	require.ErrorIs(t, id.Connect(ctx, qp, cm.ConnParam{}), cm.ErrRejected)
	require.NoError(t, <-refused)
	require.NoError(t, id.Close())
}
