// SPDX-License-Identifier: BSD-3-Clause

package engine

import (
	"github.com/goverbs/goverbs/compat/ibcompat/internal/wire"
	"github.com/goverbs/goverbs/verbs"
)

// CheckPrivate rejects private data that are too long for some fabric.
func CheckPrivate(data []byte) error {
	if len(data) > wire.MaxPrivate {
		return &verbs.LimitError{Name: "private data", Limit: wire.MaxPrivate, Value: uint64(len(data))}
	}
	return nil
}

// Delivered returns the private data as the program sees them: of the same length on every fabric,
// padded with zeros.
func Delivered(data []byte) []byte {
	b := make([]byte, wire.MaxPrivate)
	copy(b, data)
	return b
}
