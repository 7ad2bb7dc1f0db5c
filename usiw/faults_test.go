// SPDX-License-Identifier: BSD-3-Clause

package usiw_test

import (
	"bytes"
	"encoding/binary"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/iwarp/ddp"
	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/verbs"
)

// faultEnv holds the targets of the invalid messages in the tables.
type faultEnv struct {
	*rawEnd
	p       *rawPeer
	all     *verbs.MR // 64 bytes at 0x10000, every right
	odd     *verbs.MR // the same memory from its second byte on, at 0x10000
	local   *verbs.MR // only AccessLocalWrite
	read    *verbs.MR // only AccessRemoteRead
	write   *verbs.MR // only AccessRemoteWrite
	foreign *verbs.MR // every right, in another protection domain
	gone    uint32    // the key of a deregistered region
	ids     []uint32  // identifiers of our atomics, as seen by the peer
	sink    *verbs.MR // destination of our Reads and atomics
}

func newFaultEnv(n *rawNIC, o rawOpts) *faultEnv {
	n.t.Helper()
	v := &faultEnv{}
	v.rawEnd, v.p = n.passive(o)
	content := bytes.Repeat([]byte{0xa5}, 64)
	v.all = n.region(n.pd, content, 0x10000, rawAccess)
	v.local = n.region(n.pd, content, 0x10000, verbs.AccessLocalWrite)
	v.read = n.region(n.pd, content, 0x10000, verbs.AccessRemoteRead)
	v.write = n.region(n.pd, content, 0x10000, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	v.sink = n.region(n.pd, content, 0x10000, verbs.AccessLocalWrite)
	var err error
	v.odd, err = n.pd.RegMRIova(v.all.Bytes()[1:60], 0x10000, rawAccess)
	require.NoError(n.t, err)
	n.t.Cleanup(func() { require.NoError(n.t, v.odd.Close()) })
	other, err := n.ctx.AllocPD()
	require.NoError(n.t, err)
	n.t.Cleanup(func() { require.NoError(n.t, other.Close()) })
	v.foreign = n.region(other, content, 0x10000, rawAccess)
	mr, err := n.pd.RegMRIova(v.all.Bytes(), 0x10000, rawAccess)
	require.NoError(n.t, err)
	v.gone = mr.RKey()
	require.NoError(n.t, mr.Close())
	return v
}

// intact requires that no invalid message changed memory.
func (v *faultEnv) intact() {
	v.t.Helper()
	for _, mr := range []*verbs.MR{v.all, v.local, v.read, v.write, v.foreign, v.sink} {
		untouched(v.t, mr)
	}
}

// atomics posts FetchAdds and reads their requests.
func (v *faultEnv) atomics(count int) {
	v.t.Helper()
	s, err := v.sink.SGE(0, 8)
	require.NoError(v.t, err)
	for i := range count {
		v.post(verbs.SendWR{ID: uint64(i), Opcode: verbs.WRAtomicFetchAndAdd, SGL: []verbs.SGE{s}})
		u := v.p.read()
		r, err := rdmap.ParseAtomicRequest(u[ddp.UntaggedLen:])
		require.NoError(v.t, err)
		v.ids = append(v.ids, r.ID)
	}
}

// reads posts one Read and reads its request.
func (v *faultEnv) reads(bytes int) {
	v.t.Helper()
	s, err := v.sink.SGE(0, bytes)
	require.NoError(v.t, err)
	v.post(verbs.SendWR{Opcode: verbs.WRRDMARead, SGL: []verbs.SGE{s}})
	v.p.read()
}

// add returns an atomic request on a region.
func add(mr *verbs.MR, off int64) rdmap.AtomicRequest {
	return rdmap.AtomicRequest{ID: 3, STag: mr.RKey(), TO: mr.Addr() + uint64(off), AddSwap: 1}
}

// fetch returns a Read Request for part of a region.
func fetch(mr *verbs.MR, off int64, size uint32) rdmap.ReadRequest {
	return rdmap.ReadRequest{SinkSTag: 1, SinkTO: 2, Size: size, SrcSTag: mr.RKey(), SrcTO: mr.Addr() + uint64(off)}
}

// with replaces bytes of a ULPDU.
func with(u []byte, off int, v ...byte) []byte {
	u = bytes.Clone(u)
	copy(u[off:], v)
	return u
}

// eight is a payload.
var eight = []byte{1, 2, 3, 4, 5, 6, 7, 8}

// faultCase is a message for which the NIC must send a Terminate.
type faultCase struct {
	name   string
	send   faultMsgs
	want   faultCode
	recv   []int            // sizes of the posted receives
	status []verbs.WCStatus // of the receives (nil = all flushed)
	opt    rawOpts
}

// faultMsgs prepares the NIC's side and returns the messages, the last of which is invalid.
type faultMsgs func(v *faultEnv) [][]byte

// faultCode describes the expected Terminate.
type faultCode struct {
	layer, typ, code uint8
	quote            rawQuote
}

// The codes are defined in RFC 5040 section 4.8 and RFC 5041 section 7.2. All of them quote the DDP
// header (RFC 5040 figure 10).
var (
	badDDPVersion    = faultCode{1, 2, 6, quoteDDP}
	badTaggedVersion = faultCode{1, 1, 4, quoteDDP}
	badRDMAPVersion  = faultCode{0, 2, 5, quoteDDP}

	badOpcode = faultCode{0, 2, 6, quoteDDP}
	badStream = faultCode{0, 2, 7, quoteDDP} // catastrophic error, localized to the stream

	badQN    = faultCode{1, 2, 1, quoteDDP}
	noBuffer = faultCode{1, 2, 2, quoteDDP}
	badMSN   = faultCode{1, 2, 3, quoteDDP}
	badMO    = faultCode{1, 2, 4, quoteDDP}
	tooLong  = faultCode{1, 2, 5, quoteDDP}

	// Tagged messages: DDP codes, except for rights, for which only RDMAP has a code.
	taggedKey    = faultCode{1, 1, 0, quoteDDP}
	taggedBounds = faultCode{1, 1, 1, quoteDDP}
	taggedPD     = faultCode{1, 1, 2, quoteDDP}
	taggedWrap   = faultCode{1, 1, 3, quoteDDP}
	taggedRight  = faultCode{0, 1, 2, quoteDDP}

	// Source of a Read: RDMAP codes, and the Read Request is quoted.
	readKey    = faultCode{0, 1, 0, quoteRead}
	readBounds = faultCode{0, 1, 1, quoteRead}
	readRight  = faultCode{0, 1, 2, quoteRead}
	readPD     = faultCode{0, 1, 3, quoteRead}
	readWrap   = faultCode{0, 1, 4, quoteRead}

	// Target of an atomic: likewise, but the atomic header is not quoted (RFC 7306 section 8.1).
	atomicKey    = faultCode{0, 1, 0, quoteDDP}
	atomicBounds = faultCode{0, 1, 1, quoteDDP}
	atomicRight  = faultCode{0, 1, 2, quoteDDP}
	atomicPD     = faultCode{0, 1, 3, quoteDDP}
	atomicWrap   = faultCode{0, 1, 4, quoteDDP}

	cannotInvalidate = faultCode{0, 1, 9, quoteDDP} // a key that the peer may not invalidate
	nothingToInvalid = faultCode{0, 2, 9, quoteDDP} // not a key at all
)

// faultCases is the table of possible faults in a message.
func faultCases() (all []faultCase) {
	for _, group := range []func() []faultCase{versionFaults, opcodeFaults, queueFaults, sequenceFaults, offsetFaults,
		lengthFaults,
		writeFaults, readFaults, atomicFaults, atomicAnswerFaults, readAnswerFaults, invalidateFaults} {
		all = append(all, group()...)
	}
	return all
}

// msgs sends fixed messages.
func msgs(u ...[]byte) faultMsgs { return func(*faultEnv) [][]byte { return u } }

// msg sends one message.
func msg(f func(v *faultEnv) []byte) faultMsgs {
	return func(v *faultEnv) [][]byte { return [][]byte{f(v)} }
}

// goodWrite, goodRead and goodAtomic return valid messages with some bytes replaced.
func goodWrite(off int, bytes ...byte) faultMsgs {
	return msg(func(v *faultEnv) []byte {
		return with(rawTagged(rdmap.OpWrite, v.all.RKey(), v.all.Addr(), eight), off, bytes...)
	})
}

func goodRead(off int, bytes ...byte) faultMsgs {
	return msg(func(v *faultEnv) []byte { return with(rawRead(1, fetch(v.all, 0, 8)), off, bytes...) })
}

func goodAtomic(off int, bytes ...byte) faultMsgs {
	return msg(func(v *faultEnv) []byte { return with(rawAtomic(1, add(v.all, 0)), off, bytes...) })
}

// Offsets of fields in a ULPDU.
const (
	atDDP     = 0
	atRDMAP   = 1
	atQN      = 6 + 3
	atMO      = 14 + 3
	atAtomicO = 18 + 3
	atTarget  = 18 + 8
)

func versionFaults() []faultCase {
	return []faultCase{
		{name: "DV 0, Send", send: msgs(with(rawSend(1, eight), atDDP, 0x40)), want: badDDPVersion, recv: []int{8}},
		{name: "DV 2, Send", send: msgs(with(rawSend(1, eight), atDDP, 0x42)), want: badDDPVersion, recv: []int{8}},
		{name: "DV 3, Immediate Data", send: msgs(with(rawImm(1, 7), atDDP, 0x43)), want: badDDPVersion,
			recv: []int{8}},
		{name: "DV 0, Write", send: goodWrite(atDDP, 0xc0), want: badTaggedVersion},
		{name: "DV 2, Write", send: goodWrite(atDDP, 0xc2), want: badTaggedVersion},
		{name: "RV 0, Write", send: goodWrite(atRDMAP, 0x00), want: badRDMAPVersion},
		{name: "RV 0, Send", send: msgs(with(rawSend(1, eight), atRDMAP, 0x03)), want: badRDMAPVersion, recv: []int{8}},
		{name: "RV 2, Immediate Data", send: msgs(with(rawImm(1, 7), atRDMAP, 0x88)), want: badRDMAPVersion,
			recv: []int{8}},
		{name: "RV 0, Read Request", send: goodRead(atRDMAP, 0x01), want: badRDMAPVersion},
		{name: "RV 3, Atomic Request", send: goodAtomic(atRDMAP, 0xca), want: badRDMAPVersion},
		{name: "DV 2, Atomic Response", send: msgs(with(rawAtomicResponse(1, 1, 1), atDDP, 0x42)), want: badDDPVersion},
	}
}

// opcodeFaults are unknown opcodes, and known ones where they are not allowed.
func opcodeFaults() []faultCase {
	response := make([]byte, rdmap.AtomicResponseLen)
	cases := []faultCase{
		{name: "Write untagged", send: msgs(rawUntagged(rdmap.OpWrite, 0, 1, eight))},
		{name: "Read Response untagged", send: msgs(rawUntagged(rdmap.OpReadResponse, 0, 1, eight))},
		{name: "Send on queue 1", send: msgs(rawUntagged(rdmap.OpSend, 1, 1, eight))},
		{name: "Send with Invalidate on queue 3", send: msgs(rawUntagged(rdmap.OpSendInv, 3, 1, eight))},
		{name: "Immediate Data on queue 1", send: msgs(rawUntagged(rdmap.OpImmediate, 1, 1, eight))},
		{name: "Immediate Data on queue 3", send: msgs(rawUntagged(rdmap.OpImmediateSE, 3, 1, eight))},
		{name: "Read Request on queue 0", send: goodRead(atQN, 0)},
		{name: "Atomic Request on queue 0", send: goodAtomic(atQN, 0)},
		{name: "Atomic Request on queue 3", send: goodAtomic(atQN, 3)},
		{name: "Atomic Response on queue 1", send: msgs(rawUntagged(rdmap.OpAtomicResponse, 1, 1, response))},
		{name: "Terminate on queue 0", send: msgs(rawUntagged(rdmap.OpTerminate, 0, 1, make([]byte, 4)))},
	}
	for op := rdmap.Opcode(12); op <= 15; op++ {
		cases = append(cases, faultCase{name: "untagged " + op.String(), send: msgs(rawUntagged(op, 0, 1, eight))})
	}
	for op := rdmap.OpReadRequest; op <= 15; op++ {
		if op != rdmap.OpReadResponse {
			tagged := func(v *faultEnv) []byte { return rawTagged(op, v.all.RKey(), v.all.Addr(), eight) }
			cases = append(cases, faultCase{name: "tagged " + op.String(), send: msg(tagged)})
		}
	}
	for i := range cases {
		cases[i].want, cases[i].recv = badOpcode, []int{64}
	}
	return cases
}

// queueFaults are messages on nonexistent queues.
func queueFaults() (cases []faultCase) {
	for op, size := range map[rdmap.Opcode]int{rdmap.OpSend: 8, rdmap.OpSendInv: 8,
		rdmap.OpImmediate:   rdmap.ImmediateLen,
		rdmap.OpReadRequest: rdmap.ReadRequestLen, rdmap.OpAtomicRequest: rdmap.AtomicRequestLen,
		rdmap.OpAtomicResponse: rdmap.AtomicResponseLen, rdmap.OpTerminate: rdmap.TerminateLen} {
		for _, qn := range []uint32{4, 0xffffffff} {
			cases = append(cases, faultCase{name: op.String() + " on a queue that does not exist",
				send: msgs(rawUntagged(op, qn, 1, make([]byte, size))), want: badQN, recv: []int{8}})
		}
	}
	return cases
}

func sequenceFaults() []faultCase {
	const ok, flush = verbs.WCSuccess, verbs.WCWRFlushErr
	return []faultCase{
		{name: "Send without receive", send: msgs(rawSend(1, eight)), want: noBuffer},
		{name: "empty Send without receive", send: msgs(rawSend(1, nil)), want: noBuffer},
		{name: "one Send more than receives", send: msgs(rawSend(1, nil), rawSend(2, nil)), want: noBuffer,
			recv: []int{0}, status: []verbs.WCStatus{ok}},
		{name: "Immediate Data without receive", send: msgs(rawImm(1, 7)), want: noBuffer},
		{name: "Send MSN 0", send: msgs(rawSend(0, eight)), want: badMSN, recv: []int{8}},
		{name: "Send MSN 2 first", send: msgs(rawSend(2, eight)), want: badMSN, recv: []int{8, 8}},
		{name: "Send MSN 1 twice", send: msgs(rawSend(1, eight), rawSend(1, eight)), want: badMSN,
			recv: []int{8, 8}, status: []verbs.WCStatus{ok, flush}},
		{name: "Send MSN changed within the message",
			send: msgs(rawSegment(rdmap.OpSend, ddp.Untagged{MSN: 1}, eight[:4]),
				rawSegment(rdmap.OpSend, ddp.Untagged{MSN: 2, MO: 4, Last: true}, eight[:4])), want: badMSN,
			recv: []int{8}},
		{name: "Immediate Data MSN 2 first", send: msgs(rawImm(2, 7)), want: badMSN, recv: []int{8, 8}},
		{name: "Immediate Data with the MSN of a Send", send: msgs(rawSend(1, nil), rawImm(1, 7)), want: badMSN,
			recv: []int{8, 8}, status: []verbs.WCStatus{ok, flush}},
		{name: "Read Request MSN 2 first", send: goodRead(13, 2), want: badMSN},
		{name: "Atomic Request MSN 2 first", send: goodAtomic(13, 2), want: badMSN},
		{name: "Atomic Request MSN 0", send: goodAtomic(13, 0), want: badMSN},
		{name: "Atomic Request with the MSN of a Read", send: func(v *faultEnv) [][]byte {
			v.fence(1)
			return [][]byte{rawAtomic(1, add(v.all, 0))}
		}, want: badMSN},
		{name: "Terminate MSN 2 first", send: msgs(rawUntagged(rdmap.OpTerminate, 2, 2, make([]byte, 4))),
			want: badMSN},
	}
}

func offsetFaults() []faultCase {
	first := rawSegment(rdmap.OpSend, ddp.Untagged{MSN: 1}, nil)
	cases := []faultCase{
		{name: "Send MO 5 first", send: msgs(with(rawSend(1, eight), atMO, 5))},
		{name: "Send with a gap", send: msgs(first, with(rawSend(1, eight), atMO, 5))},
		{name: "Send MO far beyond", send: msgs(with(rawSend(1, eight), atMO-3, 0xff, 0xff, 0xff, 0xf8))},
		{name: "Immediate Data MO 8", send: msgs(with(rawImm(1, 7), atMO, 8))},
		{name: "Immediate Data without L", send: msgs(with(rawImm(1, 7), atDDP, 0x01))},
		{name: "Read Request MO 8", send: goodRead(atMO, 8)},
		{name: "Read Request without L", send: goodRead(atDDP, 0x01)},
		{name: "Atomic Request MO 8", send: goodAtomic(atMO, 8)},
		{name: "Atomic Request without L", send: goodAtomic(atDDP, 0x01)},
		{name: "Terminate MO 4", send: msgs(with(rawTerminate(rdmap.Terminate{Type: 2, Code: 8}), atMO, 4))},
		{name: "Terminate without L", send: msgs(with(rawTerminate(rdmap.Terminate{Type: 2, Code: 8}), atDDP, 0x01))},
		{name: "Send whose MO goes back", send: msgs(rawSegment(rdmap.OpSend, ddp.Untagged{MSN: 1}, eight[:4]),
			rawSegment(rdmap.OpSend, ddp.Untagged{MSN: 1, MO: 2, Last: true}, eight[:4]))},
		{name: "Send that begins again",
			send: msgs(rawSegment(rdmap.OpSend, ddp.Untagged{MSN: 1}, eight[:4]), rawSend(1, eight))},
	}
	for i := range cases {
		cases[i].want, cases[i].recv = badMO, []int{64}
	}
	return cases
}

func lengthFaults() []faultCase {
	const short, flush = verbs.WCLocLenErr, verbs.WCWRFlushErr
	segment := func(n int) faultMsgs {
		return msgs(rawSegment(rdmap.OpSend, ddp.Untagged{MSN: 1}, nil), rawSend(1, make([]byte, n)))
	}
	immediate := func(op rdmap.Opcode, n int) faultMsgs { return msgs(rawUntagged(op, 0, 1, make([]byte, n))) }
	request := func(op rdmap.Opcode, n int) faultMsgs { return msgs(rawUntagged(op, 1, 1, make([]byte, n))) }
	return []faultCase{
		{name: "Send longer than the receive", send: msgs(rawSend(1, eight)), want: tooLong,
			recv: []int{7, 8}, status: []verbs.WCStatus{short, flush}},
		{name: "Send into an empty receive", send: msgs(rawSend(1, eight[:1])), want: tooLong,
			recv: []int{0}, status: []verbs.WCStatus{short}},
		{name: "Send longer than the receive with its second segment", send: segment(17), want: tooLong,
			recv: []int{16}, status: []verbs.WCStatus{short}},
		{name: "Immediate Data of 9 bytes", send: immediate(rdmap.OpImmediate, 9), want: tooLong, recv: []int{64}},
		{name: "Immediate Data with Solicited Event of 9 bytes", send: immediate(rdmap.OpImmediateSE, 9), want: tooLong,
			recv: []int{64}},
		{name: "Immediate Data of 7 bytes", send: immediate(rdmap.OpImmediate, 7), want: badStream, recv: []int{64}},
		{name: "Immediate Data of no bytes", send: immediate(rdmap.OpImmediateSE, 0), want: badStream,
			recv: []int{64}},
		{name: "Read Request too long", send: request(rdmap.OpReadRequest, rdmap.ReadRequestLen+1), want: tooLong},
		{name: "Read Request too short", send: request(rdmap.OpReadRequest, rdmap.ReadRequestLen-1), want: badStream},
		{name: "Atomic Request too long", send: request(rdmap.OpAtomicRequest, rdmap.AtomicRequestLen+1),
			want: tooLong},
		{name: "Atomic Request too short", send: request(rdmap.OpAtomicRequest, rdmap.AtomicRequestLen-1),
			want: badStream},
		{name: "Atomic Request without header", send: request(rdmap.OpAtomicRequest, 0), want: badStream},
	}
}

func writeFaults() []faultCase {
	to := func(mr func(v *faultEnv) *verbs.MR, off int64, n int) faultMsgs {
		return msg(func(v *faultEnv) []byte {
			return rawTagged(rdmap.OpWrite, mr(v).RKey(), mr(v).Addr()+uint64(off), make([]byte, n))
		})
	}
	all := func(v *faultEnv) *verbs.MR { return v.all }
	return []faultCase{
		{name: "Write, key 0", send: goodWrite(2, 0, 0, 0, 0), want: taggedKey},
		{name: "Write, unknown key", send: msg(func(v *faultEnv) []byte {
			return rawTagged(rdmap.OpWrite, v.all.RKey()^0x12345600, v.all.Addr(), eight)
		}), want: taggedKey},
		{name: "Write, key differs in the low byte", send: msg(func(v *faultEnv) []byte {
			return rawTagged(rdmap.OpWrite, v.all.RKey()^1, v.all.Addr(), eight)
		}), want: taggedKey},
		{name: "Write, freed key", send: msg(func(v *faultEnv) []byte {
			return rawTagged(rdmap.OpWrite, v.gone, v.all.Addr(), eight)
		}), want: taggedKey},
		{name: "Write, one byte past", send: to(all, 57, 8), want: taggedBounds},
		{name: "Write, one byte before", send: to(all, -1, 8), want: taggedBounds},
		{name: "Write, far away", send: to(all, 1<<62, 8), want: taggedBounds},
		{name: "Write, larger than the region", send: to(all, 0, 65), want: taggedBounds},
		{name: "Write, second segment one byte past", send: func(v *faultEnv) [][]byte {
			first := ddp.Tagged{STag: v.all.RKey(), TO: v.all.Addr()}
			return [][]byte{rawTaggedSegment(rdmap.OpWrite, first, bytes.Repeat([]byte{0xa5}, 60)),
				rawTagged(rdmap.OpWrite, v.all.RKey(), v.all.Addr()+60, make([]byte, 5))}
		}, want: taggedBounds},
		{name: "Write, wrap", send: goodWrite(6, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xf9), want: taggedWrap},
		{name: "Write, other domain", send: to(func(v *faultEnv) *verbs.MR { return v.foreign }, 0, 8), want: taggedPD},
		{name: "Write, right lacking", send: to(func(v *faultEnv) *verbs.MR { return v.read }, 0, 8),
			want: taggedRight},
		{name: "Write, local right only", send: to(func(v *faultEnv) *verbs.MR { return v.local }, 0, 8),
			want: taggedRight},
	}
}

func readFaults() []faultCase {
	from := func(mr func(v *faultEnv) *verbs.MR, off int64, n uint32) faultMsgs {
		return msg(func(v *faultEnv) []byte { return rawRead(1, fetch(mr(v), off, n)) })
	}
	all := func(v *faultEnv) *verbs.MR { return v.all }
	none := rawOpts{param: cm.ConnParam{ResponderResources: cm.None}}
	return []faultCase{
		{name: "Read, unknown key", send: goodRead(34, 0, 0, 0, 0), want: readKey},
		{name: "Read, freed key", send: msg(func(v *faultEnv) []byte {
			return rawRead(1, rdmap.ReadRequest{Size: 8, SrcSTag: v.gone, SrcTO: 0x10000})
		}), want: readKey},
		{name: "Read, one byte past", send: from(all, 0, 65), want: readBounds},
		{name: "Read, one byte before", send: from(all, -1, 8), want: readBounds},
		{name: "Read, 4 GiB", send: from(all, 0, 0xffffffff), want: readBounds},
		{name: "Read, wrap", send: goodRead(38, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xf9), want: readWrap},
		{name: "Read, right lacking", send: from(func(v *faultEnv) *verbs.MR { return v.write }, 0, 8),
			want: readRight},
		{name: "Read, other domain", send: from(func(v *faultEnv) *verbs.MR { return v.foreign }, 0, 8), want: readPD},
		{name: "Read, none agreed", send: from(all, 0, 8), want: noBuffer, opt: none},
	}
}

// atomicFaults also test the order of the checks: operation, key, right, bounds, alignment.
func atomicFaults() []faultCase {
	on := func(mr func(v *faultEnv) *verbs.MR, off int64) faultMsgs {
		return msg(func(v *faultEnv) []byte { return rawAtomic(1, add(mr(v), off)) })
	}
	all := func(v *faultEnv) *verbs.MR { return v.all }
	write := func(v *faultEnv) *verbs.MR { return v.write }
	none := rawOpts{param: cm.ConnParam{ResponderResources: cm.None}}
	return []faultCase{
		{name: "atomic, unknown operation 1", send: goodAtomic(atAtomicO, 1), want: badOpcode},
		{name: "atomic, unknown operation 3", send: goodAtomic(atAtomicO, 3), want: badOpcode},
		{name: "atomic, unknown operation 15", send: goodAtomic(atAtomicO, 15), want: badOpcode},
		{name: "atomic, unknown key", send: goodAtomic(atTarget, 0, 0, 0, 0), want: atomicKey},
		{name: "atomic, freed key", send: msg(func(v *faultEnv) []byte {
			return rawAtomic(1, rdmap.AtomicRequest{STag: v.gone, TO: 0x10000})
		}), want: atomicKey},
		{name: "atomic, one word past", send: on(all, 64), want: atomicBounds},
		{name: "atomic, one byte past", send: on(all, 57), want: atomicBounds},
		{name: "atomic, one word before", send: on(all, -8), want: atomicBounds},
		{name: "atomic, wrap", send: goodAtomic(atTarget+4, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xf9),
			want: atomicWrap},
		{name: "atomic, right lacking", send: on(write, 0), want: atomicRight},
		{name: "atomic, other domain", send: on(func(v *faultEnv) *verbs.MR { return v.foreign }, 0), want: atomicPD},
		{name: "atomic, offset not aligned", send: on(all, 4), want: badStream},
		{name: "atomic, memory not aligned", send: on(func(v *faultEnv) *verbs.MR { return v.odd }, 8),
			want: badStream},
		{name: "CmpSwap, not aligned", send: msg(func(v *faultEnv) []byte {
			r := add(v.all, 1)
			r.Op, r.AddSwapMask = rdmap.AtomicCmpSwap, ^uint64(0)
			return rawAtomic(1, r)
		}), want: badStream},
		{name: "unknown operation before unknown key",
			send: msgs(with(rawAtomic(1, rdmap.AtomicRequest{}), atAtomicO, 1)), want: badOpcode},
		{name: "right before bounds", send: on(write, 64), want: atomicRight},
		{name: "bounds before alignment", send: on(all, 61), want: atomicBounds},
		{name: "atomic, none agreed", send: on(all, 0), want: noBuffer, opt: none},
	}
}

// atomicAnswerFaults are Atomic Responses that do not match a request of ours.
func atomicAnswerFaults() []faultCase {
	// answer sends f(id) while the given number of atomics are outstanding.
	answer := func(count int, f func(ids []uint32) []byte) faultMsgs {
		return msg(func(v *faultEnv) []byte {
			v.atomics(count)
			return f(v.ids)
		})
	}
	changed := func(off int, b byte) faultMsgs {
		return answer(1, func(ids []uint32) []byte { return with(rawAtomicResponse(1, ids[0], 1), off, b) })
	}
	return []faultCase{
		{name: "Atomic Response to nothing", send: msgs(rawAtomicResponse(1, 1, 1)), want: noBuffer},
		{name: "Atomic Response to a Read", send: msg(func(v *faultEnv) []byte {
			v.reads(8)
			return rawAtomicResponse(1, 1, 1)
		}), want: noBuffer},
		{name: "Atomic Response MSN 2 first", send: answer(2, func(ids []uint32) []byte {
			return rawAtomicResponse(2, ids[0], 1)
		}), want: badMSN},
		{name: "Atomic Response with a wrong identifier", send: answer(1, func(ids []uint32) []byte {
			return rawAtomicResponse(1, ids[0]+100, 1)
		}), want: badStream},
		{name: "Atomic Response with the next identifier", send: answer(2, func(ids []uint32) []byte {
			return rawAtomicResponse(1, ids[1], 1)
		}), want: badStream},
		{name: "Atomic Response MO 8", send: changed(atMO, 8), want: badMO},
		{name: "Atomic Response without L", send: changed(atDDP, 0x01), want: badMO},
		{name: "Atomic Response too long", send: answer(1, func(ids []uint32) []byte {
			return append(rawAtomicResponse(1, ids[0], 1), 0)
		}), want: tooLong},
		{name: "Atomic Response too short", send: answer(1, func(ids []uint32) []byte {
			return rawAtomicResponse(1, ids[0], 1)[:29]
		}), want: badStream},
	}
}

// readAnswerFaults are Read Responses that do not match a request of ours.
func readAnswerFaults() []faultCase {
	// answer sends f while a Read of 8 bytes is outstanding.
	answer := func(f func(stag uint32, to uint64) [][]byte) faultMsgs {
		return func(v *faultEnv) [][]byte {
			v.reads(8)
			return f(v.sink.LKey(), v.sink.Addr())
		}
	}
	part := func(off int64, body []byte) faultMsgs {
		return answer(func(stag uint32, to uint64) [][]byte {
			return [][]byte{rawTagged(rdmap.OpReadResponse, stag, to+uint64(off), body)}
		})
	}
	return []faultCase{
		{name: "Read Response to nothing", send: msg(func(v *faultEnv) []byte {
			return rawTagged(rdmap.OpReadResponse, v.sink.LKey(), v.sink.Addr(), eight)
		}), want: taggedKey},
		{name: "empty Read Response to nothing", send: msgs(rawTagged(rdmap.OpReadResponse, 1, 2, nil)),
			want: taggedKey},
		{name: "Read Response to an atomic", send: msg(func(v *faultEnv) []byte {
			v.atomics(1)
			return rawTagged(rdmap.OpReadResponse, v.sink.LKey(), v.sink.Addr(), eight)
		}), want: taggedKey},
		{name: "Read Response with another key", send: msg(func(v *faultEnv) []byte {
			v.reads(8)
			return rawTagged(rdmap.OpReadResponse, v.all.RKey(), v.sink.Addr(), eight)
		}), want: taggedKey},
		{name: "Read Response at another offset", send: part(8, eight), want: taggedBounds},
		{name: "Read Response too long", send: part(0, make([]byte, 9)), want: taggedBounds},
		{name: "Read Response too short", send: part(0, eight[:7]), want: taggedBounds},
		{name: "Read Response without end", send: answer(func(stag uint32, to uint64) [][]byte {
			return [][]byte{rawTaggedSegment(rdmap.OpReadResponse, ddp.Tagged{STag: stag, TO: to}, eight)}
		}), want: taggedBounds},
		{name: "Read Response with a gap", send: answer(func(stag uint32, to uint64) [][]byte {
			return [][]byte{rawTaggedSegment(rdmap.OpReadResponse, ddp.Tagged{STag: stag, TO: to}, nil),
				rawTagged(rdmap.OpReadResponse, stag, to+4, eight[:4])}
		}), want: taggedBounds},
	}
}

func invalidateFaults() []faultCase {
	inv := func(op rdmap.Opcode, stag func(v *faultEnv) uint32) faultMsgs {
		return msg(func(v *faultEnv) []byte {
			return rawSegment(op, ddp.Untagged{MSN: 1, Last: true, InvSTag: stag(v)}, nil)
		})
	}
	all := func(v *faultEnv) uint32 { return v.all.RKey() }
	cases := []faultCase{
		{name: "invalidate a region", send: inv(rdmap.OpSendInv, all), want: cannotInvalidate},
		{name: "invalidate a region, solicited", send: inv(rdmap.OpSendSEInv, all), want: cannotInvalidate},
		{name: "invalidate a region of another domain", send: inv(rdmap.OpSendInv,
			func(v *faultEnv) uint32 { return v.foreign.RKey() }),
			want: cannotInvalidate},
		{name: "invalidate an unknown key", send: inv(rdmap.OpSendInv, func(*faultEnv) uint32 { return 0 }),
			want: nothingToInvalid},
		{name: "invalidate a freed key", send: inv(rdmap.OpSendSEInv, func(v *faultEnv) uint32 { return v.gone }),
			want: nothingToInvalid},
	}
	for i := range cases {
		cases[i].recv = []int{8}
	}
	return cases
}

// faultEvent returns the asynchronous event for a fault that the NIC detects.
func faultEvent(c faultCode) verbs.EventType {
	switch {
	case c.typ == 1 && c.layer < 2:
		return verbs.EventQPAccessErr
	case c.typ == 2:
		return verbs.EventQPReqErr
	}
	return verbs.EventQPFatal
}

// word64 returns the number that peers' atomics access in b.
func word64(b []byte) uint64 { return binary.NativeEndian.Uint64(b) }
