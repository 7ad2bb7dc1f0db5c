// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// newStubQP makes a QP and what it needs, with which the device is used no more.
func newStubQP(t *testing.T, s *stub, ctx *Context, cfg QPConfig) *QP {
	pd, err := ctx.AllocPD()
	require.NoError(t, err)
	cq, err := ctx.CreateCQ(CQConfig{})
	require.NoError(t, err)
	cfg.SendCQ, cfg.RecvCQ = cq, cq
	qp, err := pd.CreateQP(cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, ctx.CloseAll())
		s.closed(t, ctx)
	})
	s.reached()
	return qp
}

// TestPostChecks: what is wrong on every device does not reach the device, and what is just right
// does.
func TestPostChecks(t *testing.T) {
	s, ctx := newStub(t)
	qp := newStubQP(t, s, ctx, QPConfig{Cap: QPCap{MaxSendSGE: 4, MaxInlineData: 10}})
	sgl := func(lengths ...uint32) (sgl []SGE) {
		for _, n := range lengths {
			sgl = append(sgl, SGE{Length: n})
		}
		return sgl
	}
	for _, c := range []struct {
		wr   SendWR
		want error // nil = right
	}{
		{SendWR{Opcode: WRSend, SGL: sgl(1, 2, 3, 4)}, nil},
		{SendWR{Opcode: WRSend, SGL: sgl(1, 2, 3, 4, 5)}, ErrLimit},
		{SendWR{Opcode: WRSend, SGL: sgl(math.MaxUint32-1, 1)}, nil},
		{SendWR{Opcode: WRSend, SGL: sgl(math.MaxUint32-1, 1, 1)}, ErrLimit},
		{SendWR{Opcode: WRSend, SGL: sgl(11)}, nil},
		{SendWR{Opcode: WRSend, SGL: sgl(4, 6), Flags: SendInline}, nil},
		{SendWR{Opcode: WRSend, SGL: sgl(4, 7), Flags: SendInline}, ErrLimit},
		{SendWR{Opcode: WRRDMARead, SGL: sgl(1, 2, 3)}, nil},
		{SendWR{Opcode: WRRDMARead, SGL: sgl(1, 2, 3, 4)}, ErrLimit},
		{SendWR{Opcode: WRRDMARead, SGL: sgl(1), Flags: SendInline}, ErrInvalid},
		{SendWR{Opcode: WRAtomicFetchAndAdd, SGL: sgl(8)}, nil},
		{SendWR{Opcode: WRAtomicFetchAndAdd, SGL: sgl(4, 4)}, ErrInvalid},
		{SendWR{Opcode: WRAtomicFetchAndAdd, SGL: sgl(4)}, ErrInvalid},
		{SendWR{Opcode: WRAtomicFetchAndAdd}, ErrInvalid},
		{SendWR{Opcode: WRLocalInv}, nil},
		{SendWR{Opcode: WRLocalInv, SGL: sgl(8)}, ErrInvalid},
		{SendWR{Opcode: WRLocalInv, Flags: SendInline}, ErrInvalid},
		{SendWR{Opcode: WRSend, Flags: 1 << 6}, ErrInvalid},
		{SendWR{Opcode: 99}, ErrInvalid},
	} {
		n, err := qp.PostSend([]SendWR{c.wr})
		if c.want == nil {
			require.NoError(t, err, "%+v", c.wr)
			require.Equal(t, 1, n)
			require.Equal(t, []string{"PostSend 1"}, s.reached())
			continue
		}
		require.ErrorIs(t, err, c.want, "%+v", c.wr)
		require.Zero(t, n)
		require.Empty(t, s.reached(), "%+v", c.wr)
	}
}

// TestPostLists: the device gets what is before the first wrong request, and an empty list, of
// which it knows whether the state of the QP allows it.
func TestPostLists(t *testing.T) {
	s, ctx := newStub(t)
	qp := newStubQP(t, s, ctx, QPConfig{})
	srq, err := qp.PD().CreateSRQ(SRQAttr{})
	require.NoError(t, err)
	two := make([]SGE, 2)
	post := map[string]func(good, bad int) (int, error){
		"PostSend": func(good, bad int) (int, error) {
			wrs := make([]SendWR, good, good+bad)
			for i := range wrs {
				wrs[i].Opcode = WRSend
			}
			for range bad {
				wrs = append(wrs, SendWR{Opcode: WRSend, SGL: two})
			}
			return qp.PostSend(wrs)
		},
		"PostRecv": func(good, bad int) (int, error) {
			return qp.PostRecv(append(make([]RecvWR, good), make([]RecvWR, bad)...))
		},
	}
	receives := func(good, bad int) []RecvWR {
		wrs := make([]RecvWR, good+bad)
		for i := range bad {
			wrs[good+i].SGL = two
		}
		return wrs
	}
	post["PostRecv"] = func(good, bad int) (int, error) { return qp.PostRecv(receives(good, bad)) }
	post["SRQ.PostRecv"] = func(good, bad int) (int, error) { return srq.PostRecv(receives(good, bad)) }
	for name, post := range post {
		for _, good := range []int{0, 1, 3} {
			n, err := post(good, 0)
			require.NoError(t, err, name)
			require.Equal(t, good, n)
			require.Equal(t, []string{fmt.Sprintf("%s %d", name, good)}, s.reached(), name)
			n, err = post(good, 2)
			require.ErrorIs(t, err, ErrLimit, name)
			require.ErrorContains(t, err, fmt.Sprintf("request %d: ", good))
			require.Equal(t, good, n)
			if good == 0 {
				require.Empty(t, s.reached(), name)
			} else {
				require.Equal(t, []string{fmt.Sprintf("%s %d", name, good)}, s.reached(), name)
			}
		}
		s.refuse = ErrQueueFull
		n, err := post(1, 1)
		require.Zero(t, n)
		require.ErrorIs(t, err, ErrQueueFull, name)
		require.NotErrorIs(t, err, ErrLimit, "it is of a later request than the device's")
		s.refuse = nil
		s.reached()
	}
}

// TestPostDirect: a QP that checks requests by itself gets them as they are, but for receives of a
// QP that has an SRQ.
func TestPostDirect(t *testing.T) {
	s, ctx := newStub(t)
	s.direct = true
	qp := newStubQP(t, s, ctx, QPConfig{})
	n, err := qp.PostSend([]SendWR{{Opcode: 99}})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	n, err = qp.PostRecv(make([]RecvWR, 2))
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Equal(t, []string{"postSendDirect 1", "postRecvDirect 2"}, s.reached())

	srq, err := qp.PD().CreateSRQ(SRQAttr{})
	require.NoError(t, err)
	shared, err := qp.PD().CreateQP(QPConfig{SendCQ: qp.SendCQ(), RecvCQ: qp.RecvCQ(), SRQ: srq})
	require.NoError(t, err)
	_, err = shared.PostRecv(make([]RecvWR, 1))
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, "SRQ.PostRecv")
	require.Empty(t, s.reached())
	require.NoError(t, shared.Close())
	_, err = shared.PostRecv(make([]RecvWR, 1))
	require.ErrorIs(t, err, ErrClosed)
}

// TestBindChecks: the window, the region and the part of it that both kinds of bind name.
func TestBindChecks(t *testing.T) {
	s, ctx := newStub(t)
	qp := newStubQP(t, s, ctx, QPConfig{})
	other, err := ctx.AllocPD()
	require.NoError(t, err)
	window := func(pd *PD, typ MWType) *MW {
		w, err := pd.AllocMW(typ)
		require.NoError(t, err)
		return w
	}
	region := func(pd *PD, access AccessFlags) *MR {
		m, err := pd.RegMRIova(make([]byte, 100), 1000, access)
		require.NoError(t, err)
		return m
	}
	const rights = AccessLocalWrite | AccessMWBind
	mr, foreign, gone := region(qp.PD(), rights), region(other, rights), region(qp.PD(), rights)
	require.NoError(t, gone.Close())
	noBind, noWrite := region(qp.PD(), AccessLocalWrite), region(qp.PD(), AccessMWBind)
	s.reached()
	for _, typ := range []MWType{MWType1, MWType2} {
		mw, foreignMW, goneMW := window(qp.PD(), typ), window(other, typ), window(qp.PD(), typ)
		require.NoError(t, goneMW.Close())
		for name, c := range map[string]struct {
			b    MWBind
			want error
		}{
			"all of it":            {MWBind{mw, mr, 1000, 100, AccessRemoteRead | AccessRemoteWrite}, nil},
			"the end of it":        {MWBind{mw, mr, 1099, 1, AccessRemoteRead}, nil},
			"to be read":           {MWBind{mw, noWrite, 1000, 100, AccessRemoteRead}, nil},
			"no window":            {MWBind{nil, mr, 1000, 100, 0}, ErrInvalid},
			"no region":            {MWBind{mw, nil, 1000, 100, 0}, ErrInvalid},
			"window of another PD": {MWBind{foreignMW, mr, 1000, 100, 0}, ErrForeign},
			"region of another PD": {MWBind{mw, foreign, 1000, 100, 0}, ErrForeign},
			"closed window":        {MWBind{goneMW, mr, 1000, 100, 0}, ErrClosed},
			"closed region":        {MWBind{mw, gone, 1000, 100, 0}, ErrClosed},
			"other rights":         {MWBind{mw, mr, 1000, 100, AccessLocalWrite}, ErrInvalid},
			"without MW_BIND":      {MWBind{mw, noBind, 1000, 100, AccessRemoteRead}, ErrInvalid},
			"to be written":        {MWBind{mw, noWrite, 1000, 100, AccessRemoteWrite}, ErrInvalid},
			"atomics":              {MWBind{mw, noWrite, 1000, 100, AccessRemoteAtomic}, ErrInvalid},
			"before it":            {MWBind{mw, mr, 999, 1, AccessRemoteRead}, ErrBounds},
			"one byte too many":    {MWBind{mw, mr, 1000, 101, AccessRemoteRead}, ErrBounds},
			"beyond its end":       {MWBind{mw, mr, 1099, 2, AccessRemoteRead}, ErrBounds},
			"behind it":            {MWBind{mw, mr, 1101, math.MaxUint64, AccessRemoteRead}, ErrBounds},
		} {
			var err error
			if typ == MWType1 {
				err = qp.BindMW(5, SendSignaled|SendFence, c.b)
			} else {
				var key uint32
				if c.b.MW != nil {
					key = c.b.MW.NextRKey()
				}
				_, err = qp.PostSend([]SendWR{{Opcode: WRBindMW, Bind: &c.b, RKey: key}})
			}
			if c.want != nil {
				require.ErrorIs(t, err, c.want, "%v: %s", typ, name)
				require.Empty(t, s.reached(), name)
				continue
			}
			require.NoError(t, err, "%v: %s", typ, name)
			require.Len(t, s.reached(), 1)
		}
	}
	one, two := window(qp.PD(), MWType1), window(qp.PD(), MWType2)
	b := MWBind{one, mr, 1000, 100, AccessRemoteRead}
	require.NoError(t, qp.BindMW(5, SendSignaled|SendFence, b))
	require.Equal(t, []string{"BindMW 5 " + (SendSignaled | SendFence).String()}, s.reached())
	require.EqualValues(t, 0x301, one.RKey(), "the key of the bind")
	for _, flags := range []SendFlags{SendInline, SendSolicited, SendInline | SendSignaled} {
		require.ErrorIs(t, qp.BindMW(5, flags, b), ErrInvalid, "%v", flags)
	}
	require.NoError(t, qp.BindMW(6, 0, MWBind{one, mr, 1000, 0, 0}), "of no bytes")
	require.NoError(t, qp.BindMW(6, 0, MWBind{one, mr, 1100, 0, 0}), "at the end")
	require.ErrorIs(t, qp.BindMW(7, 0, MWBind{two, mr, 1000, 100, 0}), ErrInvalid, "the wrong kind")
	s.reached()
	for name, wr := range map[string]SendWR{
		"nothing":         {},
		"the wrong kind":  {Bind: &b, RKey: one.NextRKey()},
		"of no bytes":     {Bind: &MWBind{two, mr, 1000, 0, 0}, RKey: two.NextRKey()},
		"another's key":   {Bind: &MWBind{two, mr, 1000, 100, 0}, RKey: two.NextRKey() + 0x100},
		"inline":          {Bind: &MWBind{two, mr, 1000, 100, 0}, RKey: two.NextRKey(), Flags: SendInline},
		"with an element": {Bind: &MWBind{two, mr, 1000, 100, 0}, RKey: two.NextRKey(), SGL: make([]SGE, 1)},
	} {
		wr.Opcode = WRBindMW
		_, err := qp.PostSend([]SendWR{wr})
		require.ErrorIs(t, err, ErrInvalid, name)
	}
	require.Empty(t, s.reached())
	before := two.RKey()
	_, err = qp.PostSend([]SendWR{{Opcode: WRSend, Bind: &MWBind{two, mr, 1000, 100, 0}, RKey: two.NextRKey()}})
	require.NoError(t, err)
	require.Equal(t, before, two.RKey(), "only a bind changes the key")
	require.NoError(t, errors.Join(one.Close(), two.Close()))
}

// TestDatagramChecks: the address handle of a datagram.
func TestDatagramChecks(t *testing.T) {
	s, ctx := newStub(t)
	qp := newStubQP(t, s, ctx, QPConfig{Type: QPTypeUD})
	other, err := ctx.AllocPD()
	require.NoError(t, err)
	handle := func(pd *PD) *AH {
		ah, err := pd.CreateAH(AHAttr{PortNum: 1})
		require.NoError(t, err)
		return ah
	}
	ah, foreign, gone := handle(qp.PD()), handle(other), handle(qp.PD())
	require.NoError(t, gone.Close())
	for name, c := range map[string]struct {
		d    *UDDest
		want error
	}{
		"right":         {&UDDest{AH: ah, RemoteQPN: 1<<24 - 1}, nil},
		"none":          {nil, ErrInvalid},
		"no AH":         {&UDDest{}, ErrInvalid},
		"of another PD": {&UDDest{AH: foreign}, ErrForeign},
		"closed":        {&UDDest{AH: gone}, ErrClosed},
		"too many bits": {&UDDest{AH: ah, RemoteQPN: 1 << 24}, ErrInvalid},
	} {
		n, err := qp.PostSend([]SendWR{{Opcode: WRSend, UD: c.d}})
		if c.want == nil {
			require.NoError(t, err, name)
			require.Equal(t, 1, n)
			continue
		}
		require.ErrorIs(t, err, c.want, name)
		require.Zero(t, n, name)
	}
	require.Equal(t, []string{"PostSend 1"}, s.reached())
	require.ErrorIs(t, qp.BindMW(1, 0, MWBind{}), ErrNotSupported, "a datagram has no windows")
}
