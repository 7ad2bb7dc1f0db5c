// SPDX-License-Identifier: BSD-3-Clause

package usiw_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/iwarp/mpa"
	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/internal/lifetime"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/usiw/usiwtest"
	"github.com/goverbs/goverbs/verbs"
)

// FuzzConn runs a script against a connected QP: messages of every kind, valid or with any field
// wrong, bytes that are no message, and requests of the QP. Whatever the script, nothing panics or
// waits forever, no byte is read or written without permission, each request has one completion,
// and nothing is left over.
func FuzzConn(f *testing.F) {
	for _, s := range fuzzSeeds() {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 4096 {
			return
		}
		before := len(lifetime.Live())
		synctest.Test(t, func(t *testing.T) { (&fuzzRun{t: t, script: script}).run() })
		require.Len(t, lifetime.Live(), before)
	})
}

// fuzzSeeds are scripts with each message, alone and after what it requires, on each kind of
// connection.
func fuzzSeeds() (seeds [][]byte) {
	recv := []byte{fuzzRecv, 0, fuzzRecv, 1, fuzzRecv, 2}
	get := []byte{fuzzPost, byte(verbs.WRRDMARead), 0, fuzzWait}
	add := []byte{fuzzPost, byte(verbs.WRAtomicFetchAndAdd), 0, fuzzWait}
	// A Terminate that quotes the header of the first request on queue 1.
	quote := []byte{fuzzUntagged, 0, byte(rdmap.OpTerminate), 2, 0x01, 0, 0xc0, 0,
		0, 46, 0x41, 0x41, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0}
	messages := [][]byte{
		{fuzzRaw, 4, 1, 2, 3, 4},
		{fuzzTagged, 0, byte(rdmap.OpWrite), fuzzAll, 0, 8},
		{fuzzTagged, 0, byte(rdmap.OpWrite), fuzzWrite, 0, 96},
		{fuzzTagged, 0, byte(rdmap.OpWrite), fuzzWrite, 1, 96},
		{fuzzTagged, fuzzMore, byte(rdmap.OpWrite), fuzzWindow, 48, 48},
		{fuzzTagged, 0, byte(rdmap.OpReadResponse), fuzzLocal, 0, 8},
		{fuzzUntagged, 0, byte(rdmap.OpReadRequest), 1, fuzzAll, 0, 96},
		{fuzzUntagged, 0, byte(rdmap.OpReadRequest), 1, fuzzRead, 250, 10},
		{fuzzUntagged, 0, byte(rdmap.OpSend), 0, 20},
		{fuzzUntagged, fuzzMore, byte(rdmap.OpSend), 0, 20, fuzzUntagged, 0, byte(rdmap.OpSend), 0, 76},
		{fuzzUntagged, 0, byte(rdmap.OpSendInv), 0, 20, fuzzWindow},
		{fuzzUntagged, 0, byte(rdmap.OpSendSEInv), 0, 0, fuzzAll},
		{fuzzUntagged, 0, byte(rdmap.OpTerminate), 2, 0, 1, 0, 0x40},
		{fuzzUntagged, 0, byte(rdmap.OpImmediate), 0},
		{fuzzUntagged, 0, byte(rdmap.OpImmediateSE), 0},
		{fuzzUntagged, 0, byte(rdmap.OpAtomicRequest), 1, 0, fuzzAtomic, 0},
		{fuzzUntagged, 0, byte(rdmap.OpAtomicRequest), 1, 2, fuzzAll, 88},
		{fuzzUntagged, 0, byte(rdmap.OpAtomicResponse), 3, 0},
		get, {fuzzPost, byte(verbs.WRSend), 0, 30, fuzzPost, byte(verbs.WRRDMAWrite), 0, 30},
		{fuzzChange, 0}, {fuzzChange, 1}, {fuzzChange, 2}, {fuzzChange, 3}, {fuzzChange, 4},
		{fuzzSplit, 1},
	}
	// Every key, with addresses at, before and after the memory that it names.
	for key := range byte(fuzzKeys) {
		for _, off := range []int8{0, -1, 1, fuzzSize/2 - 8, fuzzSize/2 - 7, fuzzSize - 8, fuzzSize - 7, -128} {
			seeds = append(seeds,
				[]byte{0, fuzzTagged, 0, byte(rdmap.OpWrite), key, byte(off), 8},
				[]byte{0, fuzzUntagged, 0, byte(rdmap.OpReadRequest), 1, key, byte(off), 16},
				[]byte{0, fuzzUntagged, 0, byte(rdmap.OpAtomicRequest), 1, 0, key, byte(off)})
		}
	}
	seeds = append(seeds, nil)
	for _, kind := range []byte{0, fuzzNoCRC, fuzzMarkIn | fuzzMarkOut, fuzzPlain, fuzzShallow, fuzzShared} {
		whole := append([]byte{kind}, recv...)
		for _, m := range messages {
			one := append([]byte{kind}, m...)
			seeds = append(seeds, append(one, recv...), append(append(append([]byte{kind}, recv...), m...), m...))
			whole = append(whole, m...)
		}
		seeds = append(seeds, whole)
	}
	for _, ask := range [][]byte{get, add, append(bytes.Clone(get), add...)} {
		for _, then := range [][]byte{{fuzzAnswer, 0}, {fuzzAnswer, fuzzMore, fuzzAnswer, 0, fuzzAnswer, 0},
			{fuzzChange, 5 * fuzzLocal, fuzzAnswer, 0}, {fuzzAnswer, fuzzBadNumber, 1}, {fuzzAnswer, fuzzShort},
			{fuzzAnswer, fuzzLong}, quote} {
			seeds = append(seeds, append(append([]byte{0}, ask...), then...),
				append(append([]byte{fuzzShallow}, ask...), then...))
		}
	}
	for flag := 1; flag < 256; flag <<= 1 {
		for _, m := range messages[1:] {
			m = bytes.Clone(m)
			m[1] |= byte(flag)
			seeds = append(seeds, append(append([]byte{0}, recv...), m...))
		}
	}
	return seeds
}

func (r *fuzzRun) run() {
	t := r.t
	r.open(r.next())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.listen()
	}()
	for len(r.script) > 0 {
		r.step()
	}
	synctest.Wait()
	if r.id.Err() == nil {
		require.Equal(t, verbs.QPStateRTS, r.qp.State())
	}
	// The peer is gone, so the connection ends at once.
	began := time.Now()
	r.p.close()
	<-r.id.Done()
	require.NoError(t, r.id.Close())
	require.LessOrEqual(t, time.Since(began), 3*time.Second)
	<-done
	require.Equal(t, verbs.QPStateErr, r.qp.State())
	r.completed(r.scq, r.posts)
	if flushed := r.completed(r.rcq, r.recvs-r.left()); r.srq != nil {
		require.LessOrEqual(t, flushed, 1, "only what a message had begun to fill leaves the SRQ with the QP")
	}
	r.intact()
}

// open registers memory and makes a connection of the given kind.
func (r *fuzzRun) open(kind byte) {
	t := r.t
	w := usiwtest.NewWire()
	cfg := usiw.Config{Network: w, MaxIRD: 16}
	frame := rawRequest()
	r.crc, r.marked = kind&fuzzNoCRC == 0, kind&fuzzMarkIn != 0
	if !r.crc {
		cfg.CRC, frame.CRC = usiw.Off, false
	}
	if r.marked {
		cfg.Markers = usiw.On
	}
	frame.Markers = kind&fuzzMarkOut != 0
	if kind&fuzzPlain != 0 {
		cfg.Without = rfc7306
	}
	param := cm.ConnParam{}
	if kind&fuzzShallow != 0 {
		param.ResponderResources, param.InitiatorDepth = 1, 1
	}
	n := newRawNIC(t, cfg)
	r.regions(n)
	r.rawEnd = n.end(verbs.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxRecvSGE: 3})
	if kind&fuzzShared != 0 {
		r.share()
	}
	r.msn = [8]uint32{1, 1, 1, 1, 1, 1, 1, 1}

	ln := n.listen()
	conn, err := w.DialContext(t.Context(), "tcp", ln.Addr().String())
	require.NoError(t, err)
	r.p, r.link = &wirePeer{t, conn}, w.Links()[0]
	t.Cleanup(r.p.close)
	b, err := frame.Append(nil)
	require.NoError(t, err)
	r.p.write(b)
	c := r.goAccept(t.Context(), n.request(ln), param)
	_, err = mpa.ReadFrame(conn)
	require.NoError(t, err)
	r.fpdu(rawTagged(rdmap.OpWrite, 1, 0, nil), 0)
	e := <-c
	require.NoError(t, e.err)
	r.id = e.id
	if kind&fuzzPlain == 0 {
		r.mw[0] = r.window(r.qp)
		r.mw[1] = r.window(nil)
	}
}

// share replaces the QP with one that takes its receives from an SRQ.
func (r *fuzzRun) share() {
	t := r.t
	require.NoError(t, r.qp.Close())
	var err error
	r.srq, err = r.pd.CreateSRQ(verbs.SRQAttr{MaxWR: 64, MaxSGE: 3})
	require.NoError(t, err)
	r.qp, err = r.pd.CreateQP(
		verbs.QPConfig{SendCQ: r.scq, RecvCQ: r.rcq, SRQ: r.srq, Cap: verbs.QPCap{MaxSendWR: 64}, SigAll: true})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, r.qp.Close())
		require.NoError(t, r.srq.Close())
	})
}

// left counts the receives that no message has consumed: an SRQ cannot be shrunk below that number.
func (r *fuzzRun) left() (n int) {
	if r.srq == nil {
		return 0
	}
	for n = 1; r.srq.Modify(verbs.SRQAttr{MaxWR: n}, verbs.SRQAttrMaxWR) != nil; n++ {
		require.LessOrEqual(r.t, n, r.recvs)
	}
	if n > 1 {
		return n
	}
	// One or none: another one fits only if there is none.
	if k, _ := r.srq.PostRecv(make([]verbs.RecvWR, 1)); k == 1 {
		return 0
	}
	return 1
}

// regions registers the memory. All of it holds the secret, except for what the peer may read.
func (r *fuzzRun) regions(n *rawNIC) {
	t := r.t
	r.secret = binary.NativeEndian.AppendUint64(nil, rand.Uint64())
	arena, err := n.pd.AllocMR(fuzzGuard+fuzzRegions*fuzzStep, 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, arena.Close()) })
	r.mem = arena.Bytes()
	copy(r.mem, bytes.Repeat(r.secret, len(r.mem)/8))
	other, err := n.ctx.AllocPD()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, other.Close()) })
	for i, access := range [fuzzRegions]verbs.AccessFlags{
		fuzzAll:    rawAccess | verbs.AccessMWBind,
		fuzzRead:   verbs.AccessRemoteRead,
		fuzzWrite:  verbs.AccessLocalWrite | verbs.AccessRemoteWrite,
		fuzzAtomic: verbs.AccessLocalWrite | verbs.AccessRemoteAtomic,
		fuzzLocal:  verbs.AccessLocalWrite,
		fuzzNone:   0,
		fuzzOther:  rawAccess,
		fuzzGone:   rawAccess,
	} {
		pd, mem := n.pd, r.region(i)
		switch i {
		case fuzzAll, fuzzRead, fuzzAtomic:
			clear(mem)
		case fuzzOther:
			pd = other
		}
		mr, err := pd.RegMRIova(mem, uint64(i)<<32|0x1000, access)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, mr.Close()) })
		r.mrs[i] = mr
	}
	require.NoError(t, r.mrs[fuzzGone].Close())
	r.before = bytes.Clone(r.mem)
}

// region returns the memory of a region.
func (r *fuzzRun) region(i int) []byte {
	at := fuzzGuard + i*fuzzStep
	return r.mem[at : at+fuzzSize : at+fuzzSize]
}

// window creates a window on the second half of fuzzAll, either bound through qp or unbound.
func (r *fuzzRun) window(qp *verbs.QP) *verbs.MW {
	mw, err := r.pd.AllocMW(verbs.MWType2)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { require.NoError(r.t, mw.Close()) })
	if qp != nil {
		r.bind(mw)
	}
	return mw
}

func (r *fuzzRun) bind(mw *verbs.MW) {
	r.send(verbs.SendWR{Opcode: verbs.WRBindMW, RKey: mw.NextRKey(), Bind: &verbs.MWBind{MW: mw, MR: r.mrs[fuzzAll],
		Addr: r.mrs[fuzzAll].Addr() + fuzzSize/2, Length: fuzzSize / 2, Access: fuzzRemote}})
}

// send posts a request, which may be refused. The CQ has room for all that are accepted.
func (r *fuzzRun) send(wr verbs.SendWR) {
	if r.posts < fuzzRequests {
		n, _ := r.qp.PostSend([]verbs.SendWR{wr})
		r.posts += n
	}
}

// listen reads what the NIC sends until the stream ends.
func (r *fuzzRun) listen() {
	b := make([]byte, 4096)
	for {
		n, err := r.p.conn.Read(b)
		r.mu.Lock()
		r.sent = append(r.sent, b[:n]...)
		r.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// completed requires that a CQ receives one completion for each of n requests, and counts the
// flushed ones.
func (r *fuzzRun) completed(cq *verbs.CQ, n int) (flushed int) {
	r.t.Helper()
	got := 0
	for {
		var wcs [32]verbs.WC
		k, err := cq.Poll(wcs[:])
		require.NoError(r.t, err)
		if k == 0 {
			break
		}
		got += k
		for _, wc := range wcs[:k] {
			if wc.Status == verbs.WCWRFlushErr {
				flushed++
			}
		}
	}
	require.Equal(r.t, n, got, "completions")
	return flushed
}

// intact requires that nothing was written without permission, and that the NIC revealed no
// secrets.
func (r *fuzzRun) intact() {
	mayChange := map[int]bool{fuzzAll: true, fuzzWrite: true, fuzzAtomic: true, fuzzLocal: true}
	for i := range fuzzRegions {
		if mayChange[i] {
			copy(r.region(i), r.before[fuzzGuard+i*fuzzStep:][:fuzzSize])
		}
	}
	require.True(r.t, bytes.Equal(r.before, r.mem), "memory was written without the right to")
	r.mu.Lock()
	defer r.mu.Unlock()
	require.False(r.t, bytes.Contains(r.sent, r.secret), "memory was read without the right to")
}
