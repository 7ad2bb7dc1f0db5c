// SPDX-License-Identifier: BSD-3-Clause

package demo

import (
	"context"

	"github.com/goverbs/goverbs/verbs"
)

// step is one kind of operation, which the driver on the connecting side runs against the listener.
// It is preceded by the control messages begin and ready, and followed by check and result.
type step struct {
	name string
	// The step is skipped if either device lacks one of needs. If either lacks one of uses, the
	// step does something else instead and says so.
	needs, uses verbs.OpSet
	// ops returns the number of operations.
	ops func(o *Options) int
	// drive performs n operations. It records differences in c and returns the expected contents of
	// the listener's words. An error means that the step could not be finished.
	drive func(ctx context.Context, d *driver, c *check, n int) (words []uint64, err error)
	// prepare puts the listener's memory into the state that drive expects.
	prepare func(l *listener, p pattern)
	// serve is the listener's part while drive runs.
	serve func(ctx context.Context, l *listener, c *check, p pattern, n int) error
	// verify checks the listener's memory at the end.
	verify func(l *listener, c *check, words []uint64)
}

// constant returns a fixed number of operations, for a step without an option.
func constant(n int) func(*Options) int { return func(*Options) int { return n } }

// perClient returns the number of operations of a step that the client processes perform.
func perClient(o *Options) int { return o.Clients * o.Ops }

// Needs and uses of several steps.
var (
	windowOps     = verbs.MakeOpSet(verbs.OpBindMW, verbs.OpLocalInv, verbs.OpSendInv, verbs.OpRead)
	plainAtomics  = verbs.MakeOpSet(verbs.OpFetchAdd, verbs.OpCmpSwap)
	maskedAtomics = verbs.MakeOpSet(verbs.OpMaskedFetchAdd, verbs.OpMaskedCmpSwap)
)

// steps returns the steps in order. The first and the last are the connection itself.
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

// StepNames returns the step names in order.
func StepNames() []string {
	var names []string
	for _, s := range steps() {
		names = append(names, s.name)
	}
	return names
}

// Words in the listener's memory, each in its own cache line.
const (
	wordLock     = iota // see lockHeld
	wordGuarded         // guarded by the lock: two big-endian words
	wordCounter         // see counterAdd
	wordFetchAdd        // target of the step masked-fetchadd
	wordCmpSwap         // target of the step masked-cmpswap

	wordSpacing = 64
	wordsSize   = 4096
)

// Sizes of the data that the steps transfer.
const (
	dataSize  = 4 << 20
	chunkSize = 64 << 10
	chunks    = dataSize / chunkSize
)
