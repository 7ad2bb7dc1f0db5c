// SPDX-License-Identifier: BSD-3-Clause

package usiwtest

import (
	"fmt"
	"log/slog"

	"github.com/goverbs/goverbs/internal/show"
)

// Wires, links and directions can be printed at any time; the output does not include what they
// carry.

func (w *Wire) facts() show.Facts {
	if w == nil {
		return show.None("Wire")
	}
	return show.Of("Wire", slog.Int("buffer", w.Buffer))
}

func (l *Link) facts() show.Facts {
	if l == nil || l.dialer == nil {
		return show.None("Link")
	}
	return show.Of("Link", show.Text("dialer", l.dialer.local), show.Text("listener", l.listener.local))
}

func (d *Direction) facts() show.Facts {
	if d == nil || d.link == nil {
		return show.None("Direction")
	}
	from, to := d.link.dialer, d.link.listener
	if d == d.link.ToDialer {
		from, to = to, from
	}
	return show.Of("Direction", show.Text("from", from.local), show.Text("to", to.local))
}

// Format implements fmt.Formatter: the text of String, with every verb.
func (w *Wire) Format(s fmt.State, verb rune) { w.facts().Format(s, verb) }

// String describes the Wire in one line.
func (w *Wire) String() string { return w.facts().String() }

// LogValue implements slog.LogValuer.
func (w *Wire) LogValue() slog.Value { return w.facts().LogValue() }

// MarshalJSON implements json.Marshaler.
func (w *Wire) MarshalJSON() ([]byte, error) { return w.facts().MarshalJSON() }

// Format implements fmt.Formatter: the text of String, with every verb.
func (l *Link) Format(s fmt.State, verb rune) { l.facts().Format(s, verb) }

// String describes the Link in one line.
func (l *Link) String() string { return l.facts().String() }

// LogValue implements slog.LogValuer.
func (l *Link) LogValue() slog.Value { return l.facts().LogValue() }

// MarshalJSON implements json.Marshaler.
func (l *Link) MarshalJSON() ([]byte, error) { return l.facts().MarshalJSON() }

// Format implements fmt.Formatter: the text of String, with every verb.
func (d *Direction) Format(s fmt.State, verb rune) { d.facts().Format(s, verb) }

// String describes the Direction in one line.
func (d *Direction) String() string { return d.facts().String() }

// LogValue implements slog.LogValuer.
func (d *Direction) LogValue() slog.Value { return d.facts().LogValue() }

// MarshalJSON implements json.Marshaler.
func (d *Direction) MarshalJSON() ([]byte, error) { return d.facts().MarshalJSON() }
