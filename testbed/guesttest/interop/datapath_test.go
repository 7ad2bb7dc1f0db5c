// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package interop

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/iwarp/ddp"
	"github.com/goverbs/goverbs/internal/iwarp/mpa"
	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/verbs"
)

// Where siw deviates from the RFCs on an established connection, seen by a raw peer.

// reading returns a Read of n bytes of a side's region.
func (s *side) reading(msn uint32, off, n int) []byte {
	return readRequest(msn, rdmap.ReadRequest{SinkSTag: 0x100, SinkTO: 0x2000, Size: uint32(n), SrcSTag: s.mem.RKey(),
		SrcTO: s.mem.Addr() + uint64(off)})
}

// queues makes the provider post all requests to siw, including those that must wait in its queue
// until Reads are answered.
func (s *side) queues() { s.qp.Provider().(verbs.ProviderQPLimiter).SetDepths(1<<20, 0) }

// TestKernelReadsInProgress: siw uses the number in the Reply as the number of Reads that it may
// have in progress, rounded up to a power of two, even if its program requested less.
func TestKernelReadsInProgress(t *testing.T) {
	needKernel(t)
	for _, c := range []struct {
		asks    int
		ird     uint16
		has     int
		meaning string
	}{
		{4, 4, 4, "as agreed"},
		{3, 3, 4, "rounded up"},
		{5, 5, 8, "rounded up"},
		{1, 8, 8, "more than it has asked for"},
		{16, 2, 2, "less than it has asked for"},
	} {
		t.Run(fmt.Sprintf("asks for %d, may %d: %s", c.asks, c.ird, c.meaning), func(t *testing.T) {
			r, k, _, connected := here.fromKernel(t, depth(4, c.asks))
			r.write(reply(flagS, 2, word(c.ird, 4)...))
			r.opened(connected)
			k.queues()
			const posted = 20
			for n := range posted {
				k.post(verbs.SendWR{ID: uint64(n), Opcode: verbs.WRRDMARead, SGL: k.sgl(8*n, 8), RemoteAddr: 0x1000,
					RKey: 0x200})
			}
			var requests []rdmap.ReadRequest
			next := func() {
				h, body := r.readOp(rdmap.OpReadRequest)
				require.EqualValues(t, len(requests)+1, h.MSN)
				rr, err := rdmap.ParseReadRequest(body)
				require.NoError(t, err)
				requests = append(requests, rr)
			}
			for range c.has {
				next()
			}
			r.quiet()
			for n := range posted {
				rr := requests[n]
				r.send(tagged(rdmap.OpReadResponse, true, rr.SinkSTag, rr.SinkTO, 1, 2, 3, 4, 5, 6, 7, byte(n)))
				require.EqualValues(t, n, k.ok(k.sent(), verbs.WCRDMARead).ID)
				require.EqualValues(t, n, k.mem.Bytes()[8*n+7])
				if len(requests) < posted {
					next() // one more for each response
				}
			}
		})
	}
}

// serving connects a raw peer, which does not request CRC, to the kernel and negotiates the given
// depths of the kernel. The peer's receive buffer is small.
func serving(t *testing.T, memory, ird, ord int) (*raw, *side) {
	t.Helper()
	k := kernelSide(t, memory)
	ln := k.listen(kernelHost)
	k.open()
	r := here.dial(t, ln.Addr().String())
	require.NoError(t, r.conn.(*net.TCPConn).SetReadBuffer(1<<16))
	r.write(request(flagS, 2, word(uint16(ord), uint16(ird))...))
	req, err := ln.Accept(soon(t))
	require.NoError(t, err)
	param := depth(ird, ord)
	if ird == 0 {
		param = depth(cm.None, cm.None)
	}
	k.id, err = req.Accept(soon(t), k.qp, param)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, k.id.Close()) })
	require.Equal(t, reply(flagS, 2, word(uint16(ird), uint16(ord))...), r.frame())
	return r, k
}

// standing requires that a side's connection does not end during quietTime.
func (s *side) standing() {
	s.t.Helper()
	select {
	case <-s.id.Done():
		require.FailNow(s.t, "the connection has ended", "%v", s.id.Err())
	case <-time.After(quietTime):
	}
}

// TestKernelServesReads: siw rounds its IRD up to a power of two. It queues that number of Reads in
// addition to the one that it is answering, and closes the connection at the next one, with a
// Terminate unless it is in the middle of an FPDU. With the module, it also answers while a request
// of its own program waits.
func TestKernelServesReads(t *testing.T) {
	needKernel(t)
	for _, c := range []struct{ ird, held int }{{1, 1}, {3, 4}, {4, 4}} {
		t.Run(fmt.Sprintf("IRD %d, answers nobody reads", c.ird), func(t *testing.T) {
			const size = 8 << 20 // more than the TCP buffers hold
			ask := func(t *testing.T, reads int) (*raw, *side) {
				r, k := serving(t, size, c.ird, 1)
				r.send(k.reading(1, 0, size))
				time.Sleep(quietTime) // until no more of the response can be sent
				for n := 1; n < reads; n++ {
					r.send(k.reading(uint32(n+1), 0, size))
				}
				return r, k
			}
			r, k := ask(t, c.held+1)
			k.standing()
			for got := 0; got < (c.held+1)*size; {
				u := r.read()
				h, err := ddp.ParseTagged(u)
				require.NoError(t, err)
				require.EqualValues(t, 0x2000+uint64(got%size), h.TO)
				got += len(u) - ddp.TaggedLen
			}
			r.quiet()

			r, k = ask(t, c.held+2)
			require.Error(t, k.ended())
			b, err := r.restOf(size)
			require.NoError(t, err, "FIN wanted")
			for len(b) >= mpa.LengthLen {
				n := int(binary.BigEndian.Uint16(b))
				if len(b) < mpa.FPDULen(n) {
					break // the rest of the FPDU that it was sending
				}
				_, op := rdmap.ParseControl(b[mpa.LengthLen+1])
				b = b[mpa.FPDULen(n):]
				if op == rdmap.OpTerminate { // it had just sent a complete FPDU
					require.Empty(t, b, "behind a Terminate")
					break
				}
				require.Equal(t, rdmap.OpReadResponse, op)
			}
		})
		t.Run(fmt.Sprintf("IRD %d, a Read of its own waits", c.ird), func(t *testing.T) {
			// Without the module, siw answers no Read while a request of its own program waits:
			// with an ORD of 1, a second Read.
			ask := func(t *testing.T, reads int) (r *raw, k *side, own rdmap.ReadRequest) {
				r, k = serving(t, 4096, c.ird, 1)
				fill(k.mem.Bytes()[1024:], 7)
				k.queues()
				for n := range 2 {
					k.post(verbs.SendWR{ID: uint64(n), Opcode: verbs.WRRDMARead, SGL: k.sgl(8*n, 8), RemoteAddr: 0x1000,
						RKey: 0x200})
				}
				_, body := r.readOp(rdmap.OpReadRequest)
				own, err := rdmap.ParseReadRequest(body)
				require.NoError(t, err)
				for n := range reads {
					r.send(k.reading(uint32(n+1), 1024+64*n, 8))
				}
				return r, k, own
			}
			answers := func(r *raw, k *side, reads int) {
				for n := range reads {
					require.Equal(t, tagged(rdmap.OpReadResponse, true, 0x100, 0x2000,
						k.mem.Bytes()[1024+64*n:][:8]...), r.read())
				}
			}
			proceeds := func(r *raw, own rdmap.ReadRequest) {
				r.send(tagged(rdmap.OpReadResponse, true, own.SinkSTag, own.SinkTO, 1, 2, 3, 4, 5, 6, 7, 8))
				r.readOp(rdmap.OpReadRequest)
			}
			if withModule() {
				r, k, own := ask(t, c.held+1)
				answers(r, k, c.held+1)
				r.quiet()
				proceeds(r, own)
				return
			}
			r, k, own := ask(t, c.held)
			r.quiet()
			proceeds(r, own)
			answers(r, k, c.held)

			r, k, _ = ask(t, c.held+1)
			r.refusesRead(k.reading(uint32(c.held+1), 1024+64*c.held, 8))
			require.Error(t, k.ended())
		})
	}
	t.Run("IRD 0", func(t *testing.T) {
		r, k := serving(t, 4096, 0, 0)
		u := k.reading(1, 0, 8)
		r.send(u)
		r.refusesRead(u)
	})
}

// refusesRead reads the Terminate with which siw refuses an excess Read, and the end of the stream.
// Its layout is siw's, or the RFC's with the module.
func (r *raw) refusesRead(ulpdu []byte) {
	r.t.Helper()
	if withModule() {
		r.terminates(0, 2, 7, ulpdu)
		return
	}
	require.Equal(r.t, siwTerminate(0x20, 0x07, 0x03, quoted(ulpdu, 0, ddp.UntaggedLen)...), r.read())
	r.gone()
}

// restOf reads up to n bytes until the end of the stream, which must come.
func (r *raw) restOf(n int) ([]byte, error) {
	require.NoError(r.t, r.conn.SetReadDeadline(time.Now().Add(waitLimit)))
	return io.ReadAll(io.LimitReader(r.conn, int64(n)))
}

// TestKernelIgnores: fields that siw does not check.
func TestKernelIgnores(t *testing.T) {
	needKernel(t)
	r, k := here.toKernel(t, depth(4, 4), func(k *side) {
		k.recv(1, k.sgl(0, 64))
		k.recv(2, k.sgl(0, 64))
	})
	fill(k.mem.Bytes()[100:108], 3)
	answer := func() {
		t.Helper()
		require.Equal(t, tagged(rdmap.OpReadResponse, true, 0x100, 0x2000, k.mem.Bytes()[100:108]...), r.read())
	}
	// The queue number of a Read Request.
	u := k.reading(1, 100, 8)
	u[9] = 3
	r.send(u)
	answer()
	// Reserved bits of both control bytes.
	u = k.reading(2, 100, 8)
	u[0] |= 0x3c
	u[1] |= 0x30
	r.send(u)
	answer()
	// Keys and addresses of empty messages, which need not be checked.
	r.send(tagged(rdmap.OpWrite, true, 0x5a5a5a00, 0x77))
	r.send(readRequest(3, rdmap.ReadRequest{SinkSTag: 0x100, SinkTO: 0x2000, SrcSTag: 0x5a5a5a00}))
	// siw may answer an empty Read with what it sent before (TestKernelReadOfNothing).
	require.Contains(t, [][]byte{tagged(rdmap.OpReadResponse, true, 0x100, 0x2000),
		tagged(rdmap.OpReadResponse, true, 0x100, 0x2000, k.mem.Bytes()[100:108]...)}, r.read())
	// A Send between the two segments of a Write.
	r.send(tagged(rdmap.OpWrite, false, k.mem.RKey(), k.mem.Addr()+200, 1, 2, 3, 4),
		untagged(rdmap.OpSend, ddp.QNSend, 1, 9, 9),
		tagged(rdmap.OpWrite, true, k.mem.RKey(), k.mem.Addr()+204, 5, 6, 7, 8))
	require.EqualValues(t, 2, k.ok(k.received(), verbs.WCRecv).ByteLen)
	r.send(untagged(rdmap.OpSend, ddp.QNSend, 2))
	k.ok(k.received(), verbs.WCRecv)
	require.Equal(t, []byte{1, 2, 3, 4, 5, 6, 7, 8}, k.mem.Bytes()[200:208])
}

// TestKernelAndCRC: siw places data, and validates headers, before it checks the CRC.
func TestKernelAndCRC(t *testing.T) {
	needKernel(t)
	spoilt := func(r *raw, ulpdu []byte) {
		b := r.fpdu(ulpdu)
		b[len(b)-1] ^= 1
		r.write(b)
	}
	t.Run("data", func(t *testing.T) {
		r, k := here.toKernel(t, depth(4, 4), nil)
		spoilt(r, tagged(rdmap.OpWrite, true, k.mem.RKey(), k.mem.Addr(), 1, 2, 3, 4))
		require.Equal(t, siwTerminate(0x02, 0x02, 0), r.read())
		require.Equal(t, []byte{1, 2, 3, 4}, k.mem.Bytes()[:4])
	})
	t.Run("header", func(t *testing.T) {
		r, _ := here.toKernel(t, depth(4, 4), nil)
		spoilt(r, untagged(12, 0, 1, make([]byte, 8)...))
		require.Equal(t, siwTerminate(0x20, 0x06, 0), r.read())
	})
	t.Run("none", func(t *testing.T) {
		// Without CRC the field is ignored.
		r, k, _, connected := here.fromKernel(t, depth(4, 4))
		r.write(reply(flagS, 2, word(4, 4)...))
		r.opened(connected)
		spoilt(r, tagged(rdmap.OpWrite, true, k.mem.RKey(), k.mem.Addr(), 1, 2, 3, 4))
		r.send(k.reading(1, 0, 4))
		require.Equal(t, tagged(rdmap.OpReadResponse, true, 0x100, 0x2000, 1, 2, 3, 4), r.read())
	})
}

// TestKernelSpeaksFirst: as responder, siw sends its program's messages immediately. It does not
// wait for a message of the initiator, as RFC 5044 section 7.1.2 requires. On a peer-to-peer
// connection it does wait.
func TestKernelSpeaksFirst(t *testing.T) {
	needKernel(t)
	r, k := here.toKernel(t, depth(4, 4), nil)
	k.post(verbs.SendWR{Opcode: verbs.WRSend, SGL: k.sgl(0, 4)})
	_, body := r.readOp(rdmap.OpSend)
	require.Len(t, body, 4)

	t.Run("peer-to-peer", func(t *testing.T) {
		k := kernelSide(t, 4096)
		ln := k.listen(kernelHost)
		k.open()
		r := here.dial(t, ln.Addr().String())
		r.write(request(flagS, 2, word(0x8004, 0x8004)...))
		req, err := ln.Accept(soon(t))
		require.NoError(t, err)
		accepted := make(chan error, 1)
		go func() {
			var err error
			k.id, err = req.Accept(soon(t), k.qp, depth(4, 4))
			accepted <- err
		}()
		r.frame()
		r.quiet()
		require.Empty(t, accepted, "established before the first message")
		r.send(tagged(rdmap.OpWrite, true, 1, 0))
		require.NoError(t, result(t, "Accept", accepted))
		require.NoError(t, k.id.Close())
	})
}

// TestKernelNudged: as responder, siw can miss a first message until another one arrives. The
// provider therefore sends another empty Write if it receives nothing from the peer, and one after
// it has received something, which does not prove that the peer has found everything.
func TestKernelNudged(t *testing.T) {
	needKernel(t)
	r, k, _, connected := here.fromKernel(t, depth(4, 4))
	r.write(reply(flagS, 2, word(4, 4)...))
	r.opened(connected)
	k.recv(1, k.sgl(0, 4))
	k.post(verbs.SendWR{Opcode: verbs.WRSend, SGL: k.sgl(0, 4)})
	r.readOp(rdmap.OpSend)
	require.Equal(t, tagged(rdmap.OpWrite, true, 1, 0), r.read())
	r.send(untagged(rdmap.OpSend, 0, 1))
	k.ok(k.received(), verbs.WCRecv)
	require.Equal(t, tagged(rdmap.OpWrite, true, 1, 0), r.read())
	// longer than the interval after which it would be sent again
	require.NoError(t, r.conn.SetReadDeadline(time.Now().Add(5*time.Second)))
	_, err := r.conn.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
}

// TestKernelSegments: over the cable, siw fills TCP segments up to a multiple of 8 bytes. Over
// loopback, its FPDUs can exceed MPA's limit; the user-space RNIC accepts them.
func TestKernelSegments(t *testing.T) {
	needKernel(t)
	longest := func(t *testing.T, p place) int {
		r, k, _, connected := p.fromKernel(t, depth(4, 4))
		r.write(reply(flagS, 2, word(4, 4)...))
		r.opened(connected)
		// TCP starts with smaller segments.
		const count = 100
		most := 0
		for range count {
			k.post(verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGL: k.sgl(0, 1<<16), RemoteAddr: 0x1000, RKey: 0x200})
			for got := 0; got < 1<<16; {
				u := r.read()
				most = max(most, len(u))
				got += len(u) - ddp.TaggedLen
			}
			k.ok(k.sent(), verbs.WCRDMAWrite)
		}
		return most
	}
	t.Run("loopback", func(t *testing.T) {
		const limit = 64768 // RFC 5044 section 5.1
		require.Greater(t, longest(t, here), limit)
	})
	t.Run("cable", func(t *testing.T) {
		require.Equal(t, 1448&^7-mpa.LengthLen-mpa.CRCLen, longest(t, cable(t)))
	})
}

// TestKernelHalfClose: siw closes the connection at a FIN and does not send pending responses.
func TestKernelHalfClose(t *testing.T) {
	needKernel(t)
	r, k := here.toKernel(t, depth(128, 4), nil)
	const reads, size = 16, 1 << 20 // more than the TCP buffers hold, so that siw is still sending at the FIN
	var requests [][]byte
	for n := range uint32(reads) {
		requests = append(requests, k.reading(n+1, 0, size))
	}
	// All arrive, one after the other; the FIN follows immediately.
	r.send(requests...)
	require.NoError(t, r.conn.(*net.TCPConn).CloseWrite())
	b, err := r.restOf(2 * reads * size)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	require.Less(t, len(b), reads*size)
	k.ended()
}

// TestKernelTakesTerminate: siw closes the connection at every Terminate.
func TestKernelTakesTerminate(t *testing.T) {
	needKernel(t)
	write := tagged(rdmap.OpWrite, true, 0x200, 0x1000, 1)
	for _, term := range []rdmap.Terminate{
		{Layer: 0, Type: 2, Code: 6},
		{Layer: 2, Type: 0, Code: 2},
		{Layer: 1, Type: 1, Code: 0, SegLenValid: true, SegLen: uint16(len(write)), DDPHeader: write[:ddp.TaggedLen]},
		{Layer: 9, Type: 9, Code: 99},
	} {
		r, k := here.toKernel(t, depth(4, 4), func(k *side) { k.recv(1, nil) })
		r.send(untagged(rdmap.OpTerminate, ddp.QNTerminate, 1, term.Append(nil)...))
		r.gone()
		require.Error(t, k.ended())
		require.Equal(t, verbs.WCWRFlushErr, k.received().Status)
	}
}

// TestKernelReset: a reset ends the connection, and outstanding requests are flushed.
func TestKernelReset(t *testing.T) {
	needKernel(t)
	r, k := here.toKernel(t, depth(4, 4), func(k *side) { k.recv(1, nil) })
	var length [2]byte
	binary.BigEndian.PutUint16(length[:], 100)
	r.write(length[:]) // in the middle of an FPDU
	require.NoError(t, r.conn.(*net.TCPConn).SetLinger(0))
	require.NoError(t, r.conn.Close())
	require.Error(t, k.ended())
	require.Equal(t, verbs.WCWRFlushErr, k.received().Status)
	require.False(t, errors.Is(k.id.Err(), verbs.ErrClosed), "%v", k.id.Err())
}
