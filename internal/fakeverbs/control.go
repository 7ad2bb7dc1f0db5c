// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package fakeverbs

import (
	"fmt"
	"sort"
	"strings"
	"syscall"
	"time"
)

// T is the part of testing.TB that Start needs.
type T interface {
	Helper()
	Cleanup(func())
	Errorf(format string, args ...any)
}

// Start resets the package. When the test ends, it fails the test for every fault not yet read and
// for every object created since and still alive.
func Start(t T) {
	t.Helper()
	Reset()
	before := Live()
	t.Cleanup(func() {
		for _, f := range Faults() {
			t.Errorf("fakeverbs: %s", f)
		}
		var left []string
		for kind, n := range Live() {
			if n > before[kind] {
				left = append(left, fmt.Sprintf("%s %d", kind, n-before[kind]))
			}
		}
		if left != nil {
			sort.Strings(left)
			t.Errorf("fakeverbs: objects that were not destroyed: %s", strings.Join(left, ", "))
		}
		Reset()
	})
}

// Reset clears calls, records, requested failures, faults and all settings of the devices. Live
// objects remain.
func Reset() { cReset() }

// Calls returns how often a function was called since Reset, by its public name. Functions that are
// inline in verbs.h (ibv_post_send, ibv_query_port, ibv_alloc_mw ...) count too; ibv_reg_mr and
// ibv_reg_mr_iova with an access that is not a compile-time constant count as ibv_reg_mr_iova2.
// Calls panics if there is no function of that name.
func Calls(name string) int { return cCount(name) }

// Args returns the arguments of the last call of a function, or nil if there was none: numbers as
// they are, pointers as addresses, and of pointers to structs some of the fields, as listed in the
// C source. A QP appears as its number in ibv_modify_qp, ibv_query_qp, ibv_post_send and
// ibv_post_recv.
func Args(name string) []uint64 { return cArgs(name) }

// Fail makes the nth call of a function from now, 1 for the next, fail with an errno, by that
// function's convention: it is the result; or the result is -1 or NULL and errno is set; or it is
// negative (ibv_poll_cq, ibv_query_gid_table, and posts on fake1); or it is IBV_REREG_MR_ERR_CMD
// and errno is set. A post fails at its first request.
func Fail(name string, nth int, err syscall.Errno) { cFail(name, nth, err) }

// FailAfter is Fail for functions that destroy something and return 0, an errno, or -1 and errno:
// the call does its work and nevertheless reports failure, so that nothing is left behind.
func FailAfter(name string, nth int, err syscall.Errno) { cFailAfter(name, nth, err) }

// Delay makes the next call of a function take d longer. It reads its arguments only afterwards.
func Delay(name string, d time.Duration) { cDelay(name, int(d/time.Microsecond)) }

// Delaying reports whether the call delayed by Delay has started.
func Delaying() bool { return cDelaying() }

// Hold makes the next call of a function wait, before it does anything, until Release or Reset. It
// blocks no other call.
func Hold(name string) { cHold(name) }

// Holding reports whether the call held by Hold is waiting.
func Holding() bool { return cHolding() }

// Release releases the waiting call.
func Release() { cRelease() }

// PostFailure describes how a posting function fails.
type PostFailure struct {
	Index   int  // of the request in the list; those before it are accepted
	Result  int  // the call's result
	NoBadWR bool // do not set bad_wr
}

// FailPost makes the nth call from now of ibv_post_send, ibv_post_recv or ibv_post_srq_recv fail
// within its list. If the list has no request at Index, all of it is accepted, and the call fails
// with bad_wr set to NULL, as libsiw does when its doorbell fails.
func FailPost(name string, nth int, f PostFailure) { cFailPost(name, nth, f) }

// Faults returns and removes the faults recorded since the last call or Reset, oldest first, at
// most 256.
func Faults() []string { return cFaults() }

// Live returns how many objects of each kind are alive. Contexts internal to librdmacm are not
// counted.
func Live() map[string]int { return cLive() }

// LastID returns how many objects of a kind, named as by Live, were created since the process
// started, which is the number of the newest.
func LastID(kind string) uint32 { return cLastID(kind) }

// SetBlockLimit sets how long a call may block in C before that is a fault: 2 s after Reset.
func SetBlockLimit(d time.Duration) { cSetBlock(int(d / time.Millisecond)) }

// SetNewer simulates a kernel newer than the libraries' headers, until Reset: flags have a bit
// without a name (attributes of devices and ports, completions, and the attributes and mask of
// rdma_init_qp_attr), and each event of an id is preceded by one of an unknown type.
func SetNewer(on bool) { cSetNewer(on) }

// ForkStatus sets the results of ibv_fork_init and ibv_is_fork_initialized (IBV_FORK_DISABLED 0,
// ENABLED 1, UNNEEDED 2). A successful ibv_fork_init changes DISABLED to ENABLED.
func ForkStatus(result syscall.Errno, status int) { cSetFork(int(result), status) }
