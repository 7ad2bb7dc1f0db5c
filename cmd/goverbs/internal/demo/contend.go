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

// The steps lock and counter: client processes contend for words of the listener's. The driver
// starts them, adds up what they did, and compares the sums with the words, which it reads back by
// RDMA Read; the listener compares them with its memory.

// Bounds of the hidden options. The tickets of all operations fit in 32 bits.
const (
	MaxClients   = 64
	MaxClientOps = 1_000_000
)

// The lock word: one bit that says the lock is held, eight that say by whom, and a count of how
// often it was taken. The masked CmpSwap that takes it compares the one bit and stores the nine,
// whatever the count is; the masked FetchAdd that counts leaves them alone. On devices without
// masked atomics the plain ones do it, with the whole word.
const (
	lockHeld       = uint64(1) << 63
	lockOwnerShift = 48
	lockOwnerMask  = uint64(0xff) << lockOwnerShift
	lockCountMask  = uint64(1)<<32 - 1
)

// lockCountField is the boundary of the count.
const lockCountField = uint64(1) << 31

// lockOwner is what the owner bits say of a client.
func lockOwner(client int) uint64 { return uint64(client+1) << lockOwnerShift }

// The guarded words are changed by Read and Write, which are not atomic: only the lock keeps them
// right. The second one is a chain over the first, so that an update that was lost shows.
const guardedSize = 16

// guardedNext returns what the holder of the lock writes.
func guardedNext(count, sum uint64) (uint64, uint64) {
	return count + 1, bits.RotateLeft64(sum, 7)*0x9e3779b97f4a7c15 + count
}

// guardedAfter returns what the guarded words hold after n changes.
func guardedAfter(n int) (count, sum uint64) {
	for range n {
		count, sum = guardedNext(count, sum)
	}
	return count, sum
}

// The counter word has three fields: tickets, where every operation adds 1 and the original value
// tells which one it got; one of 16 bits that overflows all the time; and one of 16 bits that is
// counted down. Without the mask each overflow would change its neighbour, which is what it does on
// devices without masked atomics: there the sum is one of 64 bits. Tickets are right even so, since
// all of them fit.
const (
	counterTicketMask = uint64(1)<<32 - 1
	counterMask       = uint64(1)<<31 | 1<<47 | 1<<63 // ext.FieldMask(32, 16, 16)
)

// counterAdd returns what client adds in its operation k.
func counterAdd(client, k int) uint64 {
	middle := uint64(uint16((client*7919 + k + 1) * 40503))
	return 1 | middle<<32 | 0xffff<<48
}

// counterBounds returns the mask with which the counter is moved.
func counterBounds(masked bool) uint64 {
	if masked {
		return counterMask
	}
	return 0
}

// counterSum adds up what a client adds in ops operations.
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

// driveLock lets every client take the lock ops times.
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

// driveCounter lets every client add to the counter ops times.
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
	// That each ticket was given once shows in the sum of them and of their squares.
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
