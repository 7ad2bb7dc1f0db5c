// SPDX-License-Identifier: BSD-3-Clause

//go:build !(linux && cgo && !noibverbs)

package cm

import (
	"fmt"

	"github.com/goverbs/goverbs/verbs"
)

// noLibrary replaces librdmacm in builds without cgo.
type noLibrary struct{}

func library() rdmaLibrary { return noLibrary{} }

func (noLibrary) load() error {
	return fmt.Errorf("%w of the kernel: %w", verbs.ErrNoDevice, verbs.RDMACore())
}

func (l noLibrary) open() (rawChannel, error) { return nil, l.load() }

// loadLibrary has nothing to load: verbs.RDMACore returns the reason.
func loadLibrary() error { return nil }
