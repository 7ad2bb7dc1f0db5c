// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ibverbs"
	"github.com/goverbs/goverbs/internal/ibverbs/ksiw/ring/queue"
	"github.com/goverbs/goverbs/internal/mapmem"
)

// ringRig has the rings of a QP and of a CQ in memory, whose kernel is the test.
type ringRig struct {
	*testing.T
	sends    ringSends
	receives ringReceives
	cq       ringCQ
	sq, rq   []byte
	inline   []byte // what elements of inline data name
	bells    int
	broken   error
}

// gather does what a context's Gather does, for elements in r.inline.
func (r *ringRig) gather(to []byte, from []ibverbs.SGE) {
	for _, e := range from {
		off := e.Addr - uint64(mapmem.Address(r.inline))
		to = to[copy(to, r.inline[off:off+uint64(e.Length)]):]
	}
}

func newRingRig(t *testing.T, entries uint32) *ringRig {
	t.Helper()
	r := &ringRig{T: t}
	anonymous := func(size int) []byte {
		mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, unix.Munmap(mem)) })
		return mem
	}
	var err error
	r.sq, r.rq = anonymous(queue.SQSize(entries)), anonymous(queue.RQSize(entries))
	r.sends.ring, err = queue.NewSQ(r.sq, entries, func() error { r.bells++; return r.broken })
	require.NoError(t, err)
	r.sends.gather = r.gather
	r.receives.ring, err = queue.NewRQ(r.rq, entries)
	require.NoError(t, err)
	r.cq.mem = anonymous(queue.CQSize(entries))
	r.cq.ring, err = queue.NewCQ(r.cq.mem, entries)
	require.NoError(t, err)
	return r
}

// post posts requests as the ledger does.
func (r *ringRig) post(wrs ...SendWR) ibverbs.Posted {
	var l sendList
	l.fill(wrs)
	return r.sends.Send(l.wrs, l.sges, l.ext, nil)
}

// entry is an entry of the send queue as <rdma/siw-abi.h> has it, in numbers.
type ringEntry struct {
	ID          uint64
	Flags       uint16
	NumSGE, Op  uint8
	RKey        uint32
	RAddr       uint64
	Addr        uint64
	Length, Key uint32
	More        [10]uint64 // the elements from the second on
}

func (r *ringRig) entry(i int) (e ringEntry) {
	r.Helper()
	require.NoError(r, binary.Read(bytes.NewReader(r.sq[i*120:]), binary.NativeEndian, &e))
	return e
}

// free gives the send queue's entries back.
func (r *ringRig) free() {
	for i := 0; i < len(r.sq); i += 120 {
		binary.NativeEndian.PutUint16(r.sq[i+8:], 0)
	}
}

const (
	ringValid    = 1
	ringInline   = 2
	ringSignaled = 4
	ringSolicit  = 8
	ringFence    = 16
)

// TestRingRequests: each request is the entry, or the two, of the contract.
func TestRingRequests(t *testing.T) {
	const all = ^uint64(0)
	one := []SGE{{Addr: 100, Length: 8, LKey: 3}}
	target := ringEntry{ID: 7, RKey: 5, RAddr: 1000, NumSGE: 1, Addr: 100, Length: 8, Key: 3}
	with := func(e ringEntry, op uint8, flags uint16, more ...uint64) ringEntry {
		e.Op, e.Flags = op, flags|ringValid
		copy(e.More[:], more)
		return e
	}
	send := target
	send.RKey, send.RAddr = 0, 0
	imm := func(v uint64, flags uint16) ringEntry {
		return ringEntry{ID: 7, RAddr: v, Op: 4, Flags: flags | ringValid}
	}
	for name, c := range map[string]struct {
		wr   SendWR
		want []ringEntry
	}{
		"Write": {SendWR{Opcode: WRRDMAWrite, Flags: SendSignaled, SGL: one, RemoteAddr: 1000, RKey: 5},
			[]ringEntry{with(target, 0, ringSignaled)}},
		"Read": {SendWR{Opcode: WRRDMARead, SGL: one, RemoteAddr: 1000, RKey: 5}, []ringEntry{with(target, 1, 0)}},
		"Send": {SendWR{Opcode: WRSend, Flags: SendSolicited | SendFence,
			SGL: []SGE{one[0], {Addr: 1, Length: 2, LKey: 3}}},
			[]ringEntry{func() ringEntry {
				e := with(send, 3, ringSolicit|ringFence, 1, two(2, 3))
				e.NumSGE = 2
				return e
			}()}},
		"SendInv": {SendWR{Opcode: WRSendWithInv, SGL: one, InvalidateRKey: 9}, []ringEntry{func() ringEntry {
			e := with(send, 5, 0)
			e.RKey = 9
			return e
		}()}},
		"Imm64": {SendWR{Opcode: WRImmData, Flags: SendSolicited | SendSignaled, Imm64: 0x0102030405060708},
			[]ringEntry{imm(0x0102030405060708, ringSolicit|ringSignaled)}},
		"WriteImm": {SendWR{Opcode: WRRDMAWriteWithImm, Flags: SendSolicited | SendSignaled | SendFence, SGL: one,
			RemoteAddr: 1000, RKey: 5, Imm: 0x01020304},
			[]ringEntry{with(target, 0, ringFence), imm(0x0102030400000000, ringSolicit|ringSignaled)}},
		"FetchAdd": {SendWR{Opcode: WRAtomicFetchAndAdd, SGL: one, RemoteAddr: 1000, RKey: 5, Add: 11, AddMask: 99},
			[]ringEntry{with(target, 6, 0, 11)}},
		"MaskedFetchAdd": {SendWR{Opcode: WRMaskedAtomicFetchAndAdd, SGL: one, RemoteAddr: 1000, RKey: 5, Add: 11,
			AddMask: 12},
			[]ringEntry{with(target, 6, 0, 11, 12)}},
		"CmpSwap": {SendWR{Opcode: WRAtomicCmpAndSwp, SGL: one, RemoteAddr: 1000, RKey: 5, Compare: 11, Swap: 12,
			CompareMask: 99, SwapMask: 99},
			[]ringEntry{with(target, 7, 0, 12, all, 11, all)}},
		"MaskedCmpSwap": {SendWR{Opcode: WRMaskedAtomicCmpAndSwp, SGL: one, RemoteAddr: 1000, RKey: 5, Compare: 11,
			CompareMask: 12, Swap: 13, SwapMask: 14},
			[]ringEntry{with(target, 7, 0, 13, 14, 11, 12)}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRingRig(t, 4)
			r.post(SendWR{Opcode: WRSend})
			r.free()
			c.wr.ID = 7
			require.EqualValues(t, 1, r.post(c.wr))
			for i, want := range c.want {
				require.Equal(t, want, r.entry(1+i))
			}
			require.Zero(t, r.entry(1+len(c.want)).Flags, "nothing else")
			require.Equal(t, 2, r.bells)
		})
	}
}

// two makes a number of two smaller ones in the order of memory.
func two(a, b uint32) uint64 {
	var m [8]byte
	binary.NativeEndian.PutUint32(m[:], a)
	binary.NativeEndian.PutUint32(m[4:], b)
	return binary.NativeEndian.Uint64(m[:])
}

// TestRingInline: inline data stand in the entry.
func TestRingInline(t *testing.T) {
	r := newRingRig(t, 2)
	data := []byte("0123456789abcdef")
	r.inline = data
	at := uint64(mapmem.Address(data))
	require.EqualValues(t, 1,
		r.post(SendWR{Opcode: WRSend, Flags: SendInline,
			SGL: []SGE{{Addr: at, Length: 10}, {Addr: at + 4, Length: 3}}}))
	e := r.entry(0)
	require.EqualValues(t, ringValid|ringInline, e.Flags)
	require.EqualValues(t, 1, e.NumSGE)
	require.EqualValues(t, 13, e.Length)
	require.Zero(t, e.Key)
	require.Equal(t, "0123456789456", string(r.sq[40:53]))
}

// TestRingList: a list rings once; it is taken as far as there is room; of a Write with immediate
// both parts or none.
func TestRingList(t *testing.T) {
	r := newRingRig(t, 4)
	write, both := SendWR{Opcode: WRRDMAWrite}, SendWR{Opcode: WRRDMAWriteWithImm}
	require.EqualValues(t, 2, r.post(write, both))
	require.Equal(t, 1, r.bells)
	full := ibverbs.Refused(0, syscall.ENOMEM)
	require.Equal(t, full, r.post(both), "one entry is left")
	require.Zero(t, r.entry(3).Flags)
	require.EqualValues(t, 1, r.post(write))
	require.Equal(t, full, r.post(write, write))
	r.free()
	require.EqualValues(t, full|2, r.post(both, both, both))
	_, err := postResult("post", full|2)
	require.ErrorIs(t, err, ErrQueueFull)
}

// TestRingBellFails: nobody knows what siw has taken.
func TestRingBellFails(t *testing.T) {
	r := newRingRig(t, 4)
	r.broken = unix.ENOTCONN
	n, err := postResult("post", r.post(SendWR{Opcode: WRSend}, SendWR{Opcode: WRSend}))
	require.Equal(t, 2, n)
	require.ErrorIs(t, err, errBroken)
	require.ErrorIs(t, err, unix.ENOTCONN)
	r.free()
	r.broken = errors.New("no errno")
	_, err = postResult("post", r.post(SendWR{Opcode: WRSend}))
	require.ErrorIs(t, err, errBroken)
}

// TestRingReceives: receives are entries with elements, or none, as many as there is room for. A QP
// with an SRQ has no room.
func TestRingReceives(t *testing.T) {
	r := newRingRig(t, 2)
	var l recvList
	l.fill([]RecvWR{{ID: 1, SGL: []SGE{{Addr: 2, Length: 3, LKey: 4}, {Addr: 5, Length: 6, LKey: 7}}}, {ID: 8},
		{ID: 9}}, 0)
	full := ibverbs.Refused(0, syscall.ENOMEM)
	require.Equal(t, full|2, r.receives.post(l.wrs, l.sges))
	var e struct {
		ID         uint64
		Flags      uint16
		NumSGE, Op uint8
		_          uint32
		SGEs       [2]SGE
	}
	require.NoError(t, binary.Read(bytes.NewReader(r.rq), binary.NativeEndian, &e))
	require.EqualValues(t, 1, e.ID)
	require.EqualValues(t, ringValid, e.Flags)
	require.EqualValues(t, 2, e.NumSGE)
	require.Equal(t, [2]SGE{{Addr: 2, Length: 3, LKey: 4}, {Addr: 5, Length: 6, LKey: 7}}, e.SGEs)
	require.NoError(t, binary.Read(bytes.NewReader(r.rq[112:]), binary.NativeEndian, &e))
	require.EqualValues(t, 8, e.ID)
	require.Zero(t, e.NumSGE)
	require.Equal(t, full, new(ringReceives).post(l.wrs, l.sges))
}

// TestRingCompletions: what siw tells, as libsiw would tell it and more; also what makes no sense.
func TestRingCompletions(t *testing.T) {
	const v = 0x0102030405060708
	r := newRingRig(t, 16)
	put := 0
	complete := func(flags, op uint8, status uint16, bytes uint32, imm uint64) {
		b := r.cq.mem[32*put:]
		put++
		binary.NativeEndian.PutUint64(b, uint64(put))
		b[9] = op
		binary.NativeEndian.PutUint16(b[10:], status)
		binary.NativeEndian.PutUint32(b[12:], bytes)
		binary.NativeEndian.PutUint64(b[16:], imm)
		binary.NativeEndian.PutUint64(b[24:], 5)
		b[8] = flags | ringValid
	}
	complete(0, 0, 0, 9, 0)
	complete(0, 1, 0, 9, 0)
	complete(0, 3, 0, 9, 0)
	complete(0, 6, 0, 8, 0)
	complete(0, 7, 0, 8, 0)
	complete(0, 8, 0, 9, 0)
	complete(0x80, 8, 0, 8, v)
	complete(0x82, 8, 0, 77, v)
	complete(0x20, 8, 0, 9, two(11, 99))
	var wcs [20]WC
	require.Equal(t, put, r.cq.Poll(flatWCs(wcs[:]), nil))
	for i, want := range []WC{
		{Opcode: WCRDMAWrite, ByteLen: 9}, {Opcode: WCRDMARead, ByteLen: 9}, {Opcode: WCSend, ByteLen: 9},
		{Opcode: WCFetchAdd, ByteLen: 8},
		{Opcode: WCCompSwap, ByteLen: 8}, {Opcode: WCRecv, ByteLen: 9},
		{Opcode: WCRecvImmData, ByteLen: 8, Flags: WCWithImm, Imm: 0x01020304, Imm64: v},
		{Opcode: WCRecvRDMAWithImm, ByteLen: 77, Flags: WCWithImm, Imm: 0x01020304, Imm64: v},
		{Opcode: WCRecv, ByteLen: 9, Flags: WCWithInv, InvalidatedRKey: 11},
	} {
		want.ID, want.QPNum = uint64(i+1), 5
		require.Equal(t, want, wcs[i])
	}
	require.Zero(t, r.cq.Poll(flatWCs(wcs[:]), nil))
	for _, status := range []uint16{7, 4, 10, 0xffff} {
		complete(0, 255, status, 0, 0)
	}
	require.Equal(t, 3|ibverbs.PollErrors, r.cq.Poll(flatWCs(wcs[:3]), nil))
	require.Equal(t, 1|ibverbs.PollErrors, r.cq.Poll(flatWCs(wcs[3:]), nil))
	for i, want := range []WCStatus{WCRemAccessErr, WCWRFlushErr, WCGeneralErr, WCGeneralErr} {
		require.Equal(t, want, wcs[i].Status)
	}
}

// TestRingHeld: a post and a poll give the caller's lock back.
func TestRingHeld(t *testing.T) {
	r := newRingRig(t, 4)
	q := &ringQP{ringSends: r.sends, ringReceives: r.receives}
	for name, call := range map[string]func(held *ibverbs.Held){
		"Send": func(held *ibverbs.Held) { require.EqualValues(t, 1, q.Send(make([]ibverbs.Send, 1), nil, nil, held)) },
		"Recv": func(held *ibverbs.Held) { require.EqualValues(t, 1, q.Recv(make([]ibverbs.Recv, 1), nil, held)) },
		"Poll": func(held *ibverbs.Held) { require.Zero(t, r.cq.Poll(make([]ibverbs.WC, 1), held)) },
	} {
		var held ibverbs.Held
		held.Store(1)
		call(&held)
		require.Zero(t, held.Load(), name)
	}
}

// libraryPD is a PD of the library.
type libraryPD struct{ ibverbs.PD }

// TestRingRereg: the library gets a PD of its own for a region that moves to another.
func TestRingRereg(t *testing.T) {
	for _, to := range []ibverbs.PD{nil, libraryPD{}, ringPD{libraryPD{}, nil}} {
		lib := &reregMR{}
		result, err := ringMR{lib}.Rereg(int(ReregPD), to, 0, 0, 0)
		require.NoError(t, err)
		require.Equal(t, 7, result)
		if to != nil {
			to = libraryPD{}
		}
		require.Equal(t, to, lib.pd)
	}
}

type reregMR struct {
	ibverbs.MR
	pd ibverbs.PD
}

func (m *reregMR) Rereg(_ int, pd ibverbs.PD, _ uintptr, _ int, _ uint32) (int, error) {
	m.pd = pd
	return 7, nil
}

// TestRingNoSuchSRQ: a completion for the SRQ of a QP that has none, which only the program itself
// can have written, is no request's.
func TestRingNoSuchSRQ(t *testing.T) {
	cq, q := new(ledgerCQ), new(ledgerQP)
	cq.ledgers.add(5, q)
	cq.accept(&WC{QPNum: 5, ID: idSRQ | 1})
	require.Zero(t, cq.soft.len())
}

// TestRingAlloc: posting, polling and arming allocate nothing.
func TestRingAlloc(t *testing.T) {
	r := newRingRig(t, 8)
	wrs := []SendWR{{Opcode: WRRDMAWriteWithImm, SGL: make([]SGE, 1)},
		{Opcode: WRMaskedAtomicCmpAndSwp, SGL: make([]SGE, 1)}, {Opcode: WRImmData}}
	var l sendList
	var recvs recvList
	var wcs [4]WC
	require.Zero(t, testing.AllocsPerRun(100, func() {
		l.fill(wrs)
		r.sends.Send(l.wrs, l.sges, l.ext, nil)
		recvs.fill([]RecvWR{{ID: 1}}, 0)
		r.receives.post(recvs.wrs, recvs.sges)
		r.cq.mem[8] = ringValid
		r.cq.Poll(flatWCs(wcs[:]), nil)
		_ = r.cq.ReqNotify(false)
		r.free()
	}))
}

// TestSiw7306: rings are used with the version of the contract that the provider knows, and what
// the module has repaired, it alone, is not corrected any more.
func TestSiw7306(t *testing.T) {
	for _, version := range []uint32{0, 1, ringVersion + 1, ringVersion - 1} {
		require.Nil(t, siw7306(version))
	}
	d := siw7306(ringVersion)
	require.Equal(t, siwOps|MakeOpSet(OpWriteImm, OpFetchAdd, OpCmpSwap, OpMaskedFetchAdd, OpMaskedCmpSwap, OpImm64),
		d.ops)
	for f := range faultsEnd {
		want := siwFaults.has(f) && !faultInfos[f].library && !slices.Contains(siw7306Repaired, f)
		require.False(t, faultInfos[f].library && slices.Contains(siw7306Repaired, f),
			"a module repairs nothing in rdma-core")
		require.Equal(t, want, siw7306Faults.has(f), faultInfos[f].what)
	}
	info := DeviceInfo{Transport: TransportIWARP}
	for _, other := range []uint32{0, 1, 0x7306, 0x7305_0002, 0x7307_0002, 0x1_7306} {
		require.Nil(t, driverOf(info, DeviceAttr{VendorID: vendorSIW, HWVer: other}).extended,
			"%#x: the kernel's own siw is not asked", other)
	}
	for _, version := range []uint32{ringVersion, ringVersion + 1, ringFamily} {
		require.NotNil(t, driverOf(info, DeviceAttr{VendorID: vendorSIW, HWVer: version}).extended, "%#x", version)
	}
	require.Nil(t, driverOf(info, DeviceAttr{HWVer: ringVersion}).extended, "another vendor's hw_ver is its own")

	// The device has no atomics for programs on libsiw.
	c := &kernelContext{attr: DeviceAttr{AtomicCap: AtomicNone}}
	d.wrap(c)
	require.Equal(t, AtomicHCA, c.attr.AtomicCap)
}
