// SPDX-License-Identifier: BSD-3-Clause

//go:build !unix

package usiw

import (
	"fmt"
	"runtime"
	"syscall"

	"github.com/goverbs/goverbs/verbs"
)

// reuseAddr returns an error: on these systems SO_REUSEADDR means something else.
func reuseAddr(_, _ string, _ syscall.RawConn) error {
	return fmt.Errorf("%w: a local port that is used again, on %s", verbs.ErrNotSupported, runtime.GOOS)
}
