// SPDX-License-Identifier: BSD-3-Clause

package engine

import (
	"github.com/goverbs/goverbs/compat/ibcompat/internal/wire"
	"github.com/goverbs/goverbs/verbs"
)

// CheckPrivate refuses private data for which not every fabric has room.
func CheckPrivate(data []byte) error {
	if len(data) > wire.MaxPrivate {
		return &verbs.LimitError{Name: "private data", Limit: wire.MaxPrivate, Value: uint64(len(data))}
	}
	return nil
}

// Delivered is what the program gets of private data that have arrived: as many on every fabric, of
// which those that the peer did not send are 0.
func Delivered(data []byte) []byte {
	b := make([]byte, wire.MaxPrivate)
	copy(b, data)
	return b
}
