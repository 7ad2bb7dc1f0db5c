// SPDX-License-Identifier: BSD-3-Clause

package usiw_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/race"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/usiw/usiwtest"
	"github.com/goverbs/goverbs/verbs"
)

// The model test: pairs of QPs on two NICs perform random operations with all opcodes, on both
// sides at once. Every completion is compared with a model, and so is every byte of every region at
// the end. The operations are chosen so that their outcome is deterministic: no two requests change
// the same memory unless their changes commute, and a request that depends on the response to
// another is fenced.
//
// GOVERBS_MODEL_OPS is the number of operations of each pair (default: 20,000, or 2,000 under the
// race detector, which is ten times as slow); GOVERBS_SEED repeats a run.
const (
	modelPairs   = 8
	modelOps     = 20000 // per pair by default
	modelOpsRace = 2000  // under the race detector
	modelTimeout = 5 * time.Minute

	modelMessage = 200 << 10 // the longest message
	modelData    = 512 << 10 // sources and sinks of one side
	modelTarget  = 512 << 10 // the target of the peer's requests
	modelWords   = 4 << 10   // bytes for atomics at the start of the target
	modelInline  = 256       // most inline data
	modelRecvs   = 8         // posted receives
	modelSends   = 32        // depth of the send queue
	modelResults = 64        // results of atomics on shared words
	modelWindows = 2         // windows on one side's target
	modelShared  = 64        // bytes of shared words
	modelRound   = 64        // operations of a side between two binds of its windows

	// The shared words. One is incremented by 1, so that every value is observed once; any number
	// is added to the second; and numbers are added to the third in 16-bit fields.
	modelCounter = 0
	modelSum     = 8
	modelFields  = 16

	modelMask = 0x8000800080008000
)

// modelNumber reads a number from the environment.
func modelNumber(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(s, 0, 64)
	require.NoError(t, err, name)
	return n
}

func TestModel(t *testing.T) {
	ops := modelOps
	if race.Enabled {
		ops = modelOpsRace
	}
	ops = int(modelNumber(t, "GOVERBS_MODEL_OPS", uint64(ops)))
	seed := modelNumber(t, "GOVERBS_SEED", uint64(time.Now().UnixNano()))
	wire := usiwtest.NewWire()
	for _, c := range []struct {
		name   string
		share  int // share of the operations, in quarters
		cfg    usiw.Config
		listen string
	}{
		{"TCP", 4, usiw.Config{}, "127.0.0.1:0"},
		{"Markers", 1, usiw.Config{Markers: usiw.On, MTU: 1500}, "127.0.0.1:0"},
		{"Wire", 1, usiw.Config{Network: wire, MaxIRD: 3}, "model:0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := max(1, ops*c.share/4)
			t.Logf("%d pairs of QPs, GOVERBS_MODEL_OPS=%d: %d operations each, GOVERBS_SEED=%d", modelPairs, ops, n,
				seed)
			newModel(t, c.cfg, c.listen, seed).run(n)
		})
	}
}

// model is one run.
type model struct {
	t      *testing.T
	ctx    context.Context
	nics   [2]*rawNIC
	shared [2]*modelMem // words used by all pairs, on each NIC
	pairs  [modelPairs][2]*modelSide
}

// modelMem is a region and its expected contents.
type modelMem struct {
	*verbs.MR
	want []byte
	next int // for results: the number so far
}

// differs returns where the region differs from the model.
func (m *modelMem) differs(what string) error {
	if bytes.Equal(m.want, m.Bytes()) {
		return nil
	}
	for i, b := range m.Bytes() {
		if b != m.want[i] {
			return fmt.Errorf("%s: byte %d of %d is %#x, not %#x", what, i, m.Len(), b, m.want[i])
		}
	}
	return nil
}

func newModel(t *testing.T, cfg usiw.Config, listen string, seed uint64) *model {
	ctx, cancel := context.WithTimeout(t.Context(), modelTimeout)
	t.Cleanup(cancel)
	m := &model{t: t, ctx: ctx}
	for i := range m.nics {
		m.nics[i] = newRawNIC(t, cfg)
		m.shared[i] = m.mem(i, modelShared, 0, rawAccess, nil)
	}
	for i := range m.pairs {
		for s := range m.pairs[i] {
			m.pairs[i][s] = newModelSide(m, i, s, seed)
		}
		a, b := m.pairs[i][0], m.pairs[i][1]
		a.peer, b.peer = b, a
		m.connect(a, b, listen)
	}
	return m
}

// mem registers n bytes on a NIC, initialized with random data from rng, or with zeros.
func (m *model) mem(nic, n int, iova uint64, access verbs.AccessFlags, rng *rand.Rand) *modelMem {
	want := make([]byte, n)
	if rng != nil {
		modelFill(rng, want)
	}
	return &modelMem{MR: m.nics[nic].region(m.nics[nic].pd, want, iova, access), want: want}
}

// modelFill fills b with random bytes.
func modelFill(rng *rand.Rand, b []byte) {
	for len(b) >= 8 {
		binary.LittleEndian.PutUint64(b, rng.Uint64())
		b = b[8:]
	}
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
}

// connect connects the two sides of a pair. Both post their receives first.
func (m *model) connect(a, b *modelSide, listen string) {
	t := m.t
	ln, err := cm.Listen(m.ctx, listen, m.nics[1].config())
	require.NoError(t, err)
	defer ln.Close()
	a.id, err = cm.Resolve(m.ctx, ln.Addr().String(), m.nics[0].config())
	require.NoError(t, err)
	require.NoError(t, a.id.BindQP(a.qp))
	var g errgroup.Group
	g.Go(func() error {
		req, err := ln.Accept(m.ctx)
		if err != nil {
			return err
		}
		if err := req.BindQP(b.qp); err != nil {
			return err
		}
		if err := b.postReceives(modelRecvs); err != nil {
			return err
		}
		b.id, err = req.Accept(m.ctx, b.qp, cm.ConnParam{})
		return err
	})
	require.NoError(t, a.postReceives(modelRecvs))
	require.NoError(t, a.id.Connect(m.ctx, a.qp, cm.ConnParam{}))
	require.NoError(t, g.Wait())
	t.Cleanup(func() {
		require.NoError(t, a.id.Close())
		require.NoError(t, b.id.Close())
	})
}

// run makes every pair perform n operations, and compares the results.
func (m *model) run(n int) {
	g, ctx := errgroup.WithContext(m.ctx)
	for i := range m.pairs {
		for _, side := range m.pairs[i] {
			side.ctx = ctx
			g.Go(func() error { return side.drive((n + 1) / 2) })
			g.Go(side.receive)
		}
	}
	require.NoError(m.t, g.Wait())

	// The sums over all sides.
	var seen [2][]uint64
	for i := range m.pairs {
		for s, side := range m.pairs[i] {
			to := m.shared[1-s]
			modelAdd(to.want[modelCounter:], uint64(len(side.seen)), 0)
			modelAdd(to.want[modelSum:], side.added, 0)
			modelAdd(to.want[modelFields:], side.fields, modelMask)
			seen[1-s] = append(seen[1-s], side.seen...)
			for name, mem := range map[string]*modelMem{"sources and sinks": side.data, "inline data": side.inline,
				"results": side.results, "target": side.target, "receives": side.slots} {
				require.NoError(m.t, mem.differs(fmt.Sprintf("%v: %s", side, name)))
			}
		}
	}
	for nic, values := range seen {
		require.NoError(m.t, m.shared[nic].differs("shared words"))
		slices.Sort(values)
		for i, v := range values {
			require.EqualValues(m.t, i, v, "the values that a counter had before each FetchAdd")
		}
	}
	counts := make(map[string]int)
	for i := range m.pairs {
		for _, side := range m.pairs[i] {
			for name, n := range side.counts {
				counts[name] += n
			}
		}
	}
	m.t.Log(counts)
	if n >= modelOpsRace {
		for _, k := range modelKinds {
			require.Positive(m.t, counts[k.name], k.name)
		}
		require.Positive(m.t, counts["bind"])
		require.Positive(m.t, counts["local invalidate"])
	}
}

// modelAdd applies a FetchAdd to a word of the model.
func modelAdd(b []byte, add, mask uint64) (old uint64) {
	old = binary.NativeEndian.Uint64(b)
	binary.NativeEndian.PutUint64(b, modelFetchAdd(old, add, mask))
	return old
}

// modelSlot is the memory of one receive: ranges of the slots region, in the order in which they
// are filled.
type modelSlot []modelRange

// modelRange is a range of a region.
type modelRange struct{ off, n int }

func (r modelRange) overlaps(o modelRange) bool {
	return r.n > 0 && o.n > 0 && r.off < o.off+o.n && o.off < r.off+r.n
}

// modelArrival describes a message as its receiver must observe it.
type modelArrival struct {
	opcode  verbs.WCOpcode
	flags   verbs.WCFlags
	byteLen int
	imm     uint64
	inv     *modelWindow
	data    []byte // data that it places into the receive
}

// postReceives posts the next n receives, each with the parts of a slot in random order.
func (s *modelSide) postReceives(n int) error {
	for range n {
		rng := s.recvRNG
		base := int(s.recvID%modelRecvs) * modelMessage
		cuts := []int{0, modelMessage}
		for range rng.IntN(4) {
			cuts = append(cuts, rng.IntN(modelMessage))
		}
		slices.Sort(cuts)
		var slot modelSlot
		for i := range cuts[1:] {
			slot = append(slot, modelRange{base + cuts[i], cuts[i+1] - cuts[i]})
		}
		rng.Shuffle(len(slot), func(i, j int) { slot[i], slot[j] = slot[j], slot[i] })
		var sgl []verbs.SGE
		for _, r := range slot {
			sge, err := s.slots.SGE(r.off, r.n)
			if err != nil {
				return err
			}
			sgl = append(sgl, sge)
		}
		if _, err := s.postRecv([]verbs.RecvWR{{ID: s.recvID, SGL: sgl}}); err != nil {
			return err
		}
		s.posted[s.recvID%modelRecvs] = slot
		s.recvID++
		s.credits <- struct{}{}
	}
	return nil
}

// receive checks arriving messages until the peer has nothing more to send.
func (s *modelSide) receive() error {
	var wcs [1]verbs.WC
	for next := uint64(0); ; next++ {
		var a modelArrival
		var ok bool
		select {
		case a, ok = <-s.arriving:
		case <-s.ctx.Done():
			return s.ctx.Err()
		}
		if !ok {
			return nil
		}
		if _, err := s.rcq.Wait(s.ctx, wcs[:]); err != nil {
			return fmt.Errorf("%v: receive %d: %w", s, next, err)
		}
		want := verbs.WC{ID: next, Opcode: a.opcode, Flags: a.flags, ByteLen: uint32(a.byteLen), QPNum: s.qp.Num(),
			Imm64: a.imm, Imm: uint32(a.imm >> 32)}
		if a.inv != nil {
			want.InvalidatedRKey = a.inv.rkey
		}
		if wcs[0] != want {
			return fmt.Errorf("%v: received %+v, not %+v; the QP: %w", s, wcs[0], want, s.end())
		}
		for _, r := range s.posted[next%modelRecvs] {
			n := copy(s.slots.want[r.off:r.off+r.n], a.data)
			a.data = a.data[n:]
		}
		if a.inv != nil {
			s.idle <- a.inv
		}
		if err := s.postReceives(1); err != nil {
			return fmt.Errorf("%v: posting a receive: %w", s, err)
		}
	}
}

// end returns why the QP is in ERR, for error texts.
func (s *modelSide) end() error {
	if err := s.qp.Err(); err != nil {
		return err
	}
	return errors.New("alive")
}
