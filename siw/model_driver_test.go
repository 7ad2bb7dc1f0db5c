// SPDX-License-Identifier: BSD-3-Clause

package siw_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/siw/rdmap"
	"github.com/goverbs/goverbs/verbs"
)

// modelSide is one side of a pair. Its driver posts requests and says what they do to the model of its own data and of its
// peer's target; its receiver has the model of its slots.
type modelSide struct {
	model *model
	pair  int
	side  int
	peer  *modelSide
	ctx   context.Context

	qp       *verbs.QP
	scq, rcq *verbs.CQ
	id       *cm.ID

	data, inline, results, target, slots *modelMem

	// Between the receiver and the peer's driver.
	credits  chan struct{}                // receives that the peer may use
	arriving chan modelArrival            // what the peer sends
	idle     chan *modelWindow            // windows that are not bound, to the own driver
	bound    chan *modelWindow            // windows that the peer may use
	returned chan *modelWindow            // windows that the peer has done with
	recvRNG  *rand.Rand                   // of the receiver
	recvID   uint64                       //
	posted   [modelRecvs]modelSlot        //
	counts   map[string]int               // of the driver, as all that follows
	rng      *rand.Rand                   //
	list     []verbs.SendWR               // built, not posted
	pending  []modelPending               // signalled, not completed
	built    int                          // requests
	done     int                          // requests whose completion, or that of a later one, has been seen
	quiet    int                          // requests since the last signalled one
	hazards  []modelHazard                // Reads and atomics that may be without an answer
	wrote    int                          // length of the Write before, -1 = the message before was none
	windows  []*modelWindow               // of the peer, to be used
	seen     []uint64                     // values of the counter
	added    uint64                       // to the sum
	fields   uint64                       // to the fields
	words    uint64                       // results so far
	after    []func() error               // to be done when list has been posted
	kinds    []func(*modelSide) (bool, error)
}

// modelPending is a signalled request.
type modelPending struct {
	wc    verbs.WC
	index int // of the request
	then  func() error
}

// modelHazard is a Read or atomic without an answer: what it reads at the peer, and what it changes here.
type modelHazard struct {
	index  int
	remote modelRange
	local  modelRange
}

// modelWindow is a memory window on a side's target.
type modelWindow struct {
	mw   *verbs.MW
	rkey uint32
	part modelRange // of the target
	base uint64     // the address of part's first octet
}

func (s *modelSide) String() string {
	return fmt.Sprintf("pair %d, %s side", s.pair, []string{"active", "passive"}[s.side])
}

func newModelSide(m *model, pair, side int, seed uint64) *modelSide {
	t := m.t
	random := func(n uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, uint64(pair)<<16|uint64(side)<<8|n)) }
	s := &modelSide{model: m, pair: pair, side: side, wrote: -1, rng: random(0), recvRNG: random(1), counts: make(map[string]int),
		credits: make(chan struct{}, modelRecvs), arriving: make(chan modelArrival, modelRecvs), idle: make(chan *modelWindow, modelWindows),
		bound: make(chan *modelWindow, modelWindows), returned: make(chan *modelWindow, modelWindows)}
	nic := m.nics[side]
	end := nic.end(verbs.QPCap{MaxSendWR: modelSends, MaxRecvWR: modelRecvs, MaxSendSGE: 4, MaxRecvSGE: 8, MaxInlineData: modelInline})
	// end makes every request signalled.
	require.NoError(t, end.qp.Close())
	s.scq, s.rcq = end.scq, end.rcq
	var err error
	s.qp, err = nic.pd.CreateQP(verbs.QPConfig{SendCQ: s.scq, RecvCQ: s.rcq, Cap: end.qp.Cap()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.qp.Close()) })
	s.data = m.mem(side, modelData, 0x1_0000_0000, verbs.AccessLocalWrite, s.rng)
	s.inline = m.mem(side, modelInline, 0, 0, s.rng)
	s.results = m.mem(side, 8*modelResults, 0, verbs.AccessLocalWrite, nil)
	// Addresses with and without the alignment of the memory: it is the memory's that counts for atomics.
	s.target = m.mem(side, modelTarget, uint64(pair)*0x1001, rawAccess|verbs.AccessMWBind, s.rng)
	s.slots = m.mem(side, modelRecvs*modelMessage, 0x8000_0000_0000_0000, verbs.AccessLocalWrite, nil)
	for range modelWindows {
		mw, err := nic.pd.AllocMW(verbs.MWType2)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, mw.Close()) })
		s.idle <- &modelWindow{mw: mw}
	}
	return s
}

// modelKinds are the kinds of operations and how often each is drawn. One that cannot be done now, for want of a window
// for instance, reports false.
var modelKinds = []struct {
	name   string
	weight int
	do     func(*modelSide) (bool, error)
}{
	{"Send", 10, func(s *modelSide) (bool, error) { return true, s.send(verbs.SendWR{Opcode: verbs.WRSend}, false) }},
	{"inline Send", 5, func(s *modelSide) (bool, error) { return true, s.send(verbs.SendWR{Opcode: verbs.WRSend}, true) }},
	{"Send with Invalidate", 4, (*modelSide).sendInv},
	{"Write", 20, func(s *modelSide) (bool, error) { return true, s.write(verbs.SendWR{Opcode: verbs.WRRDMAWrite}, false) }},
	{"inline Write", 8, func(s *modelSide) (bool, error) {
		return true, s.write(verbs.SendWR{Opcode: verbs.WRRDMAWrite}, true)
	}},
	{"Write with immediate", 8, func(s *modelSide) (bool, error) { return true, s.writeImm(false) }},
	{"inline Write with immediate", 3, func(s *modelSide) (bool, error) { return true, s.writeImm(true) }},
	{"Immediate Data", 6, (*modelSide).imm},
	{"Read", 16, (*modelSide).read},
	{"FetchAdd", 4, func(s *modelSide) (bool, error) {
		return true, s.atomic(verbs.SendWR{Opcode: verbs.WRAtomicFetchAndAdd, Add: s.rng.Uint64()})
	}},
	{"masked FetchAdd", 4, func(s *modelSide) (bool, error) {
		return true, s.atomic(verbs.SendWR{Opcode: verbs.WRMaskedAtomicFetchAndAdd, Add: s.rng.Uint64(), AddMask: s.rng.Uint64()})
	}},
	{"CmpSwap", 4, func(s *modelSide) (bool, error) {
		return true, s.atomic(verbs.SendWR{Opcode: verbs.WRAtomicCmpAndSwp, Compare: s.rng.Uint64(), Swap: s.rng.Uint64()})
	}},
	{"masked CmpSwap", 4, func(s *modelSide) (bool, error) {
		// Few bits are compared, so that some match.
		return true, s.atomic(verbs.SendWR{Opcode: verbs.WRMaskedAtomicCmpAndSwp, Compare: s.rng.Uint64(),
			CompareMask: 1 << s.rng.IntN(64), Swap: s.rng.Uint64(), SwapMask: s.rng.Uint64()})
	}},
	{"counter", 3, (*modelSide).count},
	{"sum", 2, func(s *modelSide) (bool, error) {
		v := s.rng.Uint64()
		s.added += v
		return true, s.sharedAdd(verbs.SendWR{Opcode: verbs.WRAtomicFetchAndAdd, Add: v}, modelSum, nil)
	}},
	{"fields", 2, func(s *modelSide) (bool, error) {
		v := s.rng.Uint64()
		s.fields = rdmap.FetchAdd(s.fields, v, modelMask)
		return true, s.sharedAdd(verbs.SendWR{Opcode: verbs.WRMaskedAtomicFetchAndAdd, Add: v, AddMask: modelMask}, modelFields, nil)
	}},
	{"bind", 6, (*modelSide).bind},
	{"local invalidate", 6, (*modelSide).localInv},
	{"return a window", 3, (*modelSide).giveBack},
}

// drive does n operations and waits until the peer has seen all of them.
func (s *modelSide) drive(n int) error {
	total := 0
	for _, k := range modelKinds {
		total += k.weight
	}
	for n > 0 {
		x := s.rng.IntN(total)
		for _, k := range modelKinds {
			if x -= k.weight; x >= 0 {
				continue
			}
			did, err := k.do(s)
			if err != nil {
				return fmt.Errorf("%v: %s, request %d: %w", s, k.name, s.built, err)
			}
			if did {
				s.counts[k.name]++
				n--
			}
			break
		}
		if len(s.list) == cap(s.list) || s.rng.IntN(4) == 0 {
			if err := s.post(); err != nil {
				return err
			}
		}
	}
	// The answer to a Read comes when everything before has been placed.
	if err := s.add(verbs.SendWR{Opcode: verbs.WRRDMARead, Flags: verbs.SendFence | verbs.SendSignaled}, verbs.WCRDMARead, nil); err != nil {
		return err
	}
	if err := s.post(); err != nil {
		return err
	}
	for len(s.pending) > 0 {
		if err := s.complete(); err != nil {
			return err
		}
	}
	close(s.peer.arriving)
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

// part draws n octets of a region.
func (s *modelSide) part(mem *modelMem, n int) modelRange {
	return modelRange{s.rng.IntN(mem.Len() - n + 1), n}
}

// gather draws a source of n octets in up to 4 pieces; it returns what it holds. It adds the fence that is needed if the
// data are to come with an answer.
func (s *modelSide) gather(wr *verbs.SendWR, n int, inline bool) (data []byte, err error) {
	mem := s.data
	if inline {
		mem = s.inline
		n = min(n, s.rng.IntN(modelInline+1))
		wr.Flags |= verbs.SendInline
		s.after = append(s.after, func() error {
			// The memory is ours again as soon as the request has been posted.
			modelFill(s.rng, s.inline.want)
			copy(s.inline.Bytes(), s.inline.want)
			return nil
		})
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

// fenceLocal adds a fence to a request that uses a part of data into which an answer may still come.
func (s *modelSide) fenceLocal(wr *verbs.SendWR, r modelRange) {
	if slices.ContainsFunc(s.hazards, func(h modelHazard) bool { return h.local.overlaps(r) }) {
		wr.Flags |= verbs.SendFence
	}
}

// fenceRemote adds a fence to a request that changes a part of the peer's target which may still be read.
func (s *modelSide) fenceRemote(wr *verbs.SendWR, r modelRange) {
	if slices.ContainsFunc(s.hazards, func(h modelHazard) bool { return h.remote.overlaps(r) }) {
		wr.Flags |= verbs.SendFence
	}
}

// aim chooses n octets of the peer's target, through the key of the region or of a window; with words 8 aligned octets
// among the words.
func (s *modelSide) aim(wr *verbs.SendWR, n int, words bool) modelRange {
	s.takeWindows()
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

// takeWindows takes what the peer has bound meanwhile.
func (s *modelSide) takeWindows() {
	for {
		select {
		case w := <-s.peer.bound:
			s.windows = append(s.windows, w)
		default:
			return
		}
	}
}

// add adds a request to the list. then is called when it has completed, for which it becomes signalled.
func (s *modelSide) add(wr verbs.SendWR, opcode verbs.WCOpcode, then func() error) error {
	if s.list == nil {
		s.list = make([]verbs.SendWR, 0, 8)
	}
	if len(s.list) == cap(s.list) {
		if err := s.post(); err != nil {
			return err
		}
	}
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
		case verbs.WRRDMARead, verbs.WRAtomicFetchAndAdd, verbs.WRMaskedAtomicFetchAndAdd, verbs.WRAtomicCmpAndSwp, verbs.WRMaskedAtomicCmpAndSwp:
			for _, sge := range wr.SGL {
				want.ByteLen += sge.Length
			}
		}
		s.pending = append(s.pending, modelPending{want, s.built, then})
	}
	s.list = append(s.list, wr)
	s.built++
	return nil
}

// post posts the list, when the queue has room for it.
func (s *modelSide) post() error {
	for s.built-s.done > modelSends {
		if err := s.complete(); err != nil {
			return err
		}
	}
	if len(s.list) > 0 {
		n, err := s.qp.PostSend(s.list)
		if err != nil {
			return fmt.Errorf("%v: posted %d of %d: %w; the QP: %w", s, n, len(s.list), err, cmp.Or(s.qp.Err(), error(modelAlive{})))
		}
		s.list = s.list[:0]
	}
	for _, f := range s.after {
		if err := f(); err != nil {
			return err
		}
	}
	s.after = s.after[:0]
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
		return fmt.Errorf("%v: completion %+v, not %+v; the QP: %w", s, wcs[0], p.wc, cmp.Or(s.qp.Err(), error(modelAlive{})))
	}
	s.done = p.index + 1
	s.hazards = slices.DeleteFunc(s.hazards, func(h modelHazard) bool { return h.index <= p.index })
	if p.then != nil {
		return p.then()
	}
	return nil
}

// announce waits until the peer has a receive for the message that is to be added, and tells it what to expect.
func (s *modelSide) announce(a modelArrival) error {
	select {
	case <-s.peer.credits:
	default:
		// What has been built must not wait for what comes only after it.
		if err := s.post(); err != nil {
			return err
		}
		select {
		case <-s.peer.credits:
		case <-s.ctx.Done():
			return s.ctx.Err()
		}
	}
	s.peer.arriving <- a
	return nil
}

func (s *modelSide) send(wr verbs.SendWR, inline bool) error {
	return s.sendData(wr, inline, modelArrival{opcode: verbs.WCRecv})
}

func (s *modelSide) sendData(wr verbs.SendWR, inline bool, a modelArrival) (err error) {
	if a.data, err = s.gather(&wr, s.size(), inline); err != nil {
		return err
	}
	wr.Flags |= verbs.SendFlags(s.rng.IntN(2)) * verbs.SendSolicited
	a.byteLen = len(a.data)
	s.wrote = -1
	// announce may post, after which inline memory changes.
	list, after := s.list, s.after
	if inline {
		s.after = s.after[:len(s.after)-1]
	}
	if err := s.announce(a); err != nil {
		return err
	}
	if inline {
		if len(list) != len(s.list) && len(after) > 1 {
			// It has changed: put back what the message is to hold.
			s.restore(&wr, a.data)
		}
		s.after = append(s.after, after[len(after)-1])
	}
	return s.add(wr, verbs.WCSend, nil)
}
