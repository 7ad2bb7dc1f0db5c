// SPDX-License-Identifier: BSD-3-Clause

package siw

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

// TestBrokenReason: a write that fails because the stream has failed before does not hide the reason, which somebody else has
// been told and comes with a little later. If nobody does, it is all that is known.
func TestBrokenReason(t *testing.T) {
	pipe := os.NewSyscallError("write", syscall.EPIPE)
	for _, then := range []error{os.NewSyscallError("read", syscall.ETIMEDOUT), nil} {
		a, _ := twoSides(t, Config{})
		a.conn.broken(pipe)
		require.Equal(t, verbs.QPStateRTS, a.qp.State())
		want := pipe
		if then != nil {
			a.conn.broken(then)
			require.Equal(t, verbs.QPStateErr, a.qp.State())
			want = then
		}
		require.Eventually(t, func() bool { return a.qp.State() == verbs.QPStateErr }, patience, time.Millisecond)
		require.ErrorIs(t, a.qp.Err(), want)
		time.Sleep(2 * reasonDelay)
		require.ErrorIs(t, a.qp.Err(), want, "the first reason stays")
	}
}
