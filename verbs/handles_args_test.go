// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestCreateQPChecks: the CQs, the sizes and the type of a QP.
func TestCreateQPChecks(t *testing.T) {
	s, ctx := newStub(t)
	foreignStub, foreign := newStub(t)
	f, other := newFamily(t, ctx), newFamily(t, foreign)
	for name, c := range map[string]struct {
		cfg  QPConfig
		want error
	}{
		"no CQ":                  {QPConfig{}, ErrInvalid},
		"no RecvCQ":              {QPConfig{SendCQ: f.send}, ErrInvalid},
		"no SendCQ":              {QPConfig{RecvCQ: f.recv}, ErrInvalid},
		"SendCQ of another":      {QPConfig{SendCQ: other.send, RecvCQ: f.recv}, ErrForeign},
		"RecvCQ of another":      {QPConfig{SendCQ: f.send, RecvCQ: other.recv}, ErrForeign},
		"SRQ of another":         {QPConfig{SendCQ: f.send, RecvCQ: f.recv, SRQ: other.srq}, ErrForeign},
		"unknown type":           {QPConfig{SendCQ: f.send, RecvCQ: f.recv, Type: 77}, ErrNotSupported},
		"negative size":          {QPConfig{SendCQ: f.send, RecvCQ: f.recv, Cap: QPCap{MaxSendWR: -1}}, ErrInvalid},
		"too deep":               {QPConfig{SendCQ: f.send, RecvCQ: f.recv, Cap: QPCap{MaxRecvWR: 101}}, ErrLimit},
		"too many elements":      {QPConfig{SendCQ: f.send, RecvCQ: f.recv, Cap: QPCap{MaxRecvSGE: 5}}, ErrLimit},
		"too many send elements": {QPConfig{SendCQ: f.send, RecvCQ: f.recv, Cap: QPCap{MaxSendSGE: 5}}, ErrLimit},
		"too much inline data":   {QPConfig{SendCQ: f.send, RecvCQ: f.recv, Cap: QPCap{MaxInlineData: 65}}, ErrLimit},
		"too deep a send queue":  {QPConfig{SendCQ: f.send, RecvCQ: f.recv, Cap: QPCap{MaxSendWR: 101}}, ErrLimit},
		"a negative inline limit": {QPConfig{SendCQ: f.send, RecvCQ: f.recv, Cap: QPCap{MaxInlineData: -1}},
			ErrInvalid},
	} {
		_, err := f.pd.CreateQP(c.cfg)
		require.ErrorIs(t, err, c.want, name)
		require.Zero(t, s.made["QP"], name)
	}
	most := QPCap{MaxSendWR: 100, MaxRecvWR: 100, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInlineData: 64}
	qp, err := f.pd.CreateQP(QPConfig{SendCQ: f.send, RecvCQ: f.recv, Cap: most})
	require.NoError(t, err)
	require.Equal(t, most, qp.Cap())
	require.Equal(t, QPTypeRC, qp.Type())
	require.NoError(t, qp.Close())
	qp, err = f.pd.CreateQP(QPConfig{SendCQ: f.send, RecvCQ: f.recv})
	require.NoError(t, err)
	require.Equal(t, QPCap{MaxSendWR: 100, MaxRecvWR: 100, MaxSendSGE: 1, MaxRecvSGE: 1}, qp.Cap(),
		"defaults, as far as the device goes")
	require.NotContains(t, fmt.Sprint(qp), "RTR")
	s.state = QPStateRTR
	require.NoError(t, qp.Close())
	qp, err = f.pd.CreateQP(QPConfig{SendCQ: f.send, RecvCQ: f.recv})
	require.NoError(t, err)
	require.Contains(t, fmt.Sprint(qp), "RTR", "the state that the device knows")
	require.ErrorIs(t, f.send.Close(), ErrBusy)
	require.NoError(t, qp.Close())
	f.close(t)
	s.closed(t, ctx)
	other.close(t)
	foreignStub.closed(t, foreign)
}

// TestCQChecks: the size, the vector and the channel of a CQ, and what is known of the size.
func TestCQChecks(t *testing.T) {
	s, ctx := newStub(t)
	foreignStub, foreign := newStub(t)
	ch, err := foreign.CreateCompChannel()
	require.NoError(t, err)
	for name, c := range map[string]struct {
		cfg  CQConfig
		want error
	}{
		"negative":               {CQConfig{CQE: -1}, ErrInvalid},
		"too large":              {CQConfig{CQE: 1001}, ErrLimit},
		"vector -1":              {CQConfig{CompVector: -1}, ErrInvalid},
		"vector 3 of 3":          {CQConfig{CompVector: 3}, ErrInvalid},
		"channel of another one": {CQConfig{Channel: ch}, ErrForeign},
	} {
		_, err := ctx.CreateCQ(c.cfg)
		require.ErrorIs(t, err, c.want, name)
		require.Empty(t, s.reached(), name)
	}
	cq, err := ctx.CreateCQ(CQConfig{CQE: 1000, CompVector: 2})
	require.NoError(t, err)
	require.Equal(t, []string{"CreateCQ 1000, vector 2"}, s.reached())
	require.Equal(t, 1, s.made["CompChannel"], "a channel of its own")
	require.NoError(t, cq.Close())
	require.Zero(t, s.made["CompChannel"])
	cq, err = ctx.CreateCQ(CQConfig{})
	require.NoError(t, err)
	require.Equal(t, []string{fmt.Sprintf("CreateCQ %d, vector 0", DefaultCQE)}, s.reached())

	for _, cqe := range []int{0, -1, 1001} {
		require.Error(t, cq.Resize(cqe))
	}
	require.ErrorIs(t, cq.Resize(0), ErrInvalid)
	require.ErrorIs(t, cq.Resize(1001), ErrLimit)
	require.Empty(t, s.reached())
	require.Contains(t, fmt.Sprint(cq), fmt.Sprintf("cqe=%d", DefaultCQE))
	for _, cqe := range []int{1000, 1} {
		require.NoError(t, cq.Resize(cqe))
		require.Equal(t, []string{fmt.Sprintf("Resize %d", cqe)}, s.reached())
		require.Equal(t, cqe, cq.CQE())
		require.Contains(t, fmt.Sprint(cq), fmt.Sprintf("cqe=%d", cqe), "what is printed is the size that it has now")
	}
	require.NoError(t, cq.Close())
	require.ErrorIs(t, cq.Resize(10), ErrClosed)
	s.closed(t, ctx)
	require.NoError(t, ch.Close())
	foreignStub.closed(t, foreign)
}

// TestCQDriven: an empty CQ is driven by who polls it, unless the poll failed or had no room; one
// that polls by itself is not asked in another way; a wait sleeps as the device does.
func TestCQDriven(t *testing.T) {
	s, ctx := newStub(t)
	cq, err := ctx.CreateCQ(CQConfig{})
	require.NoError(t, err)
	s.reached()
	_, err = cq.Poll(make([]WC, 1))
	require.NoError(t, err)
	require.Equal(t, []string{"Drive"}, s.reached())
	n, err := cq.Poll(make([]WC, 1))
	require.NoError(t, err)
	require.Zero(t, n)
	cq.Provider().(stubDriver).driven = 1
	n, err = cq.Poll(make([]WC, 1))
	require.NoError(t, err)
	require.Equal(t, 1, n, "what has come by driving")
	s.reached()
	n, err = cq.Poll(make([]WC, 1))
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Empty(t, s.reached(), "there is something without driving")
	cq.Provider().(stubDriver).full = 0
	_, err = cq.Poll(nil)
	require.NoError(t, err)
	require.Empty(t, s.reached())
	below := cq.Provider().(stubDriver)
	below.err = ErrCQOverflow
	_, err = cq.Poll(make([]WC, 1))
	require.ErrorIs(t, err, ErrCQOverflow)
	require.ErrorContains(t, err, "CQ.Poll on stub")
	require.Empty(t, s.reached())
	_, err = cq.Wait(t.Context(), make([]WC, 1))
	require.ErrorIs(t, err, ErrCQOverflow, "it does not sleep over what it knows")
	require.Empty(t, s.reached())
	below.err = nil
	below.sleep = errors.New("no more")
	_, err = cq.Wait(t.Context(), make([]WC, 1))
	require.ErrorIs(t, err, below.sleep)
	require.ErrorContains(t, err, "CQ.Wait on stub")
	require.Equal(t, []string{"Sleep"}, s.reached())
	_, err = cq.Wait(t.Context(), nil)
	require.ErrorIs(t, err, ErrInvalid)
	require.NoError(t, cq.Close())

	s.direct = true
	cq, err = ctx.CreateCQ(CQConfig{})
	require.NoError(t, err)
	s.reached()
	_, err = cq.Poll(make([]WC, 1))
	require.NoError(t, err)
	require.Equal(t, []string{"pollDirect"}, s.reached())
	cq.Provider().(stubDriver).err = ErrCQOverflow
	_, err = cq.Poll(make([]WC, 1))
	require.ErrorIs(t, err, ErrCQOverflow)
	require.ErrorContains(t, err, "CQ.Poll on stub")
	require.NoError(t, cq.Close())
	s.closed(t, ctx)
}

// TestCQSpins: where the device wants it, a wait polls for a while before it sleeps; one for
// solicited completions does not.
func TestCQSpins(t *testing.T) {
	s, ctx := newStub(t)
	errAsleep := errors.New("asleep")
	newCQ := func(spin time.Duration, full int) (*CQ, *stubCQ) {
		s.spin = spin
		cq, err := ctx.CreateCQ(CQConfig{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, cq.Close()) })
		below := cq.Provider().(stubDriver).stubCQ
		below.sleep, below.full, below.driven = errAsleep, full, full
		s.reached()
		return cq, below
	}
	cq, below := newCQ(time.Hour, 6)
	n, err := cq.Wait(t.Context(), make([]WC, 1))
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, 6, below.polls)
	require.NotContains(t, s.reached(), "Sleep")

	cq, below = newCQ(time.Hour, 6)
	_, err = cq.WaitSolicited(t.Context(), make([]WC, 1))
	require.ErrorIs(t, err, errAsleep)
	require.Equal(t, 1, below.polls)

	cq, below = newCQ(0, 6)
	_, err = cq.Wait(t.Context(), make([]WC, 1))
	require.ErrorIs(t, err, errAsleep)
	require.Equal(t, 1, below.polls)

	cq, _ = newCQ(time.Microsecond, 0)
	_, err = cq.Wait(t.Context(), make([]WC, 1))
	require.ErrorIs(t, err, errAsleep, "the while is over")

	cq, _ = newCQ(time.Hour, 0)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = cq.Wait(ended, make([]WC, 1))
	require.Error(t, err)

	cq, below = newCQ(time.Hour, 0)
	below.failAt = 4
	_, err = cq.Wait(t.Context(), make([]WC, 1))
	require.ErrorIs(t, err, ErrCQOverflow)
	require.Equal(t, 4, below.polls)
	require.NotContains(t, s.reached(), "Sleep")
}

// TestCQArms: a CQ that cannot be driven is armed, polled once more, and then its channel is waited
// for.
func TestCQArms(t *testing.T) {
	s, ctx := newStub(t)
	s.plain = true
	cq, err := ctx.CreateCQ(CQConfig{})
	require.NoError(t, err)
	below := cq.Provider().(*stubCQ)
	s.reached()
	below.full = 2
	n, err := cq.Wait(t.Context(), make([]WC, 1))
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, []string{"ReqNotify"}, s.reached(), "what came before it was armed")
	below.full = below.polls + 5
	n, err = cq.Wait(t.Context(), make([]WC, 1))
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, []string{"ReqNotify", "Wait", "ReqNotify", "Wait"}, s.reached(), "an event without a completion")
	below.full, below.sleep = 0, ErrInvalid
	_, err = cq.Wait(t.Context(), make([]WC, 1))
	require.ErrorIs(t, err, ErrInvalid)
	require.Equal(t, []string{"ReqNotify"}, s.reached(), "a CQ that is not armed is not waited for")
	require.NoError(t, cq.Close())
	ch, err := ctx.CreateCompChannel()
	require.NoError(t, err)
	_, err = ch.Wait(t.Context())
	require.NoError(t, err)
	require.NoError(t, ch.Close())
	s.reached()
	_, err = ch.Wait(t.Context())
	require.ErrorIs(t, err, ErrClosed)
	require.Empty(t, s.reached())
	s.closed(t, ctx)
}

// TestGIDChecks: rows of the tables beyond their ends, and rows that an address handle cannot name.
func TestGIDChecks(t *testing.T) {
	s, ctx := newStub(t)
	to := GIDFromAddr(netip.MustParseAddr("192.0.2.2"))
	s.gids = map[int]GID{0: {1}, 256: to, 299: {2}}
	for _, index := range []int{-1, 300, 1} {
		_, err := ctx.QueryGID(1, index)
		require.ErrorIs(t, err, ErrNoGID, "%d", index)
	}
	for index := range s.gids {
		e, err := ctx.QueryGID(2, index)
		require.NoError(t, err)
		require.Equal(t, GIDEntry{GID: s.gids[index], Port: 2, Index: index, Type: GIDTypeRoCEv2}, e)
	}
	for index, ok := range map[int]bool{-1: false, 0: true, 1: true, 2: false} {
		key, err := ctx.QueryPKey(1, index)
		if !ok {
			require.ErrorIs(t, err, ErrInvalid, "%d", index)
			continue
		}
		require.NoError(t, err)
		require.EqualValues(t, 0x8000+index, key)
	}
	wc := WC{Opcode: WCRecv, Flags: WCGRH}
	head := header4(0, "192.0.2.1", "192.0.2.2", 0, 1)
	_, err := ctx.AHAttrFromWC(&wc, head, 1)
	require.ErrorIs(t, err, ErrNoGID, "sgid_index has 8 bits")
	s.gids[255] = to
	attr, err := ctx.AHAttrFromWC(&wc, head, 1)
	require.NoError(t, err)
	require.EqualValues(t, 255, attr.GRH.SGIDIndex)
	require.NoError(t, ctx.Close())
}

// TestMRChecks: length and rights of a region, its elements, and how it is changed in place.
func TestMRChecks(t *testing.T) {
	s, ctx := newStub(t)
	s.attr.MaxMRSize = 4096
	ctx.attr.MaxMRSize = 4096
	foreignStub, foreign := newStub(t)
	pd, err := ctx.AllocPD()
	require.NoError(t, err)
	second, err := ctx.AllocPD()
	require.NoError(t, err)
	foreignPD, err := foreign.AllocPD()
	require.NoError(t, err)
	alloc := func(n int, access AccessFlags) error {
		m, err := pd.AllocMR(n, access)
		if err != nil {
			return err
		}
		return m.Close()
	}
	require.NoError(t, alloc(4096, AccessLocalWrite|AccessRemoteWrite|AccessRemoteAtomic))
	require.NoError(t, alloc(1, AccessRemoteRead))
	require.ErrorIs(t, alloc(4097, 0), ErrLimit)
	require.ErrorIs(t, alloc(0, 0), ErrInvalid)
	require.ErrorIs(t, alloc(-1, 0), ErrInvalid)
	require.ErrorIs(t, alloc(1, AccessRemoteWrite), ErrInvalid)
	require.ErrorIs(t, alloc(1, AccessRemoteAtomic), ErrInvalid)
	require.ErrorIs(t, alloc(1, 1<<31), ErrInvalid)
	_, err = pd.RegMR(nil, 0)
	require.ErrorIs(t, err, ErrInvalid)
	_, err = pd.RegMRIova(make([]byte, 1), 1, AccessZeroBased)
	require.ErrorIs(t, err, ErrInvalid)
	based, err := pd.RegMRIova(make([]byte, 1), 0, AccessZeroBased)
	require.NoError(t, err)
	require.Zero(t, based.Addr())
	require.NoError(t, based.Close())

	for name, c := range map[string]struct {
		offset, length, iova uint64
		fd                   int
		want                 error
	}{
		"all that goes": {0, 4096, 0, 0, nil},
		"up to the end": {math.MaxUint64 - 10, 10, math.MaxUint64 - 10, 0, nil},
		"of no bytes":   {0, 0, 0, 0, ErrInvalid},
		"too long":      {0, 4097, 0, 0, ErrLimit},
		"no length":     {0, 1 << 62, 0, 0, ErrInvalid},
		"offset wraps":  {math.MaxUint64 - 9, 11, 0, 0, ErrInvalid},
		"iova wraps":    {0, 11, math.MaxUint64 - 9, 0, ErrInvalid},
		"no descriptor": {0, 1, 0, -1, ErrInvalid},
	} {
		m, err := pd.RegDmabufMR(c.offset, c.length, c.iova, c.fd, 0)
		if c.want != nil {
			require.ErrorIs(t, err, c.want, name)
			continue
		}
		require.NoError(t, err, name)
		require.EqualValues(t, c.length, m.Len(), name)
		require.Equal(t, c.iova, m.Addr(), name)
		_, err = m.Word(0)
		require.ErrorIs(t, err, ErrNotSupported, name)
		require.NoError(t, m.Close())
	}

	m, err := pd.AllocMR(100, AccessLocalWrite)
	require.NoError(t, err)
	for _, c := range []struct {
		off, n int
		ok     bool
	}{{0, 100, true}, {100, 0, true}, {99, 1, true}, {0, 101, false}, {100, 1, false}, {101, 0, false}, {-1, 1, false},
		{0, -1, false}, {math.MaxInt, 1, false}, {1, math.MaxInt, false}} {
		sge, err := m.SGE(c.off, c.n)
		if !c.ok {
			require.ErrorIs(t, err, ErrBounds, "%d, %d", c.off, c.n)
			continue
		}
		require.NoError(t, err, "%d, %d", c.off, c.n)
		require.Equal(t, SGE{Addr: m.Addr() + uint64(c.off), Length: uint32(c.n), LKey: 1}, sge)
	}
	for off, want := range map[int]error{0: nil, 88: nil, 92: ErrInvalid, 93: ErrBounds, 96: ErrBounds, -8: ErrBounds,
		4: ErrInvalid} {
		w, err := m.Word(off)
		if want != nil {
			require.ErrorIs(t, err, want, "%d", off)
			continue
		}
		require.NoError(t, err, "%d", off)
		w.Store(uint64(off) + 1)
		require.NotEqual(t, make([]byte, 8), m.Bytes()[off:off+8])
	}

	s.reached()
	mem := make([]byte, 64)
	for name, c := range map[string]struct {
		flags  ReregFlags
		pd     *PD
		buf    []byte
		access AccessFlags
		want   error
	}{
		"nothing":            {0, nil, nil, 0, ErrInvalid},
		"unknown":            {1 << 5, nil, nil, 0, ErrInvalid},
		"no PD":              {ReregPD, nil, nil, 0, ErrInvalid},
		"PD of another":      {ReregPD, foreignPD, nil, 0, ErrForeign},
		"no memory":          {ReregTranslation, nil, nil, 0, ErrInvalid},
		"too much memory":    {ReregTranslation, nil, make([]byte, 4097), 0, ErrLimit},
		"rights that cannot": {ReregAccess, nil, nil, AccessRemoteWrite, ErrInvalid},
	} {
		require.ErrorIs(t, m.Rereg(c.flags, c.pd, c.buf, c.access), c.want, name)
		require.Empty(t, s.reached(), name)
	}
	old := s.mem
	s.refuse = ErrLimit
	require.ErrorIs(t, m.Rereg(ReregPD|ReregTranslation|ReregAccess, second, mem, 0), ErrLimit)
	require.Same(t, pd, m.PD())
	require.Equal(t, old, m.Bytes(), "after a refusal it is as it was")
	require.Equal(t, AccessLocalWrite, m.Access())
	collect()
	s.refuse = nil
	require.NoError(t, second.Close(), "it is not a parent")
	second, err = ctx.AllocPD()
	require.NoError(t, err)
	s.reached()
	require.NoError(t, m.Rereg(ReregAccess, nil, mem, AccessRemoteRead), "rights alone")
	require.Equal(t, []string{fmt.Sprintf("Rereg CHANGE_ACCESS, 100 bytes at %#x, %v", m.Addr(), AccessRemoteRead)},
		s.reached())
	require.ErrorIs(t, pd.Close(), ErrBusy, "it is still the parent")
	require.NoError(t, m.Rereg(ReregPD, second, nil, AccessLocalWrite), "the PD alone")
	require.Equal(t, AccessRemoteRead, m.Access())
	require.Same(t, second, m.PD())
	require.NoError(t, pd.Close(), "the old PD is no parent any more")
	require.ErrorIs(t, second.Close(), ErrBusy)
	require.False(t, unmapped(old))
	require.NoError(t, m.Rereg(ReregTranslation, nil, mem, 0), "memory alone")
	require.Equal(t, mem, m.Bytes())
	require.Equal(t, 64, m.Len())
	require.Contains(t, fmt.Sprint(m), "length=64", "what is printed is the memory that it has now")
	require.True(t, unmapped(old), "the old memory is released")
	require.NoError(t, m.Close())
	require.ErrorIs(t, m.Rereg(ReregAccess, nil, nil, 0), ErrClosed)
	_, err = m.SGE(0, 1)
	require.ErrorIs(t, err, ErrClosed)
	collect()

	m, err = second.RegDmabufMR(0, 4096, 0, 3, 0)
	require.NoError(t, err)
	require.NoError(t, m.Rereg(ReregTranslation, nil, mem, 0))
	require.Equal(t, 64, m.Len(), "memory of the program instead")
	_, err = m.Word(0)
	require.NoError(t, err)
	require.NoError(t, m.Close())
	ctx.attr.MaxMRSize = 1 << 40
	m, err = second.RegDmabufMR(0, 1<<33, 0, 3, 0)
	require.NoError(t, err)
	_, err = m.SGE(1<<32, 1<<32-1)
	require.NoError(t, err)
	_, err = m.SGE(0, 1<<32)
	require.ErrorIs(t, err, ErrBounds, "the length of an element has 32 bits")
	require.NoError(t, m.Close())
	require.NoError(t, second.Close())
	s.closed(t, ctx)
	require.NoError(t, foreignPD.Close())
	foreignStub.closed(t, foreign)
}

// TestSRQChecks: the sizes of an SRQ, how they are changed, and what is known of them.
func TestSRQChecks(t *testing.T) {
	s, ctx := newStub(t)
	pd, err := ctx.AllocPD()
	require.NoError(t, err)
	for name, c := range map[string]struct {
		attr SRQAttr
		want error
	}{
		"too deep":          {SRQAttr{MaxWR: 51}, ErrLimit},
		"negative":          {SRQAttr{MaxWR: -1}, ErrInvalid},
		"too many elements": {SRQAttr{MaxSGE: 3}, ErrLimit},
		"with a limit":      {SRQAttr{SRQLimit: 1}, ErrInvalid},
	} {
		_, err := pd.CreateSRQ(c.attr)
		require.ErrorIs(t, err, c.want, name)
		require.Zero(t, s.made["SRQ"], name)
	}
	srq, err := pd.CreateSRQ(SRQAttr{MaxWR: 10, MaxSGE: 2})
	require.NoError(t, err)
	require.Equal(t, SRQAttr{MaxWR: 10, MaxSGE: 2}, srq.Attr())
	require.Contains(t, fmt.Sprint(srq), "max_wr=10")
	for name, c := range map[string]struct {
		attr SRQAttr
		mask SRQAttrMask
		want error
	}{
		"nothing":          {SRQAttr{MaxWR: 1}, 0, ErrInvalid},
		"unknown":          {SRQAttr{MaxWR: 1}, 1 << 7, ErrInvalid},
		"a negative limit": {SRQAttr{SRQLimit: -1}, SRQAttrLimit, ErrInvalid},
		"no size":          {SRQAttr{}, SRQAttrMaxWR, ErrInvalid},
		"too large a size": {SRQAttr{MaxWR: 51}, SRQAttrMaxWR, ErrLimit},
	} {
		require.ErrorIs(t, srq.Modify(c.attr, c.mask), c.want, name)
		require.Empty(t, s.reached(), name)
	}
	for _, wr := range []int{-7, 51} {
		require.NoError(t, srq.Modify(SRQAttr{MaxWR: wr, SRQLimit: 0}, SRQAttrLimit),
			"what mask leaves out does not matter")
		require.Contains(t, fmt.Sprint(srq), "max_wr=10")
	}
	require.NoError(t, srq.Modify(SRQAttr{MaxWR: 50, SRQLimit: -7}, SRQAttrMaxWR))
	require.Len(t, s.reached(), 3)
	_, err = srq.Query()
	require.NoError(t, err)
	require.Contains(t, fmt.Sprint(srq), "max_wr=50", "what is printed is the size that it has now")
	s.refuse = ErrLimit
	require.ErrorIs(t, srq.Modify(SRQAttr{MaxWR: 20}, SRQAttrMaxWR), ErrLimit)
	require.Contains(t, fmt.Sprint(srq), "max_wr=50")
	require.NoError(t, srq.Close())
	for _, err := range []error{srq.Modify(SRQAttr{MaxWR: 1}, SRQAttrMaxWR), second(srq.Query()),
		second(srq.PostRecv(nil))} {
		require.ErrorIs(t, err, ErrClosed)
	}
	require.NoError(t, pd.Close())
	s.closed(t, ctx)
}

func second[T any](_ T, err error) error { return err }

// TestAHChecks: the port and the bits of a flow label.
func TestAHChecks(t *testing.T) {
	s, ctx := newStub(t)
	pd, err := ctx.AllocPD()
	require.NoError(t, err)
	for _, attr := range []AHAttr{{PortNum: 0}, {PortNum: 3}, {PortNum: 1, GRH: GlobalRoute{FlowLabel: 1 << 20}}} {
		_, err := pd.CreateAH(attr)
		require.ErrorIs(t, err, ErrInvalid, "%+v", attr)
		require.Zero(t, s.made["AH"])
	}
	for _, attr := range []AHAttr{{PortNum: 1}, {PortNum: 2, GRH: GlobalRoute{FlowLabel: 1<<20 - 1}}} {
		ah, err := pd.CreateAH(attr)
		require.NoError(t, err)
		require.Equal(t, attr, ah.Attr())
		require.ErrorIs(t, pd.Close(), ErrBusy)
		require.NoError(t, ah.Close())
	}
	for port, ok := range []bool{0: false, 1: true, 2: true, 3: false} {
		attr, err := ctx.QueryPort(port)
		if !ok {
			require.ErrorIs(t, err, ErrInvalid, "%d", port)
			continue
		}
		require.NoError(t, err)
		require.EqualValues(t, port, attr.LID)
	}
	_, err = pd.AllocMW(9)
	require.ErrorIs(t, err, ErrInvalid)
	require.NoError(t, pd.Close())
	s.closed(t, ctx)
}

// TestContextChecks: the attributes of an open device, and what an event says.
func TestContextChecks(t *testing.T) {
	s, ctx := newStub(t)
	attr, err := ctx.QueryDevice()
	require.NoError(t, err)
	require.Equal(t, s.attr, attr)
	f := newFamily(t, ctx)
	qp, err := f.pd.CreateQP(QPConfig{SendCQ: f.send, RecvCQ: f.recv})
	require.NoError(t, err)
	name := EventQPFatal.String()
	for want, ev := range map[string]AsyncEvent{
		name:                                {Type: EventQPFatal},
		name + " on QP 7":                   {Type: EventQPFatal, QP: qp},
		name + " on port 2":                 {Type: EventQPFatal, Port: 2},
		name + ": " + ErrCQOverflow.Error(): {Type: EventQPFatal, Err: ErrCQOverflow},
	} {
		require.Equal(t, want, ev.text())
	}
	require.NoError(t, qp.Close())
	f.close(t)
	s.closed(t, ctx)
	_, err = ctx.QueryDevice()
	require.ErrorIs(t, err, ErrClosed)
}

// TestNoRegion: a nil region, which an endpoint without memory returns, is no memory.
func TestNoRegion(t *testing.T) {
	var m *MR
	require.Nil(t, m.Bytes())
	require.Nil(t, m.PD())
	require.Zero(t, m.Len())
	require.Zero(t, m.Access())
	require.Zero(t, m.LKey())
	require.Equal(t, Remote{}, m.Remote())
	_, err := m.SGE(0, 8)
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, "EndpointConfig.Memory")
	_, err = m.Word(0)
	require.ErrorIs(t, err, ErrInvalid)
	require.NoError(t, m.Close())
}
