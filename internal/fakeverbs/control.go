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

// T is what Start needs of a test.
type T interface {
	Helper()
	Cleanup(func())
	Errorf(format string, args ...any)
}

// Start resets the package and, when the test ends, fails it for every fault that was not taken and
// for every object that is still alive and was not before.
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

// Reset forgets calls, records, failures that were asked for, faults and what was set of the
// devices. Objects that are alive stay.
func Reset() { cReset() }

// Calls is how often a function was called since Reset, by its public name. Functions that are
// inline in verbs.h (ibv_post_send, ibv_query_port, ibv_alloc_mw ...) count too; ibv_reg_mr and
// ibv_reg_mr_iova with an access that the compiler does not know are ibv_reg_mr_iova2. Calls panics
// for a name that does not exist.
func Calls(name string) int { return cCount(name) }

// Args returns the arguments of the last call of a function, nil if there was none: numbers as they
// are, pointers as addresses, of pointers to structs some of the fields; which ones is in the C
// source. A QP counts with its number in ibv_modify_qp, ibv_query_qp, ibv_post_send and
// ibv_post_recv.
func Args(name string) []uint64 { return cArgs(name) }

// Fail makes the nth call of a function from now, 1 for the next, fail with an errno, in the way of
// that function: the number as its result, or -1 or NULL and errno, or negative (ibv_poll_cq,
// ibv_query_gid_table, and posts on fake1), or IBV_REREG_MR_ERR_CMD and errno. A post fails at its
// first request.
func Fail(name string, nth int, err syscall.Errno) { cFail(name, nth, err) }

// FailAfter is Fail for functions that destroy something and return 0, an errno, or -1 and errno:
// the call does its work and says that it has failed all the same, so that nothing is left behind.
func FailAfter(name string, nth int, err syscall.Errno) { cFailAfter(name, nth, err) }

// Delay makes the next call of a function take d longer. It looks at its arguments only after that.
func Delay(name string, d time.Duration) { cDelay(name, int(d/time.Microsecond)) }

// Delaying reports whether the call that Delay asked for has begun.
func Delaying() bool { return cDelaying() }

// Hold has the next call of a function wait, before it does anything, until Release or Reset. No
// other call waits for it.
func Hold(name string) { cHold(name) }

// Holding reports whether the call that Hold asked for waits.
func Holding() bool { return cHolding() }

// Release lets the call go on that waits.
func Release() { cRelease() }

// PostFailure is how a posting function fails.
type PostFailure struct {
	Index   int  // of the request in the list; those before it are taken
	Result  int  // what the call returns
	NoBadWR bool // bad_wr is not set
}

// FailPost makes the nth call from now of ibv_post_send, ibv_post_recv or ibv_post_srq_recv fail in
// the middle. If the list is not longer than Index, all of it is taken and the call fails with
// bad_wr set to NULL, as libsiw does when its doorbell fails.
func FailPost(name string, nth int, f PostFailure) { cFailPost(name, nth, f) }

// Faults takes the faults recorded since the last call or Reset, oldest first, at most 256.
func Faults() []string { return cFaults() }

// Live is how many objects of each kind are alive. Contexts of librdmacm's own are not counted.
func Live() map[string]int { return cLive() }

// LastID is how many objects of a kind, named as by Live, have been made since the process began:
// the number of the newest.
func LastID(kind string) uint32 { return cLastID(kind) }

// SetBlockLimit sets how long a call that waits in C waits before that is a fault: 2 s after Reset.
func SetBlockLimit(d time.Duration) { cSetBlock(int(d / time.Millisecond)) }

// SetNewer makes the kernel one that is newer than the libraries' headers, until Reset. What has
// bits for flags has some without a name: attributes of devices and ports, what rdma_init_qp_attr
// asks for and its mask, completions. Before each event of an id comes one of a kind without a
// name.
func SetNewer(on bool) { cSetNewer(on) }

// ForkStatus sets what ibv_fork_init returns and ibv_is_fork_initialized tells (IBV_FORK_DISABLED
// 0, ENABLED 1, UNNEEDED 2). ibv_fork_init that succeeds turns DISABLED to ENABLED.
func ForkStatus(result syscall.Errno, status int) { cSetFork(int(result), status) }
