// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package interop

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/iwarp/ddp"
	"github.com/goverbs/goverbs/internal/iwarp/mpa"
	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/verbs"
)

// TestModuleRepairs has a test for each rule of kernel/siw-7306/repairs that no other test of the
// module covers. Each is named after its rule, and fails with a module built without it
// (kernel/siw-7306/mutants).
func TestModuleRepairs(t *testing.T) {
	needModule(t)
	t.Run("flush", func(t *testing.T) {
		r, k := here.toKernel(t, depth(4, 4), nil)
		require.NoError(t, r.conn.Close())
		require.Error(t, k.ended())
		k.recv(1, k.sgl(0, 64))
		require.Equal(t, verbs.WCWRFlushErr, k.run(verbs.SendWR{Opcode: verbs.WRSend, SGL: k.sgl(0, 4)}).Status)
		require.Equal(t, verbs.WCWRFlushErr, k.received().Status)
	})
	t.Run("query-qp", func(t *testing.T) {
		_, k := serving(t, 4096, 4, 2)
		attr, err := k.qp.Query()
		require.NoError(t, err)
		require.Equal(t, verbs.QPStateRTS, attr.State)
		require.Equal(t, 2, attr.MaxRdAtomic)
		require.Equal(t, 4, attr.MaxDestRdAtomic)
	})
	t.Run("read-nothing", func(t *testing.T) {
		const size = 8 << 20 // more than the TCP buffers hold
		r, k := serving(t, size, 4, 1)
		r.send(k.reading(1, 0, size))
		time.Sleep(quietTime)
		r.send(k.reading(2, 0, 0))
		for got := 0; got < size; {
			got += len(r.read()) - ddp.TaggedLen
		}
		require.Equal(t, tagged(rdmap.OpReadResponse, true, 0x100, 0x2000), r.read())
	})
	t.Run("solicited", func(t *testing.T) {
		r, k := here.toKernel(t, depth(4, 4), func(k *side) {
			k.recv(1, k.sgl(0, 64))
			k.recv(2, k.sgl(0, 64))
		})
		var wcs [4]verbs.WC
		woken := make(chan error, 1)
		ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
		defer cancel()
		go func() {
			_, err := k.rcq.WaitSolicited(ctx, wcs[:])
			woken <- err
		}()
		time.Sleep(quietTime) // until it sleeps
		r.send(untagged(rdmap.OpSend, ddp.QNSend, 1))
		time.Sleep(quietTime)
		require.Empty(t, woken, "by a message that asks for no event")
		r.send(untagged(rdmap.OpSendSE, ddp.QNSend, 2))
		require.NoError(t, result(t, "WaitSolicited", woken))
	})
	t.Run("sq-admit", func(t *testing.T) {
		_, k := serving(t, 4096, 0, 0)
		k.queues()
		require.Equal(t, verbs.WCLocQPOpErr,
			k.run(verbs.SendWR{Opcode: verbs.WRRDMARead, SGL: k.sgl(0, 8), RemoteAddr: 0x1000, RKey: 0x200}).Status)
		require.Error(t, k.ended())
	})
	t.Run("srq-limit", func(t *testing.T) {
		k := kernelSide(t, 4096)
		ln := k.listen(kernelHost)
		k.open()
		srq, err := k.pd.CreateSRQ(verbs.SRQAttr{MaxWR: 8, MaxSGE: 1})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, srq.Close()) })
		qp, err := k.pd.CreateQP(
			verbs.QPConfig{SendCQ: k.scq, RecvCQ: k.rcq, SRQ: srq, Cap: verbs.QPCap{MaxSendWR: 8, MaxSendSGE: 1}})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, qp.Close()) })
		r := here.dial(t, ln.Addr().String())
		r.write(request(flagS, mpa.Rev2, word(4, 4)...))
		req, err := ln.Accept(soon(t))
		require.NoError(t, err)
		k.id, err = req.Accept(soon(t), qp, depth(4, 4))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, k.id.Close()) })
		r.frame()
		_, err = srq.PostRecv([]verbs.RecvWR{{SGL: k.sgl(0, 64)}, {SGL: k.sgl(64, 64)}})
		require.NoError(t, err)
		require.NoError(t, srq.Modify(verbs.SRQAttr{SRQLimit: 2}, verbs.SRQAttrLimit))
		limit := func() int {
			attr, err := srq.Query()
			require.NoError(t, err)
			return attr.SRQLimit
		}
		require.Equal(t, 2, limit())
		r.send(untagged(rdmap.OpSend, ddp.QNSend, 1))
		k.ok(k.received(), verbs.WCRecv)
		ev, err := k.ctx.WaitEvent(soon(t))
		require.NoError(t, err)
		require.Equal(t, verbs.EventSRQLimitReached, ev.Type)
		require.Zero(t, limit(), "the event sets it back")
	})
	t.Run("torn-page", func(t *testing.T) {
		const page = 4096
		l := here.link(t, linkConfig{memory: 4 * page})
		fill(l.kernel.mem.Bytes(), 5)
		for n := 2; n <= 40; n += 3 {
			for first := 1; first < n; first++ {
				off := 2*page - first
				l.user.ok(l.user.run(l.kernel.at(verbs.SendWR{Opcode: verbs.WRRDMARead, SGL: l.user.sgl(0, n)}, off)),
					verbs.WCRDMARead)
				require.Equal(t, l.kernel.mem.Bytes()[off:off+n], l.user.mem.Bytes()[:n],
					"%d bytes, %d of them in the first page", n, first)
			}
		}
	})
	t.Run("turn", func(t *testing.T) {
		r, k := serving(t, 4096, 4, 1)
		k.queues()
		fill(k.mem.Bytes()[:64], 7)
		for n := range 2 {
			k.post(verbs.SendWR{ID: uint64(n), Opcode: verbs.WRRDMARead, SGL: k.sgl(64+8*n, 8), RemoteAddr: 0x1000,
				RKey: 0x200})
		}
		_, body := r.readOp(rdmap.OpReadRequest)
		own, err := rdmap.ParseReadRequest(body)
		require.NoError(t, err)
		r.send(k.reading(1, 0, 8)) // while its second Read waits
		require.Equal(t, tagged(rdmap.OpReadResponse, true, 0x100, 0x2000, k.mem.Bytes()[:8]...), r.read())
		for range 2 {
			r.send(tagged(rdmap.OpReadResponse, true, own.SinkSTag, own.SinkTO, 1, 2, 3, 4, 5, 6, 7, 8))
			k.ok(k.sent(), verbs.WCRDMARead)
			if own.SinkTO == k.mem.Addr()+64 {
				_, body = r.readOp(rdmap.OpReadRequest)
				own, err = rdmap.ParseReadRequest(body)
				require.NoError(t, err)
			}
		}
		require.Equal(t, []byte{1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8}, k.mem.Bytes()[64:80])
	})
}

// TestModuleTornAtomic: a peer closes, or resets, in the middle of an Atomic Request or its
// response, or without reading what it requested. The memory is unchanged or contains the complete
// operation; the program sees the end of the connection and all its completions.
func TestModuleTornAtomic(t *testing.T) {
	needModule(t)
	unharmed(t)
	ends := map[string]func(r *raw){
		"FIN": func(r *raw) { require.NoError(r.t, r.conn.Close()) },
		"RST": func(r *raw) {
			require.NoError(r.t, r.conn.(interface{ SetLinger(int) error }).SetLinger(0))
			require.NoError(r.t, r.conn.Close())
		},
	}
	for name, end := range ends {
		t.Run("request/"+name, func(t *testing.T) {
			for cut := 1; cut < 80; cut += 13 {
				r, k := here.toKernel(t, depth(4, 4), nil)
				mr := k.region(k.pd, 64, allRights)
				b := r.fpdu(fetchAdd(1, mr.RKey(), mr.Addr()))
				r.write(b[:min(cut, len(b)-1)])
				end(r)
				require.Error(t, k.ended())
				require.Equal(t, make([]byte, 64), mr.Bytes())
			}
		})
		t.Run("unread answers/"+name, func(t *testing.T) {
			for range 5 {
				r, k := here.toKernel(t, depth(4, 4), nil)
				mr := k.region(k.pd, 64, allRights)
				r.send(fetchAdd(1, mr.RKey(), mr.Addr()), fetchAdd(2, mr.RKey(), mr.Addr()),
					fetchAdd(3, mr.RKey(), mr.Addr()))
				end(r)
				require.Error(t, k.ended())
				require.LessOrEqual(t, mr.Bytes()[0], byte(3))
			}
		})
		t.Run("answer/"+name, func(t *testing.T) {
			for cut := 0; cut < 38; cut += 9 {
				r, k := here.toKernel(t, depth(4, 4), nil)
				for n := range 3 {
					k.post(verbs.SendWR{ID: uint64(n), Opcode: verbs.WRAtomicFetchAndAdd, SGL: k.sgl(8*n, 8),
						RemoteAddr: 0x1000, RKey: 0x200, Add: 1})
				}
				_, body := r.readOp(rdmap.OpAtomicRequest)
				ar, err := rdmap.ParseAtomicRequest(body)
				require.NoError(t, err)
				res := make([]byte, rdmap.AtomicResponseLen)
				rdmap.AtomicResponse{ID: ar.ID, Value: 5}.Put(res)
				b := r.fpdu(untagged(rdmap.OpAtomicResponse, ddp.QNAtomicResponse, 1, res...))
				r.write(b[:min(cut, len(b)-1)])
				end(r)
				for range 3 {
					require.NotEqual(t, verbs.WCSuccess, k.sent().Status)
				}
				require.Error(t, k.ended())
			}
		})
	}
}
