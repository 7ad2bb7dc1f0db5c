// SPDX-License-Identifier: BSD-3-Clause

package goverbstest

import (
	"fmt"
	"log/slog"

	"github.com/goverbs/goverbs/internal/show"
)

// facts follows the rules of package internal/show.
func (nw *Network) facts() show.Facts {
	if nw == nil || nw.Wire == nil {
		return show.None("Network")
	}
	names := make([]string, len(nw.NICs))
	for i, n := range nw.NICs {
		names[i] = n.Device().Name()
	}
	return show.Of("Network", slog.Any("nics", names), slog.Bool("capture", nw.rec != nil))
}

// Format implements fmt.Formatter: the text of String, with every verb.
func (nw *Network) Format(s fmt.State, verb rune) { nw.facts().Format(s, verb) }

// String describes the Network in one line.
func (nw *Network) String() string { return nw.facts().String() }

// LogValue implements slog.LogValuer.
func (nw *Network) LogValue() slog.Value { return nw.facts().LogValue() }

// MarshalJSON implements json.Marshaler.
func (nw *Network) MarshalJSON() ([]byte, error) { return nw.facts().MarshalJSON() }
