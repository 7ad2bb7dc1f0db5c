// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/verbs"
)

// writeCalls counts the write calls on a socket and those that found too little room, and records
// the most pieces of any call.
type writeCalls struct{ calls, short, pieces atomic.Int64 }

// count counts the write calls on c's socket. It leaves the rest of the stream alone, because other
// goroutines read from it.
func (w *writeCalls) count(c *conn) {
	s := c.s.(*tcpStream)
	c.q.mu.Lock() // guards taking the send role, which is free
	defer c.q.mu.Unlock()
	write := s.writeFn
	s.writeFn = func() {
		pieces, bytes := 1, len(s.wr.one)
		if s.wr.iov != nil {
			pieces = s.wr.n
			for _, p := range s.wr.iov[:pieces] {
				bytes += int(p.Len)
			}
		}
		write()
		w.calls.Add(1)
		w.pieces.Store(max(w.pieces.Load(), int64(pieces)))
		if s.wr.got < bytes {
			w.short.Add(1)
		}
	}
}

// TestWriteCalls posts lists of Writes: each goes to the socket in one system call, as long as it
// fits in a batch and the socket has room. Payloads of copyLimit+1 bytes are the smallest that are
// not copied, and produce the most pieces; even with them a batch reaches batchBytes long before
// maxPieces. TestBatchPieces covers the case in which pieces decide.
func TestWriteCalls(t *testing.T) {
	const size, most = 4 << 10, 600
	ctx := context.Background()
	nic, err := New(Config{})
	require.NoError(t, err)
	ln, err := cm.Listen(ctx, "127.0.0.1:0", cm.Config{Device: nic.Device()})
	require.NoError(t, err)
	v := ln.Context()
	pd, err := v.AllocPD()
	require.NoError(t, err)
	cq, err := v.CreateCQ(verbs.CQConfig{})
	require.NoError(t, err)
	mr, err := pd.AllocMR(most*size, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	require.NoError(t, err)
	newQP := func() (*verbs.QP, error) {
		return pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq, Cap: verbs.QPCap{MaxSendWR: most}})
	}
	accepted := make(chan *cm.ID, 1)
	go func() {
		defer close(accepted)
		r, err := ln.Accept(ctx)
		if err != nil {
			return
		}
		qp, err := newQP()
		if err != nil {
			return
		}
		if id, err := r.Accept(ctx, qp, cm.ConnParam{}); err == nil {
			accepted <- id
		}
	}()
	id, err := cm.Resolve(ctx, ln.Addr().String(), cm.Config{Device: nic.Device()})
	require.NoError(t, err)
	own, err := newQP()
	require.NoError(t, err)
	require.NoError(t, id.Connect(ctx, own, cm.ConnParam{}))
	peer := <-accepted
	require.NotNil(t, peer)
	t.Cleanup(func() {
		for _, close := range []func() error{id.Close, peer.Close, ln.Close, v.CloseAll, nic.Close} {
			require.NoError(t, close())
		}
	})

	var counter writeCalls
	counter.count(id.QP().Provider().(*qp).conn)

	for _, c := range []struct{ n, size int }{{1, size}, {16, size}, {64, size}, {most, size}, {most, copyLimit + 1}} {
		n, size := c.n, c.size
		wrs := make([]verbs.SendWR, n)
		for i := range wrs {
			sge, err := mr.SGE(i*size, size)
			require.NoError(t, err)
			wrs[i] = verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGL: []verbs.SGE{sge},
				RemoteAddr: mr.Addr() + uint64(i*size), RKey: mr.RKey()}
		}
		wrs[n-1].Flags = verbs.SendSignaled
		for range 10 {
			calls, short := counter.calls.Load(), counter.short.Load()
			posted, err := id.QP().PostSend(wrs)
			require.NoError(t, err)
			require.Equal(t, n, posted)
			var wc [1]verbs.WC
			_, err = cq.Wait(ctx, wc[:])
			require.NoError(t, err)
			require.Equal(t, verbs.WCSuccess, wc[0].Status)
			calls, short = counter.calls.Load()-calls, counter.short.Load()-short
			// A Write is two pieces: what precedes its data, and the data. The trailer of the last
			// one is another.
			need := int64(n*size+batchBytes-1) / batchBytes
			require.GreaterOrEqual(t, need, int64(2*n+1+maxPieces-1)/maxPieces, "bytes decide")
			what := fmt.Sprintf("%d Writes of %d bytes: %d calls, %d of them with too little room", n, size, calls,
				short)
			// A call that finds too little room accepts a part, or nothing, and leaves the rest to
			// another.
			require.LessOrEqual(t, calls, need+short, what)
			require.GreaterOrEqual(t, calls, need, what)
			require.Less(t, counter.pieces.Load(), int64(maxPieces), what)
		}
	}

	// A Write of 512 KiB and the small Send that announces it go in one call.
	data, err := mr.SGE(0, 512<<10)
	require.NoError(t, err)
	word, err := mr.SGE(0, 4)
	require.NoError(t, err)
	for range 10 {
		_, err := peer.QP().PostRecv([]verbs.RecvWR{{SGL: []verbs.SGE{word}}})
		require.NoError(t, err)
		calls, short := counter.calls.Load(), counter.short.Load()
		_, err = id.QP().PostSend([]verbs.SendWR{
			{Opcode: verbs.WRRDMAWrite, SGL: []verbs.SGE{data}, RemoteAddr: mr.Addr() + 1<<20, RKey: mr.RKey()},
			{Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{word}}})
		require.NoError(t, err)
		for got := 0; got < 2; { // the Send and its receive
			var wcs [2]verbs.WC
			n, err := cq.Wait(ctx, wcs[:])
			require.NoError(t, err)
			for _, wc := range wcs[:n] {
				require.NoError(t, wc.Err())
			}
			got += n
		}
		calls, short = counter.calls.Load()-calls, counter.short.Load()-short
		require.GreaterOrEqual(t, calls, int64(1))
		require.LessOrEqual(t, calls, 1+short, "calls, %d of them with too little room", short)
	}
}
