// SPDX-License-Identifier: BSD-3-Clause

package demo

import (
	"context"

	"github.com/goverbs/goverbs/verbs"
)

// step is one kind of operation, which the driver on the connecting side runs against the listener.
// The control messages begin and ready precede it, check and result follow it.
type step struct {
	name string
	// needs are the operations without which the step is skipped. Without one of uses the step does
	// something else in its place, and says so. Both devices must have an operation.
	needs, uses verbs.OpSet
	// ops is how many operations the step has.
	ops func(o *Options) int
	// drive does n operations. It puts differences into c and returns the words that the listener's
	// memory must hold. An error says that the step could not be finished.
	drive func(ctx context.Context, d *driver, c *check, n int) (words []uint64, err error)
	// prepare puts the listener's memory into the state that drive expects.
	prepare func(l *listener, p pattern)
	// serve is the listener's part while drive runs.
	serve func(ctx context.Context, l *listener, c *check, p pattern, n int) error
	// verify looks at the listener's memory in the end.
	verify func(l *listener, c *check, words []uint64)
}

// constant is the number of operations of a step that takes no option.
func constant(n int) func(*Options) int { return func(*Options) int { return n } }

// perClient is the number of operations of a step that the client processes do.
func perClient(o *Options) int { return o.Clients * o.Ops }

// What several steps need or use.
var (
	windowOps     = verbs.MakeOpSet(verbs.OpBindMW, verbs.OpLocalInv, verbs.OpSendInv, verbs.OpRead)
	plainAtomics  = verbs.MakeOpSet(verbs.OpFetchAdd, verbs.OpCmpSwap)
	maskedAtomics = verbs.MakeOpSet(verbs.OpMaskedFetchAdd, verbs.OpMaskedCmpSwap)
)

// steps returns the steps in their order. The first and the last are the connection itself.
func steps() []step {
	return []step{
		{name: "connect", ops: constant(1), drive: driveConnect, verify: verifyConnect},
		{name: "send", uses: windowOps, ops: constant(2000), drive: driveSend, serve: serveSend},
		{name: "write", needs: verbs.MakeOpSet(verbs.OpWrite), ops: constant(1024), drive: driveWrite,
			serve: serveWrite},
		{name: "read", needs: verbs.MakeOpSet(verbs.OpRead), ops: constant(1024), drive: driveRead, serve: serveRead},
		{name: "write-imm", needs: verbs.MakeOpSet(verbs.OpWriteImm), uses: verbs.MakeOpSet(verbs.OpImm64),
			ops:   constant(2000),
			drive: driveWriteImm, serve: serveWriteImm},
		{name: "imm64", needs: verbs.MakeOpSet(verbs.OpImm64), ops: constant(2000), drive: driveImm64,
			serve: serveImm64},
		{name: "masked-fetchadd", needs: verbs.MakeOpSet(verbs.OpMaskedFetchAdd, verbs.OpFetchAdd), ops: constant(2000),
			drive: driveFetchAdd, prepare: prepareWord(wordFetchAdd), verify: verifyWord(wordFetchAdd)},
		{name: "masked-cmpswap", needs: verbs.MakeOpSet(verbs.OpMaskedCmpSwap, verbs.OpCmpSwap), ops: constant(2000),
			drive: driveCmpSwap, prepare: prepareWord(wordCmpSwap), verify: verifyWord(wordCmpSwap)},
		{name: "lock", needs: plainAtomics, uses: maskedAtomics, ops: perClient,
			drive: driveLock, prepare: prepareLock, verify: verifyLock},
		{name: "counter", needs: plainAtomics, uses: maskedAtomics, ops: perClient,
			drive: driveCounter, prepare: prepareWord(wordCounter), verify: verifyWord(wordCounter)},
		{name: "close", ops: constant(1)},
	}
}

// StepNames returns the names of the steps in their order.
func StepNames() []string {
	var names []string
	for _, s := range steps() {
		names = append(names, s.name)
	}
	return names
}

// Words in the listener's memory. Each has a cache line of its own.
const (
	wordLock     = iota // see lockHeld
	wordGuarded         // what the lock guards: two words, big-endian
	wordCounter         // see counterAdd
	wordFetchAdd        // target of the step masked-fetchadd
	wordCmpSwap         // target of the step masked-cmpswap

	wordSpacing = 64
	wordsSize   = 4096
)

// Sizes of the data that the steps move.
const (
	dataSize  = 4 << 20
	chunkSize = 64 << 10
	chunks    = dataSize / chunkSize
)
