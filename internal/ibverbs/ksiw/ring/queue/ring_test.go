// SPDX-License-Identifier: BSD-3-Clause

package queue

import (
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// put puts n signaled requests with IDs from first on; it returns how many there was room for.
func put(q *SQ, first uint64, n int) int {
	for i := range n {
		e := q.Next(1)
		if e == nil {
			return i
		}
		e.ID = first + uint64(i)
		q.Put(OpWrite, FlagSignaled, 0)
	}
	return n
}

// TestBell: a list rings once, and not at all while the kernel is busy with what was put before.
func TestBell(t *testing.T) {
	sq, _, k := newFake(t, 8)
	require.NoError(t, sq.Tell())
	require.Zero(t, k.bells, "there is nothing")
	put(sq, 0, 3)
	require.NoError(t, sq.Tell())
	require.Equal(t, 1, k.bells)
	k.lazy = true
	put(sq, 3, 2)
	require.NoError(t, sq.Tell())
	require.Equal(t, 2, k.bells, "the kernel was idle")
	put(sq, 5, 2)
	require.NoError(t, sq.Tell())
	require.Equal(t, 2, k.bells, "the kernel has the entry before and goes on to these")
	k.run()
	put(sq, 7, 1)
	require.NoError(t, sq.Tell())
	require.Equal(t, 3, k.bells)
}

// TestBellFullRing: a list that fills the ring rings, because the entry before it is its own last
// one.
func TestBellFullRing(t *testing.T) {
	sq, cq, k := newFake(t, 4)
	for range 3 {
		require.Equal(t, 4, put(sq, 0, 5))
		require.NoError(t, sq.Tell())
		var c Completion
		for cq.Take(&c) {
		}
	}
	require.Equal(t, 3, k.bells)
}

// TestBellFails: the error is the caller's, and the list is not told again.
func TestBellFails(t *testing.T) {
	sq, _, k := newFake(t, 4)
	broken := errors.New("broken")
	sq.bell = func() error { return broken }
	put(sq, 0, 2)
	require.ErrorIs(t, sq.Tell(), broken)
	require.NoError(t, sq.Tell())
	require.Zero(t, k.bells)
}

// TestFull: an entry that the kernel has is not written to, also if only the second of two is not
// free.
func TestFull(t *testing.T) {
	sq, _, k := newFake(t, 4)
	k.lazy = true
	require.Equal(t, 3, put(sq, 0, 3))
	require.Nil(t, sq.Next(2))
	require.NotNil(t, sq.Next(1))
	require.Nil(t, sq.Next(5), "more than the ring has")
	require.Equal(t, 1, put(sq, 3, 2))
	require.Nil(t, sq.Next(1))
	k.step()
	require.NotNil(t, sq.Next(1))
	require.Nil(t, sq.Next(2))
}

// TestWrap: the counts pass 2^32.
func TestWrap(t *testing.T) {
	sq, cq, k := newFake(t, 8)
	start := uint32(math.MaxUint32 - 20)
	sq.put, sq.told, cq.taken, k.got, k.put = start, start, start, start, start
	var c Completion
	for id := uint64(0); id < 45; id += 3 {
		require.Equal(t, 3, put(sq, id, 3))
		require.NoError(t, sq.Tell())
		for i := range uint64(3) {
			require.True(t, cq.Take(&c))
			require.Equal(t, Completion{ID: id + i, Op: OpWrite, Bytes: 8, QP: 5}, c)
		}
		require.False(t, cq.Take(&c))
	}
	require.Equal(t, 15, k.bells)
}

// TestTake: every part of a completion, and what a bug in the process may have written there.
func TestTake(t *testing.T) {
	_, cq, k := newFake(t, 2)
	word := func(flags uint8, op Opcode, status Status) uint32 {
		return uint32(flags) | uint32(op)<<8 | uint32(status)<<16
	}
	if bigEndian {
		t.Skip("the words of this test are of the other byte order")
	}
	k.complete(&completion{id: 1, bytes: 8, imm: 0x0102030405060708, qp: 9 | 7<<32},
		word(FlagImm, OpReceive, StatusSuccess))
	k.complete(&completion{id: 2, bytes: 77, imm: 0x0102030405060708},
		word(FlagImm|FlagWrote, OpReceive, StatusSuccess))
	k.complete(&completion{id: 3, imm: 0xffffffff00000011}, word(FlagInv, OpReceive, StatusSuccess))
	k.complete(&completion{id: math.MaxUint64}, word(0xfe, 255, 0xffff))
	var c Completion
	require.True(t, cq.Take(&c))
	require.Equal(t, Completion{ID: 1, Op: OpReceive, Flags: FlagImm, Bytes: 8, QP: 9, Imm: 0x0102030405060708}, c)
	require.True(t, cq.Take(&c))
	require.Equal(t, Completion{ID: 2, Op: OpReceive, Flags: FlagImm | FlagWrote, Bytes: 77, Imm: 0x0102030405060708},
		c)
	require.True(t, cq.Take(&c))
	require.Equal(t, Completion{ID: 3, Op: OpReceive, Flags: FlagInv, Key: 0x11}, c)
	require.True(t, cq.Take(&c))
	require.Equal(t, StatusGeneral, c.Status)
	require.False(t, cq.Take(&c))
}

// TestArm: one event for what comes after arming; solicited ones only for what is.
func TestArm(t *testing.T) {
	_, cq, k := newFake(t, 8)
	k.complete(&completion{}, 0)
	require.Zero(t, k.events)
	cq.Arm(false)
	k.complete(&completion{}, 0)
	k.complete(&completion{}, 0)
	require.Equal(t, 1, k.events)
	cq.Arm(true)
	k.complete(&completion{}, 0)
	require.Equal(t, 1, k.events)
	k.complete(&completion{}, FlagSolicit)
	require.Equal(t, 2, k.events)
}

// TestReceives: the kernel finds receives in order, gives them back by clearing the flags only, and
// a full queue is not overwritten.
func TestReceives(t *testing.T) {
	q, err := NewRQ(memory(make([]uint64, RQSize(4)/8)), 4)
	require.NoError(t, err)
	got := 0
	for id := uint64(0); id < 100; {
		for range 1 + rand.IntN(4) {
			e := q.Next()
			if e == nil {
				require.Equal(t, 4, int(id)-got)
				break
			}
			e.ID = id
			e.SGEs[0] = SGE{Addr: id, Length: 1}
			q.Put(1)
			id++
		}
		for range rand.IntN(5) {
			e := &q.ring[got%4]
			if !isKernels(&e.word) {
				break
			}
			require.Equal(t, requestWord(valid, 1, 0), e.word.Load(), "siw takes a receive of no other flags")
			require.Equal(t, uint64(got), e.ID)
			e.word.Store(e.word.Load() &^ 0xffff)
			got++
		}
	}
}

// TestBadRings: what the kernel cannot have said is refused.
func TestBadRings(t *testing.T) {
	mem := memory(make([]uint64, 1<<12))
	for _, entries := range []uint32{0, 3, 1 << 25, math.MaxUint32, 1 << 12} {
		_, err := NewSQ(mem, entries, nil)
		require.Error(t, err, entries)
		_, err = NewRQ(mem, entries)
		require.Error(t, err, entries)
		_, err = NewCQ(mem, entries)
		require.Error(t, err, entries)
	}
	_, err := NewCQ(mem[4:], 4)
	require.Error(t, err, "not aligned")
	_, err = NewCQ(mem[:4*completionSize], 4)
	require.Error(t, err, "no room for what it is armed for")
}

// TestBusy: with the kernel at work at the same time, every request comes once and in order, though
// the bell is left out whenever the kernel is seen to be busy.
func TestBusy(t *testing.T) {
	const total = 4000
	sq, cq, k := newFake(t, 16)
	k.lazy = true
	wake := make(chan struct{}, 1)
	sq.bell = func() error {
		select {
		case wake <- struct{}{}:
		default:
		}
		return nil
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for k.got < total {
			select {
			case <-wake:
				k.run()
			case <-time.After(30 * time.Second):
				return // a request was forgotten, and the test sees which
			}
		}
	}()
	posted, taken := uint64(0), uint64(0)
	limit := time.Now().Add(30 * time.Second)
	for taken < total {
		if n := min(1+rand.IntN(5), total-int(posted)); posted-taken+uint64(n) <= 32 {
			posted += uint64(put(sq, posted, n))
			require.NoError(t, sq.Tell())
		}
		var c Completion
		for cq.Take(&c) {
			require.Equal(t, taken, c.ID)
			taken++
		}
		runtime.Gosched()
		if taken%64 == 0 && time.Now().After(limit) {
			require.Fail(t, "requests are forgotten", "%d posted, %d taken", posted, taken)
		}
	}
	<-done
}

// TestAllocNothing: posting and polling allocate nothing.
func TestAllocNothing(t *testing.T) {
	sq, cq, _ := newFake(t, 8)
	var c Completion
	require.Zero(t, testing.AllocsPerRun(100, func() {
		put(sq, 0, 4)
		_ = sq.Tell()
		for cq.Take(&c) {
		}
		cq.Arm(false)
	}))
}
