// SPDX-License-Identifier: BSD-3-Clause

package capture

import (
	"fmt"
	"log/slog"

	"github.com/goverbs/goverbs/internal/show"
)

// A Writer can be printed at any time; the output does not include what it has recorded.

func (w *Writer) facts() show.Facts {
	if w == nil || w.name == "" {
		return show.None("Writer")
	}
	return show.Of("Writer", slog.String("name", w.name))
}

// Format implements fmt.Formatter: the text of String, with every verb.
func (w *Writer) Format(s fmt.State, verb rune) { w.facts().Format(s, verb) }

// String describes the Writer in one line.
func (w *Writer) String() string { return w.facts().String() }

// LogValue implements slog.LogValuer.
func (w *Writer) LogValue() slog.Value { return w.facts().LogValue() }

// MarshalJSON implements json.Marshaler.
func (w *Writer) MarshalJSON() ([]byte, error) { return w.facts().MarshalJSON() }
