// SPDX-License-Identifier: BSD-3-Clause

package demo

import (
	"context"
	"fmt"

	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/verbs"
)

// The steps masked-fetchadd and masked-cmpswap: atomics on a word that nothing else changes, so
// that every original value is known in advance. Every fourth atomic has no masks.

// chain runs n atomics on a word that starts at 0. request returns request i and what it turns a
// value into.
func (d *driver) chain(ctx context.Context, c *check, n, word int,
	request func(i int, value uint64) (wr verbs.SendWR, next uint64)) ([]uint64, error) {
	var (
		value uint64
		want  [window]uint64 // expected original values of the requests in flight
	)
	fill := func(i int) verbs.SendWR {
		want[i%window] = value
		wr, next := request(i, value)
		value = next
		return wr
	}
	err := d.end.pipeline(ctx, n, fill, func(i int, _ *verbs.WC) {
		c.word(fmt.Sprintf("the original value that operation %d brought", i), d.sunk(i%window), want[i%window])
		d.out.progress(1, 0)
	})
	if err != nil {
		return nil, err
	}
	final, err := d.readWord(ctx, word)
	if err != nil {
		return nil, err
	}
	c.word("the final value", final, value)
	return []uint64{value}, nil
}

func driveFetchAdd(ctx context.Context, d *driver, c *check, n int) ([]uint64, error) {
	p := d.pattern("masked-fetchadd")
	return d.chain(ctx, c, n, wordFetchAdd, func(i int, value uint64) (verbs.SendWR, uint64) {
		sink, add, mask := d.sink(i%window), p.word(2*i), p.word(2*i+1)
		if i%4 == 3 {
			return ext.FetchAddWR(d.word(wordFetchAdd), add, sink...), value + add
		}
		return ext.MaskedFetchAddWR(d.word(wordFetchAdd), add, mask, sink...), ext.MaskedFetchAdd(value, add, mask)
	})
}

func driveCmpSwap(ctx context.Context, d *driver, c *check, n int) ([]uint64, error) {
	p := d.pattern("masked-cmpswap")
	return d.chain(ctx, c, n, wordCmpSwap, func(i int, value uint64) (verbs.SendWR, uint64) {
		sink, swap, noise := d.sink(i%window), p.word(4*i), p.word(4*i+1)
		compareMask, swapMask := p.word(4*i+2), p.word(4*i+3)
		if i%4 == 3 {
			// Alternately one that matches and one that does not.
			compare := value
			if i%8 == 3 {
				compare ^= noise | 1
			}
			return ext.CmpSwapWR(d.word(wordCmpSwap), compare, swap, sink...),
				ext.MaskedCmpSwap(value, compare, ^uint64(0), swap, ^uint64(0))
		}
		compare := value&compareMask | noise&^compareMask
		if i%4 == 2 {
			compare ^= compareMask & -compareMask // differs in one bit under the mask
		}
		return ext.MaskedCmpSwapWR(d.word(wordCmpSwap), compare, compareMask, swap, swapMask, sink...),
			ext.MaskedCmpSwap(value, compare, compareMask, swap, swapMask)
	})
}
