// SPDX-License-Identifier: BSD-3-Clause

package usiw_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/verbs"
)

// modelSide is one side of a pair. Its driver posts requests and applies their effects to the
// models of its own data and of the peer's target. Its receiver models its own slots.
type modelSide struct {
	model *model
	pair  int
	side  int
	peer  *modelSide
	ctx   context.Context

	qp       *verbs.QP
	scq, rcq *verbs.CQ
	id       *cm.ID
	postRecv func([]verbs.RecvWR) (int, error)

	data, inline, results, target, slots *modelMem

	// Shared by the two drivers and receivers.
	credits  chan struct{}     // one for each receive that the peer may use
	arriving chan modelArrival // what the peer sends
	idle     chan *modelWindow // unbound windows on this side's target
	bound    chan *modelWindow // windows that the peer may use
	returned chan *modelWindow // windows that the peer no longer uses

	// Of the receiver.
	recvRNG *rand.Rand
	recvID  uint64
	posted  [modelRecvs]modelSlot

	// Of the driver.
	rng     *rand.Rand // chooses operations
	fillRNG *rand.Rand // generates data, whose amount depends on which side is faster
	counts  map[string]int
	list    []verbs.SendWR // built but not posted
	inlined bool           // list contains inline requests
	pending []modelPending // signalled but not complete
	built   int            // requests
	done    int            // requests known to be complete, from their own or a later completion
	quiet   int            // requests since the last signalled one
	hazards []modelHazard  // Reads and atomics that may be unanswered
	wrote   int            // length of the preceding Write; -1 if the preceding message was not a Write
	windows []*modelWindow // the peer's windows that may be used
	seen    []uint64       // values read from the counter
	added   uint64         // total added to the sum
	fields  uint64         // total added to the fields
}

// modelPending is a signalled request.
type modelPending struct {
	wc    verbs.WC
	index int // index of the request
	then  func()
}

// modelHazard is an unanswered Read or atomic: the range that it reads at the peer, and the range
// that it changes here.
type modelHazard struct {
	index  int
	remote modelRange
	local  modelRange
	atomic bool
}

// modelWindow is a memory window on a side's target.
type modelWindow struct {
	id   int
	mw   *verbs.MW
	rkey uint32
	part modelRange // range of the target
	base uint64     // address of part's first byte
}

func (s *modelSide) String() string {
	return fmt.Sprintf("pair %d, %s side", s.pair, []string{"active", "passive"}[s.side])
}

func newModelSide(m *model, pair, side int, seed uint64) *modelSide {
	t := m.t
	random := func(n uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, uint64(pair)<<16|uint64(side)<<8|n)) }
	s := &modelSide{model: m, pair: pair, side: side, wrote: -1, rng: random(0), recvRNG: random(1), fillRNG: random(2),
		counts: make(map[string]int), list: make([]verbs.SendWR, 0, 8),
		credits: make(chan struct{}, modelRecvs), arriving: make(chan modelArrival, modelRecvs),
		idle:  make(chan *modelWindow, modelWindows),
		bound: make(chan *modelWindow, modelWindows), returned: make(chan *modelWindow, modelWindows)}
	nic := m.nics[side]
	end := nic.end(verbs.QPCap{MaxSendWR: modelSends, MaxRecvWR: modelRecvs, MaxSendSGE: 4, MaxRecvSGE: 8,
		MaxInlineData: modelInline})
	// end makes every request signalled.
	require.NoError(t, end.qp.Close())
	s.scq, s.rcq = end.scq, end.rcq
	var err error
	cfg := verbs.QPConfig{SendCQ: s.scq, RecvCQ: s.rcq, Cap: end.qp.Cap()}
	if pair%2 == 1 {
		// Every second pair takes its receives from shared queues. Each side has its own, so that
		// the order of its receives is known.
		cfg.SRQ, err = nic.pd.CreateSRQ(verbs.SRQAttr{MaxWR: modelRecvs, MaxSGE: 8})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, cfg.SRQ.Close()) })
	}
	s.qp, err = nic.pd.CreateQP(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.qp.Close()) })
	s.postRecv = s.qp.PostRecv
	if cfg.SRQ != nil {
		s.postRecv = cfg.SRQ.PostRecv
	}
	s.data = m.mem(side, modelData, 0x1_0000_0000, verbs.AccessLocalWrite, s.rng)
	s.inline = m.mem(side, modelInline, 0, 0, s.rng)
	s.results = m.mem(side, 8*modelResults, 0, verbs.AccessLocalWrite, nil)
	// Addresses with and without the alignment of the memory: for atomics, it is the memory's
	// alignment that counts.
	s.target = m.mem(side, modelTarget, uint64(pair)*0x1001, rawAccess|verbs.AccessMWBind, s.rng)
	s.slots = m.mem(side, modelRecvs*modelMessage, 0x8000_0000_0000_0000, verbs.AccessLocalWrite, nil)
	for id := range modelWindows {
		mw, err := nic.pd.AllocMW(verbs.MWType2)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, mw.Close()) })
		s.idle <- &modelWindow{id: id, mw: mw}
	}
	return s
}

// drive performs n operations and waits until the peer has observed all of them.
func (s *modelSide) drive(n int) error {
	total := 0
	for _, k := range modelKinds {
		total += k.weight
	}
	for op, round := 0, 0; op < n; {
		if op == round {
			round += modelRound
			if err := s.exchange(); err != nil {
				return err
			}
		}
		if more := s.rng.IntN(4) > 0; !more || len(s.list) == cap(s.list) {
			if err := s.post(); err != nil {
				return err
			}
		}
		x := s.rng.IntN(total)
		i := 0
		for x -= modelKinds[0].weight; x >= 0; x -= modelKinds[i].weight {
			i++
		}
		k := &modelKinds[i]
		did, err := k.do(s)
		if err != nil {
			return fmt.Errorf("%v: %s, request %d: %w", s, k.name, s.built, err)
		}
		if did {
			s.counts[k.name]++
			op++
		}
	}
	if err := s.post(); err != nil {
		return err
	}
	// The response to a Read arrives after everything before it has been placed.
	s.add(verbs.SendWR{Opcode: verbs.WRRDMARead, Flags: verbs.SendFence | verbs.SendSignaled}, verbs.WCRDMARead, nil)
	if err := s.finish(); err != nil {
		return err
	}
	close(s.peer.arriving)
	return nil
}

// finish posts the list and waits until every signalled request has completed.
func (s *modelSide) finish() error {
	if err := s.post(); err != nil {
		return err
	}
	for len(s.pending) > 0 {
		if err := s.complete(); err != nil {
			return err
		}
	}
	return nil
}

// size draws the length of a message: many short ones, some long ones.
func (s *modelSide) size() int {
	most := []int{0, 16, 64, 1 << 10, 4 << 10, 32 << 10, modelMessage}[s.rng.IntN(7)]
	if most == modelMessage && s.rng.IntN(4) > 0 {
		most = 8 << 10
	}
	return s.rng.IntN(most + 1)
}

// part draws a range of n bytes in a region.
func (s *modelSide) part(mem *modelMem, n int) modelRange {
	return modelRange{s.rng.IntN(mem.Len() - n + 1), n}
}

// gather draws a source of n bytes in up to 4 pieces and returns its data. It adds a fence if a
// response that is still outstanding will overwrite these data.
func (s *modelSide) gather(wr *verbs.SendWR, n int, inline bool) (data []byte, err error) {
	mem := s.data
	if inline {
		mem = s.inline
		n = min(n, s.rng.IntN(modelInline+1))
		wr.Flags |= verbs.SendInline
		s.inlined = true
	}
	for pieces := 1 + s.rng.IntN(4); pieces > 0; pieces-- {
		k := n
		if pieces > 1 {
			k = s.rng.IntN(n + 1)
		}
		n -= k
		r := s.part(mem, k)
		sge, err := mem.SGE(r.off, r.n)
		if err != nil {
			return nil, err
		}
		if !inline {
			s.fenceLocal(wr, r)
		}
		wr.SGL = append(wr.SGL, sge)
		data = append(data, mem.want[r.off:r.off+r.n]...)
	}
	return data, nil
}

// fenceLocal adds a fence to a request that uses a range of data in which a response may still be
// placed.
func (s *modelSide) fenceLocal(wr *verbs.SendWR, r modelRange) {
	if slices.ContainsFunc(s.hazards, func(h modelHazard) bool { return h.local.overlaps(r) }) {
		wr.Flags |= verbs.SendFence
	}
}

// fenceRemote adds a fence to a request that changes a range of the peer's target that may still be
// read. Atomics are ordered among themselves without one.
func (s *modelSide) fenceRemote(wr *verbs.SendWR, r modelRange, atomic bool) {
	if slices.ContainsFunc(s.hazards,
		func(h modelHazard) bool { return h.remote.overlaps(r) && !(atomic && h.atomic) }) {
		wr.Flags |= verbs.SendFence
	}
}

// aim chooses n bytes of the peer's target, through the key of the region or of a window; if words
// is set, 8 aligned bytes among the words.
func (s *modelSide) aim(wr *verbs.SendWR, n int, words bool) modelRange {
	if len(s.windows) > 0 && s.rng.IntN(2) == 0 {
		w := s.windows[s.rng.IntN(len(s.windows))]
		if n <= w.part.n && !words {
			r := modelRange{w.part.off + s.rng.IntN(w.part.n-n+1), n}
			wr.RKey, wr.RemoteAddr = w.rkey, w.base+uint64(r.off-w.part.off)
			return r
		}
		if r := (modelRange{(w.part.off + 7) &^ 7, 8}); words && r.off+8 <= min(w.part.off+w.part.n, modelWords) {
			wr.RKey, wr.RemoteAddr = w.rkey, w.base+uint64(r.off-w.part.off)
			return r
		}
	}
	r := s.part(s.peer.target, n)
	if words {
		r = modelRange{8 * s.rng.IntN(modelWords/8), 8}
	}
	wr.RKey, wr.RemoteAddr = s.peer.target.RKey(), s.peer.target.Addr()+uint64(r.off)
	return r
}

// add appends a request to the list, which has room. If then is set, the request becomes signalled,
// and then is called when it completes.
func (s *modelSide) add(wr verbs.SendWR, opcode verbs.WCOpcode, then func()) {
	if s.rng.IntN(8) == 0 {
		wr.Flags |= verbs.SendFence
	}
	if wr.Flags&verbs.SendFence != 0 {
		s.hazards = s.hazards[:0]
	}
	s.quiet++
	if then != nil || s.quiet > modelSends/4 || s.rng.IntN(3) == 0 {
		wr.Flags |= verbs.SendSignaled
	}
	wr.ID = s.rng.Uint64()
	if wr.Flags&verbs.SendSignaled != 0 {
		s.quiet = 0
		want := verbs.WC{ID: wr.ID, Opcode: opcode, QPNum: s.qp.Num()}
		switch wr.Opcode {
		case verbs.WRRDMARead, verbs.WRAtomicFetchAndAdd, verbs.WRMaskedAtomicFetchAndAdd, verbs.WRAtomicCmpAndSwp,
			verbs.WRMaskedAtomicCmpAndSwp:
			for _, sge := range wr.SGL {
				want.ByteLen += sge.Length
			}
		}
		s.pending = append(s.pending, modelPending{want, s.built, then})
	}
	s.list = append(s.list, wr)
	s.built++
}

// post posts the list once the queue has room for it.
func (s *modelSide) post() error {
	for s.built-s.done > modelSends {
		if err := s.complete(); err != nil {
			return err
		}
	}
	if len(s.list) > 0 {
		n, err := s.qp.PostSend(s.list)
		if err != nil {
			return fmt.Errorf("%v: posted %d of %d: %w; the QP: %w", s, n, len(s.list), err, s.end())
		}
		s.list = s.list[:0]
	}
	if s.inlined {
		// The memory of inline requests may be reused as soon as they are posted.
		modelFill(s.fillRNG, s.inline.want)
		copy(s.inline.Bytes(), s.inline.want)
		s.inlined = false
	}
	return nil
}

// complete waits for the next completion and checks it.
func (s *modelSide) complete() error {
	var wcs [1]verbs.WC
	if _, err := s.scq.Wait(s.ctx, wcs[:]); err != nil {
		return fmt.Errorf("%v: %w", s, err)
	}
	if len(s.pending) == 0 {
		return fmt.Errorf("%v: unexpected completion %+v", s, wcs[0])
	}
	p := s.pending[0]
	s.pending = s.pending[1:]
	if wcs[0] != p.wc {
		return fmt.Errorf("%v: completion %+v, not %+v; the QP: %w", s, wcs[0], p.wc, s.end())
	}
	s.done = p.index + 1
	s.hazards = slices.DeleteFunc(s.hazards, func(h modelHazard) bool { return h.index <= p.index })
	if p.then != nil {
		p.then()
	}
	return nil
}

// credit waits until the peer has a receive for the message that is to be built.
func (s *modelSide) credit() error {
	select {
	case <-s.peer.credits:
		return nil
	default:
	}
	// Built requests must not wait for a credit that is only granted after they have been sent.
	if err := s.post(); err != nil {
		return err
	}
	select {
	case <-s.peer.credits:
		return nil
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}
