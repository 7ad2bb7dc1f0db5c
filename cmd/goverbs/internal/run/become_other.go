// SPDX-License-Identifier: BSD-3-Clause

//go:build !linux

package run

import (
	"fmt"
	"runtime"

	"github.com/goverbs/goverbs/verbs"
)

func become(file string, _, _ []string) error {
	return fmt.Errorf("%s: %w on %s: it needs Linux", file, verbs.ErrNotSupported, runtime.GOOS)
}
