// SPDX-License-Identifier: BSD-3-Clause

package demo

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ext"
)

func TestCheck(t *testing.T) {
	for name, compare := range map[string]func(c *check, differ bool){
		"word":  func(c *check, differ bool) { c.word("it", 8, 8+2*b2u(differ)) },
		"count": func(c *check, differ bool) { c.count("it", 8, 8+2*b2u(differ)) },
		"bytes": func(c *check, differ bool) { c.bytes("it", []byte{1, 2, 3}, []byte{1, byte(2 + 2*b2u(differ)), 3}) },
		"length": func(c *check, differ bool) {
			c.bytes("it", []byte{1, 2},
				make([]byte, 2+b2u(differ))[:2+b2u(differ)])
		},
		"is": func(c *check, differ bool) { is(c, "it", "a", "ab"[:1+b2u(differ)]) },
	} {
		t.Run(name, func(t *testing.T) {
			if name != "length" {
				var same check
				compare(&same, false)
				require.NoError(t, same.err)
			}
			var other check
			compare(&other, true)
			require.ErrorContains(t, other.err, "it")
			for _, name := range []string{"", "it"} {
				broken := check{broken: []string{"another", name}}
				compare(&broken, false)
				require.ErrorContains(t, broken.err, "it", "a broken check finds a difference where there is none")
			}
			whole := check{broken: []string{"another"}}
			compare(&whole, false)
			require.Equal(t, name == "length", whole.err != nil, "another one is broken")
		})
	}
	var c check
	c.noError("it", nil)
	require.NoError(t, c.err)
	first := errors.New("first")
	c.noError("it", first)
	c.word("it", 1, 2)
	require.ErrorIs(t, c.err, first, "the first difference is kept")
	c = check{broken: []string{""}}
	c.bytes("it", nil, nil)
	require.Error(t, c.err)
	c = check{broken: []string{""}}
	c.noError("it", nil)
	require.ErrorContains(t, c.err, "it")
	found := []byte{1, 2, 3}
	c = check{broken: []string{""}}
	c.bytes("it", found, found)
	require.NoError(t, c.err, "nothing differs from itself")
	require.Equal(t, []byte{1, 2, 3}, found)
	require.Equal(t, &check{broken: []string{"", "answer N"}},
		newCheck("send", []string{"send", "write:round N: what was read", "send:answer N"}))
	c = check{broken: []string{"round N: word N"}}
	c.word("round 12: word 3", 1, 1)
	require.ErrorContains(t, c.err, "round 12: word 3 is 0x0, not 0x1")
}

func b2u(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// A failure that one side reports reaches the other.
func TestCheckPeer(t *testing.T) {
	var mine, theirs check
	mine.fail("byte 7")
	var m control
	mine.tell(&m)
	theirs.peer("other side", &m)
	require.EqualError(t, theirs.err, "other side: byte 7")
	theirs = check{}
	theirs.peer("other side", &control{})
	require.EqualError(t, theirs.err, "other side: failed")
	theirs, mine = check{}, check{}
	mine.tell(&m)
	theirs.peer("other side", &m)
	require.NoError(t, theirs.err)
}

func TestPattern(t *testing.T) {
	p := pattern{7}
	require.Equal(t, p.bytes(3, 100), p.bytes(3, 100))
	require.NotEqual(t, p.bytes(3, 100), p.bytes(4, 100))
	require.NotEqual(t, p.bytes(3, 100), pattern{8}.bytes(3, 100))
	require.Equal(t, p.word(3), p.word(3))
	require.NotEqual(t, p.word(3), p.word(4))
}

func TestCounter(t *testing.T) {
	mask, err := ext.FieldMask(32, 16, 16)
	require.NoError(t, err)
	require.Equal(t, mask, uint64(counterMask))
	const client, ops = 3, 70000 // a count of more than 16 bits
	var middle, upper uint16
	for k := range ops {
		middle += uint16(counterAdd(client, k) >> 32)
		upper += uint16(counterAdd(client, k) >> 48)
	}
	sum := counterSum(client, ops, counterMask)
	require.EqualValues(t, ops, sum&counterTicketMask)
	require.Equal(t, middle, uint16(sum>>32))
	require.Equal(t, upper, uint16(sum>>48))
	var plain uint64
	for k := range ops {
		plain += counterAdd(client, k)
	}
	require.Equal(t, plain, counterSum(client, ops, counterBounds(false)))
	require.EqualValues(t, ops, plain&counterTicketMask, "tickets are right without the mask")
	require.NotEqual(t, plain, sum, "without the mask the fields overflow into each other")
}

func TestLockWord(t *testing.T) {
	const mine = lockHeld | uint64(5)<<lockOwnerShift
	require.Equal(t, mine, lockHeld|lockOwner(4))
	require.Zero(t, lockOwner(MaxClients-1)&^lockOwnerMask)
	take := func(word uint64, client int) uint64 {
		return ext.MaskedCmpSwap(word, 0, lockHeld, lockHeld|lockOwner(client), lockHeld|lockOwnerMask)
	}
	require.Equal(t, mine|77, take(77, 4))
	require.Equal(t, mine|77, take(mine|77, 1), "it is held")
	require.Equal(t, mine|78, ext.MaskedFetchAdd(mine|77, 1, lockCountField))
	require.Equal(t, mine, ext.MaskedFetchAdd(mine|lockCountMask, 1, lockCountField),
		"the count does not run into the owner")
	require.EqualValues(t, 78, ext.MaskedCmpSwap(mine|78, mine, lockHeld|lockOwnerMask, 0, lockHeld|lockOwnerMask))
}

func TestGuarded(t *testing.T) {
	count, sum := guardedAfter(1000)
	require.EqualValues(t, 1000, count)
	// One lost and one repeated update cancel out in the count, but not in the sum.
	c, s := guardedAfter(500)
	_, s2 := guardedNext(c+1, s)
	c, s = c+2, s2
	for range 498 {
		c, s = guardedNext(c, s)
	}
	require.Equal(t, count, c)
	require.NotEqual(t, sum, s)
}
