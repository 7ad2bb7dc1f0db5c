// SPDX-License-Identifier: BSD-3-Clause

package demo

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/verbs"
)

// The steps lock and counter: client processes contend for words of the listener. The driver starts
// them, adds up what they did, and compares the sums with the words, which it reads by RDMA Read;
// the listener compares them with its memory.

// Limits of the hidden options. The tickets of all operations fit in 32 bits.
const (
	MaxClients   = 64
	MaxClientOps = 1_000_000
)

// The lock word: one bit that says the lock is held, eight that identify the holder, and a count of
// acquisitions. The masked CmpSwap that acquires the lock compares the one bit and stores the nine,
// whatever the count is; the masked FetchAdd that counts leaves those bits alone. On devices
// without masked atomics the plain ones do the same with the whole word.
const (
	lockHeld       = uint64(1) << 63
	lockOwnerShift = 48
	lockOwnerMask  = uint64(0xff) << lockOwnerShift
	lockCountMask  = uint64(1)<<32 - 1
)

// lockCountField is the FetchAdd mask that bounds the count.
const lockCountField = uint64(1) << 31

// lockOwner returns the owner bits for a client.
func lockOwner(client int) uint64 { return uint64(client+1) << lockOwnerShift }

// The guarded words are changed by Read and Write, which are not atomic: only the lock keeps them
// consistent. The second word accumulates a hash over the values of the first, so that a lost
// update is visible.
const guardedSize = 16

// guardedNext returns what the holder of the lock writes.
func guardedNext(count, sum uint64) (uint64, uint64) {
	return count + 1, bits.RotateLeft64(sum, 7)*0x9e3779b97f4a7c15 + count
}

// guardedAfter returns the contents of the guarded words after n changes.
func guardedAfter(n int) (count, sum uint64) {
	for range n {
		count, sum = guardedNext(count, sum)
	}
	return count, sum
}

// The counter word has three fields: tickets, to which every operation adds 1 and whose original
// value is the operation's ticket; a 16-bit field that overflows all the time; and a 16-bit field
// that counts down. Without the mask each overflow carries into the next field. That is what
// happens on devices without masked atomics, where the word is a single 64-bit sum. Tickets are
// correct even there, since all of them fit.
const (
	counterTicketMask = uint64(1)<<32 - 1
	counterMask       = uint64(1)<<31 | 1<<47 | 1<<63 // ext.FieldMask(32, 16, 16)
)

// counterAdd returns what a client adds in operation k.
func counterAdd(client, k int) uint64 {
	middle := uint64(uint16((client*7919 + k + 1) * 40503))
	return 1 | middle<<32 | 0xffff<<48
}

// counterBounds returns the FetchAdd mask of the counter.
func counterBounds(masked bool) uint64 {
	if masked {
		return counterMask
	}
	return 0
}

// counterSum returns the sum of what a client adds in ops operations.
func counterSum(client, ops int, mask uint64) (sum uint64) {
	for k := range ops {
		sum = ext.MaskedFetchAdd(sum, counterAdd(client, k), mask)
	}
	return sum
}

func prepareLock(l *listener, _ pattern) {
	l.setWord(wordLock, 0)
	clear(l.words.Bytes()[wordSpacing*wordGuarded:][:guardedSize])
}

// driveLock has every client acquire the lock ops times.
func driveLock(ctx context.Context, d *driver, c *check, n int) ([]uint64, error) {
	var err error
	if d.clients, err = d.startClients(ctx); err != nil {
		return nil, err
	}
	d.out.restart()
	reports, err := d.clients.run(ctx, "lock", d.out)
	if err != nil {
		return nil, err
	}
	var taken, tries uint64
	for _, r := range reports {
		taken += r.Taken
		tries += r.Tries
	}
	c.count("the sum of the acquisitions", taken, uint64(n))
	d.remark = fmt.Sprintf("%d processes, %s tries", d.o.Clients, thousands(int(tries)))

	lock, err := d.readWord(ctx, wordLock)
	if err != nil {
		return nil, err
	}
	c.word("the lock word, free and counted,", lock, taken)
	wantCount, wantSum := guardedAfter(n)
	sge, err := d.sinks.SGE(0, guardedSize)
	if err != nil {
		return nil, err
	}
	if _, err = d.end.do(ctx, verbs.Read(d.word(wordGuarded), sge)); err != nil {
		return nil, err
	}
	count, sum := decodeGuarded(d.sinks.Bytes())
	c.count("the guarded count", count, wantCount)
	c.word("the guarded sum", sum, wantSum)
	return []uint64{lock, count, sum}, nil
}

func decodeGuarded(b []byte) (count, sum uint64) {
	return binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])
}

func verifyLock(l *listener, c *check, words []uint64) {
	if c.count("the number of words that the driver told", uint64(len(words)), 3); len(words) != 3 {
		return
	}
	c.word("the lock word in memory", l.word(wordLock), words[0])
	count, sum := decodeGuarded(l.words.Bytes()[wordSpacing*wordGuarded:])
	c.count("the guarded count in memory", count, words[1])
	c.word("the guarded sum in memory", sum, words[2])
}

// driveCounter has every client add to the counter ops times.
func driveCounter(ctx context.Context, d *driver, c *check, n int) ([]uint64, error) {
	reports, err := d.clients.run(ctx, "counter", d.out)
	if err != nil {
		return nil, err
	}
	var sum, expected, tickets, squares uint64
	masked := d.end.has(maskedAtomics)
	mask := counterBounds(masked)
	for i, r := range reports {
		sum = ext.MaskedFetchAdd(sum, r.Sum, mask)
		expected = ext.MaskedFetchAdd(expected, counterSum(i, d.o.Ops, mask), mask)
		tickets += r.Tickets
		squares += r.Squares
	}
	// The sums of the tickets and of their squares show that each ticket was issued once.
	var wantTickets, wantSquares uint64
	for t := range uint64(n) {
		wantTickets += t
		wantSquares += t * t
	}
	c.count("the sum of the tickets", tickets, wantTickets)
	c.count("the sum of the squares of the tickets", squares, wantSquares)
	counter, err := d.readWord(ctx, wordCounter)
	if err != nil {
		return nil, err
	}
	c.word("the counter", counter, sum)
	c.word("what the clients have added", sum, expected)
	d.remark = fmt.Sprintf("%d processes", d.o.Clients)
	if masked {
		d.remark += ", fields of 32, 16 and 16 bits"
	}
	return []uint64{counter}, d.clients.end()
}
