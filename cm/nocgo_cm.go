// SPDX-License-Identifier: BSD-3-Clause

//go:build !(linux && cgo && !noibverbs)

package cm

import (
	"context"
	"fmt"

	"github.com/goverbs/goverbs/verbs"
)

// The replacement for the kernel's connection manager in builds without cgo.

func errNoKernel() error {
	return fmt.Errorf("%w of the kernel: %w", verbs.ErrNoDevice, verbs.RDMACore())
}

// loadLibrary has nothing to load: verbs.RDMACore tells why.
func loadLibrary() error { return nil }

func resolveKernel(context.Context, string, Config, *verbs.Context) (Route, *verbs.Context, error) {
	return nil, nil, errNoKernel()
}

func listenKernel(context.Context, string, Config, *verbs.Context) (deviceLister, error) {
	return nil, errNoKernel()
}
