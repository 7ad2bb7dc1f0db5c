// SPDX-License-Identifier: BSD-3-Clause

package ibcompat_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/internal/regmem"
	"github.com/goverbs/goverbs/verbs"
)

// The model is memory to which the requests of a queue are applied one after the other. It is
// compared with the devices' results: every byte of the target, of each receive and of each
// response, and every completion.
const (
	modelOps    = 250
	modelMemory = 40_000 // bytes of source and target
	modelMost   = 9_000  // the longest transfer: more than twice what is copied
)

// TestModel runs random requests in both directions of two connections concurrently.
// GOVERBS_MODEL_SEED repeats a run.
func TestModel(t *testing.T) {
	seed := rand.Uint64()
	if s := os.Getenv("GOVERBS_MODEL_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("GOVERBS_MODEL_SEED=%d", seed)
	overIWARP(t, func(t *testing.T, _ bool, active, passive *verbs.Context) {
		ln, err := cm.Listen(soon(t), "127.0.0.1:0", cm.Config{Context: passive})
		require.NoError(t, err)
		defer func() { require.NoError(t, ln.Close()) }()
		var run sync.WaitGroup
		for i := range uint64(2) {
			a, b := newModelEnd(t, active), newModelEnd(t, passive)
			join(t, ln, a.end, b.end)
			for k, d := range []*direction{newDirection(a, b, seed+2*i), newDirection(b, a, seed+2*i+1)} {
				run.Go(func() { d.send() })
				run.Go(func() { d.receive(rand.New(rand.NewPCG(seed, 100+2*i+uint64(k)))) })
			}
		}
		run.Wait()
	})
}

type modelEnd struct {
	*end
	sends, recvs                 *verbs.CQ
	source, target, sinks, boxes *verbs.MR
}

func newModelEnd(t *testing.T, ctx *verbs.Context) *modelEnd {
	m := &modelEnd{end: &end{TB: t, ctx: ctx}}
	own := func(err error, c interface{ Close() error }) {
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.Close()) })
	}
	var err error
	m.pd, err = ctx.AllocPD()
	own(err, m.pd)
	for cq := range map[**verbs.CQ]bool{&m.sends: true, &m.recvs: true} {
		*cq, err = ctx.CreateCQ(verbs.CQConfig{})
		own(err, *cq)
	}
	for _, r := range []struct {
		mr     **verbs.MR
		n      int
		access verbs.AccessFlags
	}{{&m.source, modelMemory, 0}, {&m.target, modelMemory, allRights},
		{&m.sinks, modelOps * modelMost, verbs.AccessLocalWrite},
		{&m.boxes, modelOps * modelMost, verbs.AccessLocalWrite}} {
		*r.mr, err = m.pd.AllocMR(r.n, r.access)
		own(err, *r.mr)
	}
	m.qp, err = m.pd.CreateQP(
		verbs.QPConfig{SendCQ: m.sends, RecvCQ: m.recvs,
			Cap: verbs.QPCap{MaxSendWR: 20, MaxRecvWR: 30, MaxSendSGE: 3, MaxRecvSGE: 3, MaxInlineData: 100}})
	own(err, m.qp)
	return m
}

// direction is the requests of one end and their effects at the other.
type direction struct {
	from, to *modelEnd
	list     []verbs.SendWR
	visible  []verbs.WC        // of the sender, in order
	messages []verbs.WC        // of the receiver, in order, with the message number as ID
	boxes    map[uint64][]byte // expected contents of their receives
	target   []byte
	sinks    []byte
}

func newDirection(from, to *modelEnd, seed uint64) *direction {
	d := &direction{from: from, to: to, target: make([]byte, modelMemory), sinks: make([]byte, modelOps*modelMost),
		boxes: map[uint64][]byte{}}
	rng := rand.New(rand.NewPCG(seed, 1))
	source := from.source.Bytes()
	for i := range source {
		source[i] = byte(rng.Uint32())
	}
	for i := range modelOps {
		d.add(rng, i)
	}
	return d
}

// add makes request i and applies it to the model.
func (d *direction) add(rng *rand.Rand, i int) {
	n := rng.IntN([]int{10, 300, modelMost}[rng.IntN(3)])
	at, to, sink := rng.IntN(modelMemory-n), rng.IntN(modelMemory-n), i*modelMost
	data := append([]byte(nil), d.from.source.Bytes()[at:at+n]...)
	wr := verbs.SendWR{ID: uint64(i), RemoteAddr: d.to.target.Addr() + uint64(to), RKey: d.to.target.RKey(),
		Imm: rng.Uint32()}
	wc := verbs.WC{ID: uint64(i), QPNum: d.from.qp.Num()}
	message := verbs.WC{Opcode: verbs.WCRecv, ByteLen: uint32(n), QPNum: d.to.qp.Num(), ID: uint64(len(d.messages))}
	withImm := func() {
		message.Flags, message.Imm, message.Imm64 = verbs.WCWithImm, wr.Imm, uint64(wr.Imm)<<32
	}
	switch kind := rng.IntN(8); kind {
	case 0, 1:
		wr.Opcode, wr.SGL, wc.Opcode = verbs.WRSend, d.split(rng, d.from.source, at, n), verbs.WCSend
		if kind == 1 {
			wr.Opcode = verbs.WRSendWithImm
			withImm()
		}
		d.boxes[message.ID] = data
		d.messages = append(d.messages, message)
	case 2, 3:
		wr.Opcode, wr.SGL, wc.Opcode = verbs.WRRDMAWrite, d.split(rng, d.from.source, at, n), verbs.WCRDMAWrite
		copy(d.target[to:], data)
		if kind == 3 {
			wr.Opcode, message.Opcode = verbs.WRRDMAWriteWithImm, verbs.WCRecvRDMAWithImm
			withImm()
			d.messages = append(d.messages, message)
		}
	case 4:
		wr.Opcode, wr.SGL, wc.Opcode, wc.ByteLen = verbs.WRRDMARead, d.split(rng, d.from.sinks, sink, n),
			verbs.WCRDMARead, uint32(n)
		copy(d.sinks[sink:], d.target[to:to+n])
	default:
		word := to &^ 7
		wr = ext.MaskedFetchAddWR(verbs.Remote{Length: 8}, rng.Uint64(), rng.Uint64())
		wc.Opcode = verbs.WCMaskedFetchAdd
		v := binary.NativeEndian.Uint64(d.target[word:])
		next := ext.MaskedFetchAdd(v, wr.Add, wr.AddMask)
		if kind == 5 {
			mask := rng.Uint64() & 3
			wr = ext.MaskedCmpSwapWR(verbs.Remote{Length: 8}, rng.Uint64(), mask, rng.Uint64(), rng.Uint64())
			wc.Opcode, next = verbs.WCMaskedCompSwap,
				ext.MaskedCmpSwap(v, wr.Compare, wr.CompareMask, wr.Swap, wr.SwapMask)
		}
		wr.ID, wr.RemoteAddr, wr.RKey, wc.ByteLen = uint64(i), d.to.target.Addr()+uint64(word), d.to.target.RKey(), 8
		wr.SGL = d.split(nil, d.from.sinks, sink, 8)
		binary.NativeEndian.PutUint64(d.sinks[sink:], v)
		binary.NativeEndian.PutUint64(d.target[word:], next)
	}
	if i > 0 && d.list[i-1].Opcode == verbs.WRRDMARead {
		wr.Flags |= verbs.SendFence // otherwise a Write could overtake the Read's answer
	}
	if wc.Opcode == verbs.WCSend || wc.Opcode == verbs.WCRDMAWrite {
		if n <= 100 && rng.IntN(2) == 0 {
			wr.Flags |= verbs.SendInline
		}
		if rng.IntN(4) == 0 && i < modelOps-1 { // the last one shows that all have arrived
			wr.Flags |= verbs.SendRelaxed
		}
		if rng.IntN(4) == 0 {
			wr.Flags |= verbs.SendSolicited
		}
	}
	wr.Flags &^= verbs.SendSignaled
	if rng.IntN(2) == 0 || i == modelOps-1 {
		wr.Flags |= verbs.SendSignaled
		d.visible = append(d.visible, wc)
	}
	d.list = append(d.list, wr)
}

// split divides a range of a region into up to three elements, or returns it as one if rng is nil.
func (d *direction) split(rng *rand.Rand, mr *verbs.MR, at, n int) (sgl []verbs.SGE) {
	for i := range 3 {
		k := n
		if rng != nil && i < 2 {
			k = rng.IntN(n + 1)
		}
		sge, err := mr.SGE(at, k)
		require.NoError(d.from, err)
		sgl = append(sgl, sge)
		if at, n = at+k, n-k; rng == nil {
			break
		}
	}
	return sgl
}

// send posts all requests, polls the completions, and compares them and the final memory.
func (d *direction) send() {
	t, wcs := d.from, make([]verbs.WC, 8)
	var got []verbs.WC
	for list := d.list; len(list) > 0 || len(got) < len(d.visible); {
		n, err := d.from.qp.PostSend(list)
		if list = list[n:]; err != nil && !errors.Is(err, verbs.ErrQueueFull) {
			t.Errorf("post: %v", err)
			return
		}
		if len(got) == len(d.visible) {
			continue
		}
		if n, err = d.from.sends.Poll(wcs); n == 0 && err == nil && len(list) == 0 {
			n, err = d.from.sends.Wait(soon(t), wcs)
		}
		if err != nil {
			t.Errorf("wait: %v", err)
			return
		}
		got = append(got, wcs[:n]...)
	}
	require.Equal(t, d.visible, got)
	b := make([]byte, modelOps*modelMost)
	regmem.Fetch(b, d.from.sinks.Bytes())
	require.True(t, bytes.Equal(d.sinks, b), "answers")
	regmem.Fetch(b[:modelMemory], d.to.target.Bytes())
	require.True(t, bytes.Equal(d.target, b[:modelMemory]), "the target")
}

// receive posts receives, a few at once, and compares what arrives.
func (d *direction) receive(rng *rand.Rand) {
	t, wcs := d.to, make([]verbs.WC, 8)
	posted := 0
	for got := 0; got < len(d.messages); {
		for most := 1 + rng.IntN(30); posted-got < most && posted < len(d.messages); posted++ {
			_, err := d.to.qp.PostRecv(
				[]verbs.RecvWR{{ID: uint64(posted), SGL: d.split(rng, d.to.boxes, posted*modelMost, modelMost)}})
			require.NoError(t, err)
		}
		n, err := d.to.recvs.Wait(soon(t), wcs)
		if err != nil {
			t.Errorf("wait for message %d: %v", got, err)
			return
		}
		for _, wc := range wcs[:n] {
			require.Equal(t, d.messages[got], wc)
			b := make([]byte, len(d.boxes[wc.ID]))
			regmem.Fetch(b, d.to.boxes.Bytes()[wc.ID*modelMost:])
			require.True(t, bytes.Equal(d.boxes[wc.ID], b), "message %d", got)
			got++
		}
	}
}
