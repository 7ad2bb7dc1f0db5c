// SPDX-License-Identifier: BSD-3-Clause

package dat

import (
	"fmt"
	"log/slog"

	"github.com/goverbs/goverbs/internal/show"
)

func (ia *IA) facts() show.Facts {
	if ia == nil || ia.node.Stage() == "" {
		return show.None("IA")
	}
	return show.Of("IA", slog.String("device", ia.dev.Name()), slog.String("stage", ia.node.Stage()))
}

// Format implements fmt.Formatter: the text of String, with every verb.
func (ia *IA) Format(s fmt.State, verb rune) { ia.facts().Format(s, verb) }

// String shows the IA in one line.
func (ia *IA) String() string { return ia.facts().String() }

// LogValue implements slog.LogValuer.
func (ia *IA) LogValue() slog.Value { return ia.facts().LogValue() }

// MarshalJSON implements json.Marshaler.
func (ia *IA) MarshalJSON() ([]byte, error) { return ia.facts().MarshalJSON() }

func (pz *PZ) facts() show.Facts {
	if pz == nil || pz.node.Stage() == "" {
		return show.None("PZ")
	}
	return show.Of("PZ", slog.String("ia", pz.ia.dev.Name()), slog.String("stage", pz.node.Stage()))
}

// Format implements fmt.Formatter: the text of String, with every verb.
func (pz *PZ) Format(s fmt.State, verb rune) { pz.facts().Format(s, verb) }

// String shows the PZ in one line.
func (pz *PZ) String() string { return pz.facts().String() }

// LogValue implements slog.LogValuer.
func (pz *PZ) LogValue() slog.Value { return pz.facts().LogValue() }

// MarshalJSON implements json.Marshaler.
func (pz *PZ) MarshalJSON() ([]byte, error) { return pz.facts().MarshalJSON() }

func (e *EVD) facts() show.Facts {
	if e == nil || e.node.Stage() == "" {
		return show.None("EVD")
	}
	return show.Of("EVD", slog.String("ia", e.ia.dev.Name()), show.Text("flags", e.flags), slog.Int("qlen", e.qlen),
		slog.String("stage", e.node.Stage()))
}

// Format implements fmt.Formatter: the text of String, with every verb.
func (e *EVD) Format(s fmt.State, verb rune) { e.facts().Format(s, verb) }

// String shows the EVD in one line.
func (e *EVD) String() string { return e.facts().String() }

// LogValue implements slog.LogValuer.
func (e *EVD) LogValue() slog.Value { return e.facts().LogValue() }

// MarshalJSON implements json.Marshaler.
func (e *EVD) MarshalJSON() ([]byte, error) { return e.facts().MarshalJSON() }

func (ep *EP) facts() show.Facts {
	if ep == nil || ep.node.Stage() == "" {
		return show.None("EP")
	}
	return show.Of("EP", slog.String("ia", ep.ia.dev.Name()), show.Text("state", ep.State()),
		slog.String("stage", ep.node.Stage()))
}

// Format implements fmt.Formatter: the text of String, with every verb.
func (ep *EP) Format(s fmt.State, verb rune) { ep.facts().Format(s, verb) }

// String shows the EP in one line.
func (ep *EP) String() string { return ep.facts().String() }

// LogValue implements slog.LogValuer.
func (ep *EP) LogValue() slog.Value { return ep.facts().LogValue() }

// MarshalJSON implements json.Marshaler.
func (ep *EP) MarshalJSON() ([]byte, error) { return ep.facts().MarshalJSON() }

func (p *PSP) facts() show.Facts {
	if p == nil || p.node.Stage() == "" {
		return show.None("PSP")
	}
	return show.Of("PSP", slog.String("ia", p.ia.dev.Name()), slog.Uint64("conn_qual", p.qual),
		slog.String("stage", p.node.Stage()))
}

// Format implements fmt.Formatter: the text of String, with every verb.
func (p *PSP) Format(s fmt.State, verb rune) { p.facts().Format(s, verb) }

// String shows the PSP in one line.
func (p *PSP) String() string { return p.facts().String() }

// LogValue implements slog.LogValuer.
func (p *PSP) LogValue() slog.Value { return p.facts().LogValue() }

// MarshalJSON implements json.Marshaler.
func (p *PSP) MarshalJSON() ([]byte, error) { return p.facts().MarshalJSON() }

func (cr *CR) facts() show.Facts {
	if cr == nil || cr.node.Stage() == "" {
		return show.None("CR")
	}
	return show.Of("CR", slog.String("ia", cr.ia.dev.Name()), show.Addr("remote", cr.req.RemoteAddr()),
		slog.String("stage", cr.node.Stage()))
}

// Format implements fmt.Formatter: the text of String, with every verb.
func (cr *CR) Format(s fmt.State, verb rune) { cr.facts().Format(s, verb) }

// String shows the CR in one line.
func (cr *CR) String() string { return cr.facts().String() }

// LogValue implements slog.LogValuer.
func (cr *CR) LogValue() slog.Value { return cr.facts().LogValue() }

// MarshalJSON implements json.Marshaler.
func (cr *CR) MarshalJSON() ([]byte, error) { return cr.facts().MarshalJSON() }

func (l *LMR) facts() show.Facts {
	if l == nil || l.node.Stage() == "" {
		return show.None("LMR")
	}
	return show.Of("LMR", slog.String("ia", l.ia.dev.Name()), slog.Int("bytes", l.mr.Len()),
		show.Text("privileges", l.priv), slog.String("stage", l.node.Stage()))
}

// Format implements fmt.Formatter: the text of String, with every verb.
func (l *LMR) Format(s fmt.State, verb rune) { l.facts().Format(s, verb) }

// String shows the LMR in one line.
func (l *LMR) String() string { return l.facts().String() }

// LogValue implements slog.LogValuer.
func (l *LMR) LogValue() slog.Value { return l.facts().LogValue() }

// MarshalJSON implements json.Marshaler.
func (l *LMR) MarshalJSON() ([]byte, error) { return l.facts().MarshalJSON() }
