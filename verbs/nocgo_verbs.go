// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && (!cgo || noibverbs)

package verbs

import (
	"errors"

	"github.com/goverbs/goverbs/internal/ibverbs"
)

// kernelLibrary returns why libibverbs is unavailable.
func kernelLibrary() (ibverbs.Library, error) {
	return nil, errors.New("built without cgo or with the tag noibverbs")
}
