// SPDX-License-Identifier: BSD-3-Clause

package verbstest

import (
	"sync/atomic"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

// forAtomicWrite configures a pair whose QPs support Atomic Writes. A device without them refuses
// to create the QP.
var forAtomicWrite = pairConfig{ops: verbs.MakeOpSet(verbs.OpAtomicWrite)}

// noAtomicWrite reports whether the device lacks Atomic Writes, and requires that it then refuses
// them.
func (w *world) noAtomicWrite() bool {
	w.Helper()
	p := w.pair(pairConfig{})
	if p.lacks(verbs.OpAtomicWrite, verbs.AtomicWrite(p.b.mem.remote(0, 8), 1)) {
		_, err := w.a.pd.CreateQP(verbs.QPConfig{SendCQ: p.a.scq, RecvCQ: p.a.rcq, SendOps: forAtomicWrite.ops})
		requireErr(w.T, err, verbs.ErrNotSupported)
		require.ErrorContains(w, err, "atomic-write")
		return true
	}
	p.a.refused(verbs.ErrNotSupported, verbs.AtomicWrite(p.b.mem.remote(0, 8), 1)) // the QP was not created for it
	return false
}

func (m *mem) remote(off, n int) verbs.Remote {
	return verbs.Remote{Addr: m.at(off), Length: uint64(n), RKey: m.RKey()}
}

// atomicWrite: the word gets the value and nothing around it changes, both for a single request and
// in a list with others, which stays in order.
func atomicWrite(w *world) outcome {
	if w.noAtomicWrite() {
		return noted
	}
	p := w.pair(forAtomicWrite)
	const off, value = 1024, 0x0102030405060708
	rest, same := p.b.mem.keepsBut(off, 8), p.a.mem.keeps()
	wr := verbs.AtomicWrite(p.b.mem.remote(off, 8), value)
	wr.ID = 5
	p.a.ok(p.a.run(wr), verbs.WCAtomicWrite)
	require.EqualValues(w, value, p.b.mem.get(off))
	rest()
	same()

	// Only the last one is signalled, and each follows the one before it.
	p.b.recv(7, p.b.mem.sgl(2048, 8)...)
	quiet := verbs.AtomicWrite(p.b.mem.remote(off, 8), 1)
	quiet.Flags = 0
	last := wr
	last.Flags |= verbs.SendFence
	p.a.post(quiet, write(p.a.mem.sgl(0, 8), p.b.mem, off+8), quiet, last, verbs.Send(p.a.mem.sgl(0, 8)...))
	require.EqualValues(w, 5, p.a.ok(p.a.sent(), verbs.WCAtomicWrite).ID)
	p.a.ok(p.a.sent(), verbs.WCSend)
	p.b.ok(p.b.received(), verbs.WCRecv)
	require.EqualValues(w, value, p.b.mem.get(off))
	p.b.mem.holds(off+8, p.a.mem.Bytes()[:8])

	for _, bad := range []verbs.SendWR{{SGL: p.a.mem.sgl(0, 8)}, {Flags: verbs.SendInline}} {
		bad.Opcode = verbs.WRAtomicWrite
		p.a.refused(verbs.ErrInvalid, bad)
	}
	p.a.refused(verbs.ErrBounds, verbs.AtomicWrite(p.b.mem.remote(off, 7), 1))
	p.works()
	return tested
}

// atomicWriteOnce: a reader of the word sees either the old or the new value, never a mixture.
func atomicWriteOnce(w *world) outcome {
	if w.noAtomicWrite() {
		return noted
	}
	p := w.pair(forAtomicWrite)
	const rounds = 200
	p.b.mem.put(8, 0)
	word := p.b.mem.word(8)
	var torn, back atomic.Uint64
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for old := uint64(0); ; {
			v := atomic.LoadUint64(word)
			if v>>32 != v&(1<<32-1) {
				torn.Store(v)
			}
			if v < old {
				back.Store(v)
			}
			old = v
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	for i := uint64(1); i <= rounds; i++ {
		p.a.ok(p.a.run(verbs.AtomicWrite(p.b.mem.remote(8, 8), i<<32|i)), verbs.WCAtomicWrite)
	}
	close(stop)
	<-stopped
	require.Zero(w, torn.Load())
	require.Zero(w, back.Load())
	require.EqualValues(w, rounds<<32|rounds, p.b.mem.get(8))
	return tested
}

// atomicWriteDenied: protected memory is not written, and the requester gets an error.
func atomicWriteDenied(w *world) outcome {
	if w.noAtomicWrite() {
		return noted
	}
	by := w.pair(pairConfig{})
	for _, c := range []struct {
		name   string
		target func(s *side) (*mem, verbs.Remote)
		status verbs.WCStatus
	}{
		{"WrongKey", func(s *side) (*mem, verbs.Remote) {
			r := s.mem.remote(0, 8)
			r.RKey ^= 1
			return s.mem, r
		}, verbs.WCRemAccessErr},
		{"NoRight", func(s *side) (*mem, verbs.Remote) {
			m := s.alloc(64, allRights&^verbs.AccessRemoteWrite)
			return m, m.remote(0, 8)
		}, verbs.WCRemAccessErr},
		{"Behind", func(s *side) (*mem, verbs.Remote) {
			m := s.alloc(64, allRights)
			return m, m.remote(64, 8)
		}, verbs.WCRemAccessErr},
		{"Misaligned", func(s *side) (*mem, verbs.Remote) {
			m := s.alloc(64, allRights)
			return m, m.remote(12, 8)
		}, verbs.WCRemInvReqErr},
	} {
		p := w.pair(forAtomicWrite)
		m, to := c.target(p.b)
		same := m.keeps()
		p.a.post(verbs.AtomicWrite(to, 1))
		wc := p.a.sent()
		require.Equal(w, c.status.String(), wc.Status.String(), c.name)
		require.ErrorIs(w, p.a.qp.Cause(&wc), c.status, c.name)
		same()
		by.works()
	}
	return tested
}
