// SPDX-License-Identifier: BSD-3-Clause

package rsocket

import (
	"fmt"
	"log/slog"

	"github.com/goverbs/goverbs/internal/show"
)

// stage is the state of a connection as it is printed.
type stage uint32

const (
	stageOpening stage = iota
	stageOpen
	stageClosed
)

func (s stage) String() string { return [...]string{"opening", "open", "closed"}[s] }

func (c *Conn) facts() show.Facts {
	if c == nil || stage(c.shown.Load()) == stageOpening { // the other fields are written before the stage
		return show.None("Conn")
	}
	return show.Of("Conn", slog.String("device", c.Device().Name()), show.Text("state", stage(c.shown.Load())),
		show.Addr("local", c.local), show.Addr("remote", c.remote), slog.Uint64("qp_num", uint64(c.res.qp.Num())))
}

// Format implements fmt.Formatter: the text of String, with every verb.
func (c *Conn) Format(s fmt.State, verb rune) { c.facts().Format(s, verb) }

// String shows the Conn in one line.
func (c *Conn) String() string { return c.facts().String() }

// LogValue implements slog.LogValuer.
func (c *Conn) LogValue() slog.Value { return c.facts().LogValue() }

// MarshalJSON implements json.Marshaler.
func (c *Conn) MarshalJSON() ([]byte, error) { return c.facts().MarshalJSON() }

func (l *Listener) facts() show.Facts {
	if l == nil || l.ln == nil {
		return show.None("Listener")
	}
	return show.Of("Listener", slog.String("devices", names(l.ln.Devices())), slog.String("state", l.stateText()),
		show.Addr("local", l.addr))
}

// Format implements fmt.Formatter: the text of String, with every verb.
func (l *Listener) Format(s fmt.State, verb rune) { l.facts().Format(s, verb) }

// String shows the Listener in one line.
func (l *Listener) String() string { return l.facts().String() }

// LogValue implements slog.LogValuer.
func (l *Listener) LogValue() slog.Value { return l.facts().LogValue() }

// MarshalJSON implements json.Marshaler.
func (l *Listener) MarshalJSON() ([]byte, error) { return l.facts().MarshalJSON() }

func (m *Mapping) facts() show.Facts {
	if m == nil || m.mr == nil {
		return show.None("Mapping")
	}
	return show.Of("Mapping", slog.Int("index", m.index), slog.Int("length", m.mr.Len()))
}

// Format implements fmt.Formatter: the text of String, with every verb.
func (m *Mapping) Format(s fmt.State, verb rune) { m.facts().Format(s, verb) }

// String shows the Mapping in one line.
func (m *Mapping) String() string { return m.facts().String() }

// LogValue implements slog.LogValuer.
func (m *Mapping) LogValue() slog.Value { return m.facts().LogValue() }

// MarshalJSON implements json.Marshaler.
func (m *Mapping) MarshalJSON() ([]byte, error) { return m.facts().MarshalJSON() }
