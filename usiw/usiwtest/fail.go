// SPDX-License-Identifier: BSD-3-Clause

package usiwtest

import (
	"fmt"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/usiw/internal/testhook"
)

// FailBuild returns hooks for usiw.Config.Hooks that make the NIC fail to build its n-th message
// with opcode op, counted from 1 across all its connections. In place of the message the NIC sends
// Terminate 0/0/00, which ends that connection (RFC 7306 section 8.1).
func FailBuild(op rdmap.Opcode, n int) testhook.Hooks {
	var built atomic.Int64
	return testhook.Hooks{Build: func(o rdmap.Opcode) error {
		if o == op && built.Add(1) == int64(n) {
			return fmt.Errorf("usiwtest: %v number %d was to fail", op, n)
		}
		return nil
	}}
}
