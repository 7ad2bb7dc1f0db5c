// SPDX-License-Identifier: BSD-3-Clause

package queue

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// fakeKernel is the other side of the rings, in memory: it takes requests out of the send queue in
// order and completes each, as siw does. Its words are those of the C structures, written by other
// means than those of the package.
type fakeKernel struct {
	mu       sync.Mutex
	sq       []Send
	cq       []completion
	control  *control
	got, put uint32
	bells    int
	events   int
	lazy     bool // it does nothing when the bell rings
}

// newFake returns the rings of a QP with so many entries each, and their kernel.
func newFake(t testing.TB, entries uint32) (*SQ, *CQ, *fakeKernel) {
	t.Helper()
	k := new(fakeKernel)
	sqMem, cqMem := make([]uint64, SQSize(entries)/8), make([]uint64, CQSize(2*entries)/8)
	sq, err := NewSQ(memory(sqMem), entries, k.bell)
	require.NoError(t, err)
	cq, err := NewCQ(memory(cqMem), 2*entries)
	require.NoError(t, err)
	k.sq, k.cq, k.control = sq.ring, cq.ring, cq.control
	return sq, cq, k
}

func (k *fakeKernel) bell() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.bells++
	if !k.lazy {
		for k.step() {
		}
	}
	return nil
}

// run does what the bell said, later.
func (k *fakeKernel) run() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for k.step() {
	}
}

// step takes a request and completes it if it is signaled. The entry is given back first, as siw
// does.
func (k *fakeKernel) step() bool {
	e := &k.sq[k.got%uint32(len(k.sq))]
	word := e.word.Load()
	if word&valid == 0 {
		return false
	}
	id := e.ID
	e.word.Store(word &^ 0xffff)
	k.got++
	if word&FlagSignaled != 0 {
		k.complete(&completion{id: id, bytes: 8, qp: 5}, uint32(word>>24)<<8)
	}
	return true
}

// complete puts a completion, whose word is to be this with VALID.
func (k *fakeKernel) complete(c *completion, word uint32) {
	e := &k.cq[k.put%uint32(len(k.cq))]
	if e.word.Load()&valid != 0 {
		panic("the CQ has overflowed")
	}
	e.id, e.bytes, e.imm, e.qp = c.id, c.bytes, c.imm, c.qp
	e.word.Store(word | valid)
	k.put++
	if f := k.control.flags.Load(); f&notifyNext != 0 || f&notifySolicited != 0 && word&FlagSolicit != 0 {
		k.control.flags.Store(0)
		k.events++
	}
}
