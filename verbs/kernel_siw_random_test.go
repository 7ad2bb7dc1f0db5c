// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/verbs"
)

// A stream is what one goroutine posts to a QP. IDs are the stream's number and, from 1 on, that of
// the request.
type stream struct {
	qp       *deviceQP
	number   uint64
	signaled []bool // of what PostSend took
	parts    int    // more that the device gets of it
}

// deviceQP is a QP of siw with what the device has of it.
type deviceQP struct {
	*verbs.QP
	num  uint32
	ord  int
	done atomic.Int64 // of Posted() of the QP
}

// siwWorld is some QPs of siw under random load.
type siwWorld struct {
	*rig
	qps     []*deviceQP
	streams []*stream
	posters sync.WaitGroup
	others  sync.WaitGroup
	stop    chan struct{}
	mu      sync.Mutex // one poll at a time
	got     []verbs.WC
}

// A request has for lkey its place in its stream, times 2, and 1 if it is fenced. Those of length 0
// and inline data have none.
func (s *stream) request(w *siwWorld, rnd *rand.Rand) verbs.SendWR {
	n := uint32(len(s.signaled) + 1)
	wr := verbs.SendWR{ID: s.number<<32 | uint64(n), Opcode: verbs.WRRDMARead, RKey: 7}
	e := verbs.SGE{Addr: w.mr.Addr(), Length: 64, LKey: 2 * n}
	if rnd.IntN(2) == 0 {
		wr.Flags |= verbs.SendSignaled
	}
	switch rnd.IntN(9) {
	case 0:
		wr.Opcode = verbs.WRSend
	case 1:
		wr.Opcode = verbs.WRRDMAWrite
	case 2:
		wr.Opcode, wr.Flags, e.Length = verbs.WRSend, wr.Flags|verbs.SendInline, 40
	case 3:
		wr.Opcode, wr.Flags, e.LKey = verbs.WRRDMAWrite, wr.Flags|verbs.SendFence, e.LKey|1
	case 4:
		return wr // a Read of nothing
	case 5:
		e.Length, wr.RemoteAddr = 20, 4090
	case 6:
		wr.Flags |= verbs.SendFence // means nothing to a Read
	}
	wr.SGL = []verbs.SGE{e}
	return wr
}

// post posts until it has had so many taken, or for a while after the QP has failed.
func (s *stream) post(w *siwWorld, rnd *rand.Rand, count int) {
	defer w.posters.Done()
	for late := 3; len(s.signaled) < count && late > 0; {
		var list []verbs.SendWR
		before := len(s.signaled)
		for range 1 + rnd.IntN(5) {
			wr := s.request(w, rnd)
			list = append(list, wr)
			s.signaled = append(s.signaled, wr.Flags&verbs.SendSignaled != 0)
		}
		n, err := s.qp.PostSend(list)
		s.signaled = s.signaled[:before+n]
		for _, wr := range list[:n] {
			if wr.RemoteAddr != 0 {
				s.parts++
			}
		}
		switch {
		case errors.Is(err, verbs.ErrClosed):
			return
		case err != nil:
			time.Sleep(time.Duration(rnd.IntN(100)) * time.Microsecond)
		}
		if s.qp.State() == verbs.QPStateErr {
			late--
		}
	}
}

// device completes what was posted, and looks whether it was right to post that.
func (w *siwWorld) device(rnd *rand.Rand, failing bool) {
	defer w.others.Done()
	for i := 0; ; i++ {
		select {
		case <-w.stop:
			return
		default:
		}
		q := w.qps[rnd.IntN(len(w.qps))]
		if i%8 == 0 {
			w.look(q)
		}
		if failing && rnd.IntN(200) == 0 {
			q.complete(1, uint32(verbs.WCRemAccessErr))
		}
		q.complete(rnd.IntN(4), 0)
		if rnd.IntN(4) == 0 {
			time.Sleep(time.Duration(rnd.IntN(60)) * time.Microsecond)
		}
	}
}

func (q *deviceQP) complete(n int, status uint32) {
	q.done.Add(int64(max(fakeverbs.CompleteSend(q.num, n, status), 0)))
}

// look looks at what the device has of a QP.
func (w *siwWorld) look(q *deviceQP) {
	reads, n := 0, 0
	for _, p := range fakeverbs.Posted() {
		if p.QPN != q.num {
			continue
		}
		if n++; n <= int(q.done.Load()) {
			continue
		}
		read := p.Opcode == uint32(verbs.WRRDMARead)
		if len(p.SGEs) == 1 && reads > 0 && (read && p.SGEs[0].Length == 0 || p.SGEs[0].LKey&1 != 0) {
			w.Errorf("QP %d: request %d behind %d Reads", q.num, n, reads)
		}
		if read {
			reads++
		}
	}
	if reads > q.ord {
		w.Errorf("QP %d: %d Reads at a depth of %d", q.num, reads, q.ord)
	}
}

func (w *siwWorld) take(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	wcs := make([]verbs.WC, n)
	n, err := w.cq.Poll(wcs)
	if err != nil {
		w.Errorf("Poll: %v", err)
	}
	w.got = append(w.got, wcs[:n]...)
	return n
}

func (w *siwWorld) poll(rnd *rand.Rand, events bool) {
	defer w.others.Done()
	for {
		select {
		case <-w.stop:
			return
		default:
		}
		if w.take(1+rnd.IntN(12)) == 0 && events {
			w.wait()
		}
	}
}

// wait takes completions by way of events.
func (w *siwWorld) wait() {
	w.mu.Lock()
	defer w.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	wcs := make([]verbs.WC, 5)
	n, _ := w.cq.Wait(ctx, wcs)
	w.got = append(w.got, wcs[:n]...)
}

// trouble is what happens to QPs while they are posted to.
func (w *siwWorld) trouble(rnd *rand.Rand) {
	time.Sleep(time.Duration(rnd.IntN(2000)) * time.Microsecond)
	q := w.qps[rnd.IntN(len(w.qps))]
	switch rnd.IntN(6) {
	case 0:
		_ = q.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState)
	case 1:
		_ = q.Close()
	case 2:
		q.Provider().(verbs.ProviderQPMover).Moved(verbs.QPStateErr, syscall.ECONNRESET)
	case 3:
		fakeverbs.FailPost("ibv_post_send", 1+rnd.IntN(4),
			fakeverbs.PostFailure{Index: rnd.IntN(3), Result: -int(syscall.ENOMEM)})
	case 4:
		fakeverbs.FailPost("ibv_post_send", 1+rnd.IntN(4), fakeverbs.PostFailure{Index: 99, Result: -1, NoBadWR: true})
	}
}

// check looks at what has become of what a stream posted.
func (s *stream) check(t *testing.T, got []verbs.WC) {
	next, failed := 1, false
	for _, wc := range got {
		if wc.ID>>32 != s.number {
			continue
		}
		id := int(uint32(wc.ID))
		require.LessOrEqual(t, id, len(s.signaled), "stream %d: %d was not taken", s.number, id)
		require.GreaterOrEqual(t, id, next, "stream %d: %d comes twice, or late", s.number, id)
		for ; next < id; next++ {
			require.False(t, failed || s.signaled[next-1], "stream %d: %d is missing before %d", s.number, next, id)
		}
		if wc.Status == verbs.WCSuccess {
			require.False(t, failed, "stream %d: %d is a success after an error", s.number, id)
			require.True(t, s.signaled[id-1], "stream %d: %d was not signalled", s.number, id)
		}
		failed = failed || wc.Status != verbs.WCSuccess
		next++
	}
	for ; next <= len(s.signaled); next++ {
		require.False(t, failed || s.signaled[next-1], "stream %d: %d is missing at the end", s.number, next)
	}
}

// quiet reports whether the device has completed all that it should get.
func (w *siwWorld) quiet() bool {
	left := make(map[*deviceQP]int)
	for _, s := range w.streams {
		left[s.qp] += len(s.signaled) + s.parts
	}
	for q, n := range left {
		if q.State() == verbs.QPStateRTS && n != int(q.done.Load()) {
			return false
		}
	}
	return true
}

// TestSiwAdmissionRandom: whatever is posted, completed, polled and ended when, each request ends
// once and in its turn, the device gets none twice and none that would wait in its queue, and
// nothing is left behind.
func TestSiwAdmissionRandom(t *testing.T) {
	for seed := range uint64(60) {
		ok := t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) { gateRandom(t, seed) })
		if !ok {
			return
		}
	}
}

func gateRandom(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	fork := func() *rand.Rand { return rand.New(rand.NewPCG(rnd.Uint64(), 2)) }
	w := &siwWorld{rig: newRig(t, "fake1"), stop: make(chan struct{})}
	recvCQ := w.cq
	if rnd.IntN(2) == 0 {
		var err error
		recvCQ, err = w.ctx.CreateCQ(verbs.CQConfig{})
		require.NoError(t, err)
	}
	var numbers uint64
	for range 1 + rnd.IntN(3) {
		qp, err := w.pd.CreateQP(
			verbs.QPConfig{SendCQ: w.cq, RecvCQ: recvCQ,
				Cap: verbs.QPCap{MaxSendWR: 1 + rnd.IntN(12), MaxInlineData: 64}})
		require.NoError(t, err)
		w.up(qp)
		q := &deviceQP{QP: qp, num: qp.Num(), ord: 1 + rnd.IntN(4)}
		qp.Provider().(verbs.ProviderQPLimiter).SetDepths(q.ord, 4)
		w.qps = append(w.qps, q)
		for range 1 + rnd.IntN(2) {
			numbers++
			w.streams = append(w.streams, &stream{qp: q, number: numbers})
		}
	}
	w.posters.Add(len(w.streams))
	for _, s := range w.streams {
		go s.post(w, fork(), 60)
	}
	failing := rnd.IntN(3) == 0
	w.others.Add(1)
	go w.device(fork(), failing)
	for range rnd.IntN(3) { // none: the watch alone sees to it
		w.others.Add(1)
		go w.poll(fork(), rnd.IntN(2) == 0)
	}
	if rnd.IntN(2) == 0 {
		w.trouble(fork())
	}
	ended := make(chan struct{})
	go func() { w.posters.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		buf := make([]byte, 1<<20)
		t.Fatalf("seed %d: posts do not go on\n%s", seed, buf[:runtime.Stack(buf, true)])
	}
	if rnd.IntN(2) == 0 {
		require.Eventually(t, w.quiet, 20*time.Second, time.Millisecond, "the device does not get all")
	}
	if rnd.IntN(2) == 0 {
		for _, q := range w.qps {
			_ = q.Close()
		}
		close(w.stop)
		w.others.Wait()
	} else {
		close(w.stop)
		w.others.Wait()
		for _, q := range w.qps {
			_ = q.Close()
		}
	}
	for w.take(100) > 0 {
	}
	for _, s := range w.streams {
		s.check(t, w.got)
	}
	type posted struct {
		qp uint32
		id uint64
	}
	seen := make(map[posted]bool)
	for _, p := range fakeverbs.Posted() {
		at := posted{p.QPN, p.WRID}
		require.False(t, seen[at], "the device got request %d of QP %d twice", p.WRID, p.QPN)
		seen[at] = true
	}
	require.NoError(t, w.ctx.CloseAll())
	require.Eventually(t, func() bool {
		buf := make([]byte, 1<<20)
		return !strings.Contains(string(buf[:runtime.Stack(buf, true)]), "attend")
	}, 5*time.Second, time.Millisecond, "the watch is left behind")
}
