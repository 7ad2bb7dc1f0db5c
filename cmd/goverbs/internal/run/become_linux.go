// SPDX-License-Identifier: BSD-3-Clause

package run

import (
	"fmt"
	"syscall"
)

// become replaces this process by the program.
func become(file string, args, env []string) error {
	return &unrunnable{fmt.Errorf("%s: %w", file, syscall.Exec(file, args, env)), 126}
}
