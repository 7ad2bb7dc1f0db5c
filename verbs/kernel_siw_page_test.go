// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/verbs"
)

// Short messages across a page, of which siw sends other bytes. fake1 records a fault for each that
// it gets.

// pageRig has two pages of memory and a QP of so many sends.
func pageRig(t *testing.T, sends int) (r *rig, mr *verbs.MR, qp *verbs.QP) {
	t.Helper()
	r = newRig(t, "fake1")
	mr, err := r.pd.AllocMR(8192, allRights)
	require.NoError(t, err)
	qp = r.newQP(verbs.QPConfig{Cap: verbs.QPCap{MaxSendWR: sends, MaxSendSGE: 3, MaxInlineData: 64}})
	require.Equal(t, sends, qp.Cap().MaxSendWR)
	require.Equal(t, 3, qp.Cap().MaxSendSGE)
	r.up(qp)
	return r, mr, qp
}

// TestSiwElementAcrossPages: one element becomes two, which siw sends by its other code.
func TestSiwElementAcrossPages(t *testing.T) {
	r, mr, qp := pageRig(t, 8)
	sge := func(off, n int) verbs.SGE {
		return verbs.SGE{Addr: mr.Addr() + uint64(off), Length: uint32(n), LKey: mr.LKey()}
	}
	for _, c := range []struct {
		off, n int
		flags  verbs.SendFlags
		want   []verbs.SGE
	}{
		{4095, 2, 0, []verbs.SGE{sge(4095, 1), sge(4096, 1)}},
		{4096 - 31, 32, 0, []verbs.SGE{sge(4096-31, 31), sge(4096, 1)}},
		{4095, 32, 0, []verbs.SGE{sge(4095, 1), sge(4096, 31)}},
		{4095, 33, 0, []verbs.SGE{sge(4095, 33)}},
		{4064, 32, 0, []verbs.SGE{sge(4064, 32)}},
		{4096, 32, 0, []verbs.SGE{sge(4096, 32)}},
		{4095, 2, verbs.SendInline, []verbs.SGE{sge(4095, 2)}},
	} {
		for _, op := range []verbs.WROpcode{verbs.WRSend, verbs.WRRDMAWrite, verbs.WRSendWithInv} {
			if c.flags != 0 && op == verbs.WRSendWithInv {
				continue
			}
			before := len(fakeverbs.Posted())
			r.post(qp, verbs.SendWR{ID: 1, Opcode: op, Flags: c.flags | verbs.SendSignaled,
				SGL: []verbs.SGE{sge(c.off, c.n)}})
			posted := fakeverbs.Posted()[before:]
			require.Len(t, posted, 1)
			var got []verbs.SGE
			for _, s := range posted[0].SGEs {
				got = append(got, verbs.SGE(s))
			}
			require.Equal(t, c.want, got, "%v: %d bytes at %d", op, c.n, c.off)
			fakeverbs.CompleteSend(qp.Num(), 1, 0)
			require.Equal(t, []uint64{1}, wcIDs(r.poll()))
		}
	}
}

// TestSiwOneElementLeft: of several elements without the empty ones a single one can be left.
func TestSiwOneElementLeft(t *testing.T) {
	r, mr, qp := pageRig(t, 8)
	whole := verbs.SGE{Addr: mr.Addr() + 4090, Length: 24, LKey: mr.LKey()}
	empty := verbs.SGE{Addr: mr.Addr(), LKey: mr.LKey()}
	want := []fakeverbs.SGE{{Addr: mr.Addr() + 4090, Length: 6, LKey: mr.LKey()},
		{Addr: mr.Addr() + 4096, Length: 18, LKey: mr.LKey()}}
	for _, sgl := range [][]verbs.SGE{{whole, empty}, {empty, whole}, {empty, whole, empty}} {
		r.post(qp, verbs.SendWR{Opcode: verbs.WRSend, SGL: sgl}, verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGL: sgl[:1]})
		require.Equal(t, want, fakeverbs.LastPosted()[0].SGEs)
		fakeverbs.CompleteSend(qp.Num(), 2, 0)
		r.poll()
	}
	one := r.newQP(verbs.QPConfig{Cap: verbs.QPCap{MaxSendSGE: 1}})
	require.Equal(t, 1, one.Cap().MaxSendSGE)
	r.up(one)
	r.post(one, verbs.SendWR{Opcode: verbs.WRSend, SGL: []verbs.SGE{whole}})
	require.Equal(t, want, fakeverbs.LastPosted()[0].SGEs)
}

// across is a Read of 24 bytes, 5 of them before a boundary of the peer's.
func across(mr *verbs.MR, id uint64) verbs.SendWR {
	return verbs.SendWR{ID: id, Opcode: verbs.WRRDMARead, Flags: verbs.SendSignaled, RemoteAddr: 3*4096 - 5, RKey: 77,
		SGL: []verbs.SGE{{Addr: mr.Addr() + 100, Length: 24, LKey: mr.LKey()}}}
}

// TestSiwReadAcrossPages: one Read becomes two, of which the program sees one.
func TestSiwReadAcrossPages(t *testing.T) {
	r, mr, qp := pageRig(t, 1)
	for range 100 { // a queue for one takes it again and again
		before := len(fakeverbs.Posted())
		r.post(qp, across(mr, 5))
		posted := fakeverbs.Posted()[before:]
		require.Len(t, posted, 2)
		require.Equal(t, posted[0].Call, posted[1].Call)
		require.Equal(t, []fakeverbs.SGE{{Addr: mr.Addr() + 100, Length: 5, LKey: mr.LKey()}}, posted[0].SGEs)
		require.Equal(t, []fakeverbs.SGE{{Addr: mr.Addr() + 105, Length: 19, LKey: mr.LKey()}}, posted[1].SGEs)
		require.EqualValues(t, []uint64{3*4096 - 5, 3 * 4096}, []uint64{posted[0].RemoteAddr, posted[1].RemoteAddr})
		require.EqualValues(t, []uint32{77, 77}, []uint32{posted[0].RKey, posted[1].RKey})
		n, err := qp.PostSend([]verbs.SendWR{across(mr, 6)})
		require.ErrorIs(t, err, verbs.ErrQueueFull)
		require.Zero(t, n)
		fakeverbs.CompleteSend(qp.Num(), 1, 0)
		require.Empty(t, r.poll())
		fakeverbs.CompleteSend(qp.Num(), 1, 0)
		wcs := r.poll()
		require.Equal(t, []uint64{5}, wcIDs(wcs))
		require.Equal(t, verbs.WCRDMARead, wcs[0].Opcode)
	}
	r.post(qp, across(mr, 7))
	for i, p := range fakeverbs.Posted()[200:] {
		fakeverbs.InjectWC(qp.Num(), false,
			fakeverbs.WC{WRID: p.WRID, Opcode: uint32(verbs.WCRDMARead), ByteLen: []uint32{5, 19}[i]})
	}
	require.EqualValues(t, 24, r.poll()[0].ByteLen)
}

// TestSiwReadAcrossPagesFails: whichever part fails, the request has failed, once.
func TestSiwReadAcrossPagesFails(t *testing.T) {
	for part := range 2 {
		r, mr, qp := pageRig(t, 4)
		r.post(qp, across(mr, 5), across(mr, 6))
		posted := fakeverbs.Posted()
		require.Len(t, posted, 4)
		if part == 1 {
			fakeverbs.InjectWC(qp.Num(), false, fakeverbs.WC{WRID: posted[0].WRID, Opcode: 2, ByteLen: 5})
			require.Empty(t, r.poll())
		}
		fakeverbs.InjectWC(qp.Num(), false, fakeverbs.WC{WRID: posted[part].WRID, Status: uint32(verbs.WCRemAccessErr)})
		for _, p := range posted[part+1:] {
			fakeverbs.InjectWC(qp.Num(), false, fakeverbs.WC{WRID: p.WRID, Status: uint32(verbs.WCWRFlushErr)})
		}
		wcs := r.poll()
		require.Equal(t, []uint64{5, 6}, wcIDs(wcs))
		require.Equal(t, verbs.WCRemAccessErr, wcs[0].Status)
		require.Equal(t, verbs.WCWRFlushErr, wcs[1].Status)
		require.ErrorIs(t, qp.Err(), verbs.WCRemAccessErr)
	}
}

// TestSiwReadAcrossPagesRefused: what the library takes of a list counts in requests of the
// program's. It never should stop between the two parts; if it does, the QP has failed.
func TestSiwReadAcrossPagesRefused(t *testing.T) {
	r, mr, qp := pageRig(t, 8)
	list := append(writes(mr, 1), across(mr, 5), across(mr, 6)) // 5 for the device
	for index, want := range map[int]int{0: 0, 1: 1, 3: 2} {
		fakeverbs.FailPost("ibv_post_send", 1, fakeverbs.PostFailure{Index: index, Result: -int(syscall.ENOMEM)})
		n, err := qp.PostSend(list)
		require.ErrorIs(t, err, verbs.ErrQueueFull)
		require.Equal(t, want, n, "the device takes %d", index)
		fakeverbs.CompleteSend(qp.Num(), index, 0)
		require.Len(t, r.poll(), want)
	}

	failed := qp.Provider().(verbs.ProviderQPWatcher).Failed()
	fakeverbs.FailPost("ibv_post_send", 1, fakeverbs.PostFailure{Index: 2, Result: -int(syscall.ENOMEM)})
	r.post(qp, list...)
	<-failed
	require.ErrorIs(t, qp.Err(), verbs.ErrQueueFull)
	var wcs []verbs.WC
	require.Eventually(t, func() bool { wcs = append(wcs, r.poll()...); return len(wcs) == 3 }, 10*time.Second,
		time.Millisecond)
	require.Equal(t, []uint64{0, 5, 6}, wcIDs(wcs))
}

// TestSiwReadAcrossPagesDeep: a queue as long as the device's is not doubled. What the device has
// no place for waits.
func TestSiwReadAcrossPagesDeep(t *testing.T) {
	most := int(fakeverbs.DeviceAttr(fakeverbs.Fake1).MaxQPWR)
	r, mr, qp := pageRig(t, most)
	qp.Provider().(verbs.ProviderQPLimiter).SetDepths(2*most, 0)
	var list []verbs.SendWR
	for i := range most + 1 {
		list = append(list, across(mr, uint64(i)))
	}
	n, err := qp.PostSend(list)
	require.ErrorIs(t, err, verbs.ErrQueueFull)
	require.Equal(t, most, n)
	for next := 0; next < most; {
		require.Positive(t, fakeverbs.CompleteSend(qp.Num(), 100, 0))
		for _, id := range wcIDs(r.poll()) {
			require.EqualValues(t, next, id)
			next++
		}
	}
	require.Len(t, fakeverbs.Posted(), 2*most)
	r.post(qp, list[0])
}
