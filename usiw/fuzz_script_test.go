// SPDX-License-Identifier: BSD-3-Clause

package usiw_test

import (
	"bytes"
	"encoding/binary"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/iwarp/ddp"
	"github.com/goverbs/goverbs/internal/iwarp/mpa"
	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/usiw/usiwtest"
	"github.com/goverbs/goverbs/verbs"
)

// The first byte of a script selects the kind of connection.
const (
	fuzzNoCRC   = 1 << iota // neither side wants CRCs
	fuzzMarkIn              // the NIC wants markers
	fuzzMarkOut             // the peer wants markers
	fuzzPlain               // the NIC lacks the operations of RFC 7306
	fuzzShallow             // the NIC serves one Read at a time
	fuzzShared              // the QP takes its receives from an SRQ
)

// The steps of a script. Each is one byte, modulo fuzzSteps, followed by its arguments.
const (
	fuzzRaw      = iota // length, bytes: sent unchanged
	fuzzTagged          // flags, opcode, key, offset, length: a tagged segment
	fuzzUntagged        // flags, opcode, queue, then what the opcode needs: an untagged segment
	fuzzRecv            // kind: post a receive
	fuzzPost            // opcode, key, offset: post a send request
	fuzzAnswer          // flags: answer the oldest Read or atomic of the NIC
	fuzzWait            // let the NIC process everything
	fuzzSplit           // n: the NIC reads n bytes at a time
	fuzzChange          // kind: deregister, rebind, modify
	fuzzSteps
)

// The flags of a message.
const (
	fuzzMore      = 1 << iota // not the last segment
	fuzzBadCRC                // the CRC is wrong
	fuzzBadLength             // the length field is one too large
	fuzzBadNumber             // the MSN, MO or identifier is wrong
	fuzzShort                 // the body lacks a byte
	fuzzLong                  // the body has an extra byte
	fuzzBadDDP                // the reserved bits of DDP's control byte are inverted, and its version is 2
	fuzzBadRDMAP              // RDMAP's version is 2
)

// The regions that messages target, each of whose keys is named by its index.
const (
	fuzzAll    = iota // every right
	fuzzRead          // remote read
	fuzzWrite         // remote write
	fuzzAtomic        // remote atomic
	fuzzLocal         // for the NIC's own requests
	fuzzNone          // no rights
	fuzzOther         // in another domain
	fuzzGone          // deregistered
	fuzzRegions

	fuzzWindow  = fuzzRegions // on the second half of fuzzAll
	fuzzBeside  = fuzzWindow + 1
	fuzzNothing = fuzzBeside + 1 // a key that does not exist
	fuzzKeys    = fuzzNothing + 1

	fuzzSize  = 96  // bytes of a region
	fuzzGuard = 256 // bytes between regions
	fuzzStep  = fuzzSize + fuzzGuard

	fuzzRequests = 100 // most requests in a queue

	// fuzzRemote are the rights of windows, and the rights of the QP that scripts change.
	fuzzRemote = verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic
)

// fuzzRun is a running script.
type fuzzRun struct {
	t      *testing.T
	script []byte
	*rawEnd
	p    *wirePeer
	link *usiwtest.Link

	crc, marked bool
	pos         uint64 // position in the stream to the NIC
	mem         []byte // all memory that could be changed
	before      []byte // its contents at the start
	secret      []byte // fills the memory that no peer may read
	mrs         [fuzzRegions]*verbs.MR
	mw          [2]*verbs.MW
	msn         [8]uint32  // the next number on each queue
	mo          uint32     // offset in the unfinished Send
	srq         *verbs.SRQ // nil without fuzzShared
	recvs       int
	posts       int

	mu   sync.Mutex
	sent []byte // what the NIC has sent, as read by the peer
	seen int    // bytes of sent already searched for requests
	asks [][]byte
}

// next returns the next byte of the script, or 0 after its end.
func (r *fuzzRun) next() byte {
	if len(r.script) == 0 {
		return 0
	}
	b := r.script[0]
	r.script = r.script[1:]
	return b
}

// key returns a key and the address of the memory that it names.
func (r *fuzzRun) key() (key uint32, addr uint64) {
	switch i := r.next() % fuzzKeys; i {
	case fuzzWindow, fuzzBeside:
		addr = r.mrs[fuzzAll].Addr() + fuzzSize/2
		if mw := r.mw[i-fuzzWindow]; mw != nil {
			key = mw.RKey()
		}
		return key, addr
	case fuzzNothing:
		return 0x12345678, 0x1000
	default:
		return r.mrs[i].RKey(), r.mrs[i].Addr()
	}
}

// target returns a key, and an address from 128 bytes before the memory that it names to 127 after
// it, or at the end of the address space.
func (r *fuzzRun) target() (key uint32, addr uint64) {
	key, addr = r.key()
	switch off := int8(r.next()); off {
	case -128:
		return key, ^uint64(0) - 3
	default:
		return key, addr + uint64(int64(off))
	}
}

// fpdu sends a ULPDU with the faults selected by the flags.
func (r *fuzzRun) fpdu(u []byte, flags byte) {
	b := rawFPDU(u, r.crc)
	if flags&fuzzBadLength != 0 {
		b[1]++
	}
	if r.marked {
		b = mpa.AppendMarked(nil, r.pos, b, r.crc)
	}
	if flags&fuzzBadCRC != 0 {
		b[len(b)-1] ^= 1
	}
	r.raw(b)
}

// raw sends bytes. The NIC may have closed the stream.
func (r *fuzzRun) raw(b []byte) {
	_ = r.p.conn.SetWriteDeadline(time.Now().Add(time.Minute))
	n, _ := r.p.conn.Write(b)
	r.pos += uint64(n)
	// Bytes that do not fit into the sequence of markers end it: no markers follow from here on.
	r.pos &^= 3
}

// step executes one step.
func (r *fuzzRun) step() {
	switch r.next() % fuzzSteps {
	case fuzzRaw:
		n := min(int(r.next()), len(r.script))
		r.raw(r.script[:n])
		r.script = r.script[n:]
	case fuzzTagged:
		r.tagged()
	case fuzzUntagged:
		r.untagged()
	case fuzzRecv:
		r.receive()
	case fuzzPost:
		r.post()
	case fuzzAnswer:
		r.answer()
	case fuzzWait:
		synctest.Wait()
	case fuzzSplit:
		r.link.ToListener.Split(int(r.next()))
	case fuzzChange:
		r.change()
	}
}

// fuzzControl corrupts the first two bytes of a header.
func fuzzControl(u []byte, flags byte) []byte {
	if flags&fuzzBadDDP != 0 {
		u[0] ^= 0x3f
	}
	if flags&fuzzBadRDMAP != 0 {
		u[1] ^= 0xc0
	}
	return u
}

// fuzzBody makes a body too short or too long.
func fuzzBody(b []byte, flags byte) []byte {
	if flags&fuzzShort != 0 && len(b) > 0 {
		b = b[:len(b)-1]
	}
	if flags&fuzzLong != 0 {
		b = append(b, 0x99)
	}
	return b
}

func (r *fuzzRun) tagged() {
	flags, op := r.next(), rdmap.Opcode(r.next()&15)
	key, addr := r.target()
	h := ddp.Tagged{Last: flags&fuzzMore == 0, STag: key, TO: addr}
	u := rawTaggedSegment(op, h, fuzzBody(pattern(int(r.next()), 0x80), flags))
	r.fpdu(fuzzControl(u, flags), flags)
}

func (r *fuzzRun) untagged() {
	flags, op := r.next(), rdmap.Opcode(r.next()&15)
	h := ddp.Untagged{Last: flags&fuzzMore == 0, QN: uint32(r.next() & 7)}
	h.MSN = r.msn[h.QN]
	var b []byte
	switch op {
	case rdmap.OpReadRequest:
		req := rdmap.ReadRequest{SinkSTag: 1, SinkTO: 2}
		req.SrcSTag, req.SrcTO = r.target()
		if req.Size = uint32(r.next()); req.Size == 255 {
			req.Size = 1 << 31
		}
		b = make([]byte, rdmap.ReadRequestLen)
		req.Put(b)
	case rdmap.OpAtomicRequest:
		req := rdmap.AtomicRequest{Op: rdmap.AtomicOp(r.next()), ID: 7, AddSwap: 1, AddSwapMask: 0x80, Compare: 1,
			CompareMask: 1}
		req.STag, req.TO = r.target()
		b = make([]byte, rdmap.AtomicRequestLen)
		req.Put(b)
	case rdmap.OpAtomicResponse:
		b = make([]byte, rdmap.AtomicResponseLen)
		rdmap.AtomicResponse{ID: uint32(r.next()), Value: 5}.Put(b)
	case rdmap.OpImmediate, rdmap.OpImmediateSE:
		b = pattern(rdmap.ImmediateLen, 0x70)
	case rdmap.OpTerminate:
		b = []byte{r.next(), r.next(), r.next(), r.next()}
		n := min(len(r.script), 48)
		b = append(b, r.script[:n]...)
	default:
		b = pattern(int(r.next()), 0x60)
		h.MO = r.mo
		if op == rdmap.OpSendInv || op == rdmap.OpSendSEInv {
			h.InvSTag, _ = r.key()
		}
	}
	b = fuzzBody(b, flags)
	if flags&fuzzBadNumber != 0 {
		if v := r.next(); v&1 == 0 {
			h.MSN += uint32(v >> 1)
		} else {
			h.MO += uint32(v)
		}
	}
	if r.mo += uint32(len(b)); h.Last {
		r.mo = 0
		r.msn[h.QN]++
	}
	r.fpdu(fuzzControl(rawSegment(op, h, b), flags), flags)
}

// sgl returns memory for the NIC's own requests: valid, past the end, with an invalid key, with the
// key of a window, in three pieces, or none.
func (r *fuzzRun) sgl(kind byte, n uint32) []verbs.SGE {
	local := r.mrs[fuzzLocal]
	s := verbs.SGE{Addr: local.Addr() + 8, Length: n, LKey: local.LKey()}
	switch kind & 7 {
	case 1:
		s.Addr += fuzzSize
	case 2:
		s.LKey ^= 1
	case 3:
		s.LKey, s.Addr = r.mrs[fuzzOther].LKey(), r.mrs[fuzzOther].Addr()
	case 4:
		s.LKey, s.Addr = r.mrs[fuzzNone].LKey(), r.mrs[fuzzNone].Addr()
	case 5:
		return []verbs.SGE{{Addr: s.Addr, Length: n / 3, LKey: s.LKey}, {},
			{Addr: s.Addr + uint64(n/3), Length: n - n/3, LKey: s.LKey}}
	case 6:
		return nil
	}
	return []verbs.SGE{s}
}

func (r *fuzzRun) receive() {
	sgl := r.sgl(r.next(), 80)
	if r.recvs < fuzzRequests {
		post := r.qp.PostRecv
		if r.srq != nil {
			post = r.srq.PostRecv
		}
		n, _ := post([]verbs.RecvWR{{ID: uint64(r.recvs), SGL: sgl}})
		r.recvs += n
	}
}

func (r *fuzzRun) post() {
	op := verbs.WROpcode(r.next() % 16)
	if op == 15 {
		op = verbs.WRImmData
	}
	wr := verbs.SendWR{ID: uint64(r.posts), Opcode: op, Imm: 1, Imm64: 2, Add: 3}
	kind := r.next()
	wr.Flags = verbs.SendFlags(kind>>4) & (verbs.SendFence | verbs.SendSolicited)
	wr.RKey, wr.InvalidateRKey = 0x1111, 0x2222
	switch op {
	case verbs.WRAtomicCmpAndSwp, verbs.WRAtomicFetchAndAdd, verbs.WRMaskedAtomicCmpAndSwp,
		verbs.WRMaskedAtomicFetchAndAdd:
		wr.SGL = r.sgl(kind, 8)
	case verbs.WRLocalInv:
		wr.InvalidateRKey, _ = r.key()
	case verbs.WRImmData:
	case verbs.WRSend, verbs.WRSendWithInv, verbs.WRRDMAWrite, verbs.WRRDMAWriteWithImm:
		// Data that the NIC may read locally may be secret to the peer, but it is no violation if
		// the NIC's own program sends them.
		all := r.mrs[fuzzAll]
		wr.SGL = []verbs.SGE{{Addr: all.Addr(), Length: uint32(r.next()) % fuzzSize, LKey: all.LKey()}}
	default:
		wr.SGL = r.sgl(kind, 64)
	}
	r.send(wr)
}

// answer answers the NIC's oldest request: completely, in part, or wrongly.
func (r *fuzzRun) answer() {
	flags := r.next()
	r.look()
	if len(r.asks) == 0 {
		return
	}
	u := r.asks[0]
	if flags&fuzzMore == 0 {
		r.asks = r.asks[1:]
	}
	if opcodeOf(u) == rdmap.OpAtomicRequest {
		req, _ := rdmap.ParseAtomicRequest(u[ddp.UntaggedLen:])
		if flags&fuzzBadNumber != 0 {
			req.ID++
		}
		a := make([]byte, rdmap.AtomicResponseLen)
		rdmap.AtomicResponse{ID: req.ID, Value: 9}.Put(a)
		h := ddp.Untagged{Last: flags&fuzzMore == 0, QN: ddp.QNAtomicResponse, MSN: r.msn[ddp.QNAtomicResponse]}
		a = rawSegment(rdmap.OpAtomicResponse, h, fuzzBody(a, flags))
		r.msn[ddp.QNAtomicResponse]++
		r.fpdu(fuzzControl(a, flags), flags)
		return
	}
	req, _ := rdmap.ParseReadRequest(u[ddp.UntaggedLen:])
	n := req.Size
	if flags&fuzzMore != 0 {
		// The rest is left to the next answer.
		n /= 2
		rest := req
		rest.SinkTO += uint64(n)
		rest.Size -= n
		rest.Put(u[ddp.UntaggedLen:])
	}
	if flags&fuzzBadNumber != 0 {
		req.SinkTO += uint64(int64(int8(r.next())))
	}
	h := ddp.Tagged{Last: flags&fuzzMore == 0, STag: req.SinkSTag, TO: req.SinkTO}
	a := rawTaggedSegment(rdmap.OpReadResponse, h, fuzzBody(pattern(int(n), 0x50), flags))
	r.fpdu(fuzzControl(a, flags), flags)
}

// change changes the objects that later messages use.
func (r *fuzzRun) change() {
	switch kind := r.next(); kind % 5 {
	case 0:
		require.NoError(r.t, r.mrs[kind/5%fuzzRegions].Close())
	case 1:
		if mw := r.mw[kind/5%2]; mw != nil {
			r.bind(mw)
		}
	case 2:
		if mw := r.mw[kind/5%2]; mw != nil {
			r.send(verbs.SendWR{Opcode: verbs.WRLocalInv, InvalidateRKey: mw.RKey()})
		}
	case 3:
		_ = r.qp.Modify(verbs.QPAttr{AccessFlags: verbs.AccessFlags(kind/5) & fuzzRemote}, verbs.QPAttrAccessFlags)
	case 4:
		if kind/5%4 == 3 {
			require.NoError(r.t, r.id.Disconnect())
			return
		}
		time.Sleep(time.Second)
	}
}

// look finds requests in the bytes that the NIC has sent. It does not handle markers, so with
// markers no request is answered.
func (r *fuzzRun) look() {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	for b := r.sent[r.seen:]; len(b) >= mpa.LengthLen; b = r.sent[r.seen:] {
		n := int(binary.BigEndian.Uint16(b))
		if n < ddp.TaggedLen || len(b) < mpa.FPDULen(n) {
			return
		}
		u := b[mpa.LengthLen:][:n]
		if op := opcodeOf(u); (op == rdmap.OpReadRequest || op == rdmap.OpAtomicRequest) && !ddp.IsTagged(u[0]) {
			r.asks = append(r.asks, bytes.Clone(u))
		}
		r.seen += mpa.FPDULen(n)
	}
}
