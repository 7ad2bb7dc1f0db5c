// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"fmt"
	"log/slog"

	"github.com/goverbs/goverbs/internal/lifetime"
	"github.com/goverbs/goverbs/internal/show"
)

// Every handle can be printed at any time, even while other goroutines use or close it: with fmt
// and any verb, with log/slog, and with encoding/json. The output has names, numbers, states and
// sizes, never the contents of memory. Package internal/show has the rules for the facts methods.

// under returns the attributes that every handle below a context shows.
func under(c *Context, n *lifetime.Node) []slog.Attr {
	return []slog.Attr{slog.String("device", c.dev.Name()), slog.String("state", n.Stage())}
}

func (d *Device) facts() show.Facts {
	if d == nil || d.p == nil {
		return show.None("device")
	}
	i := d.info
	return show.Of("Device", slog.String("device", i.Name), slog.String("provider", i.Provider),
		show.Text("node_type", i.NodeType), show.Text("transport", i.Transport),
		show.Text("node_guid", i.NodeGUID)).As(i.Name + " (" + i.Provider + ")")
}

func (c *Context) facts() show.Facts {
	if c == nil || c.node.Stage() == "" {
		return show.None("Context")
	}
	return show.Of("Context", under(c, &c.node)...).And(slog.Bool("shared", c.isShared),
		slog.Int("phys_port_cnt", c.attr.PhysPortCnt))
}

func (pd *PD) facts() show.Facts {
	if pd == nil || pd.node.Stage() == "" {
		return show.None("PD")
	}
	return show.Of("PD", under(pd.ctx, &pd.node)...)
}

// placed holds the attributes that a region shows. Rereg replaces it as a whole.
type placed struct {
	addr       uint64
	length     int
	lkey, rkey uint32
	access     AccessFlags
}

// place records the attributes that the region shows.
func (m *MR) place() {
	m.placed.Store(&placed{m.iova, m.Len(), m.p.LKey(), m.p.RKey(), m.access})
}

func (m *MR) facts() show.Facts {
	if m == nil || m.node.Stage() == "" {
		return show.None("MR")
	}
	at := m.placed.Load()
	return show.Of("MR", under(m.ctx, &m.node)...).And(show.Hex("addr", at.addr), slog.Int("length", at.length),
		show.Hex("lkey", at.lkey), show.Hex("rkey", at.rkey), show.Text("access", at.access))
}

func (w *MW) facts() show.Facts {
	if w == nil || w.node.Stage() == "" {
		return show.None("MW")
	}
	return show.Of("MW", under(w.pd.ctx, &w.node)...).And(show.Text("type", w.typ), show.Hex("rkey", w.rkey.Load()))
}

func (ch *CompChannel) facts() show.Facts {
	if ch == nil || ch.node.Stage() == "" {
		return show.None("CompChannel")
	}
	return show.Of("CompChannel", under(ch.ctx, &ch.node)...)
}

func (cq *CQ) facts() show.Facts {
	if cq == nil || cq.node.Stage() == "" {
		return show.None("CQ")
	}
	return show.Of("CQ", under(cq.ctx, &cq.node)...).And(slog.Int64("cqe", cq.room.Load()),
		slog.Bool("own_channel", cq.owned))
}

func (q *QP) facts() show.Facts {
	if q == nil || q.node.Stage() == "" {
		return show.None("QP")
	}
	f := show.Of("QP", slog.String("device", q.pd.ctx.dev.Name()), slog.Uint64("qp_num", uint64(q.num)),
		show.Text("type", q.typ), slog.String("state", q.stateText()), slog.Int("max_send_wr", q.cap.MaxSendWR),
		slog.Int("max_send_sge", q.cap.MaxSendSGE))
	if q.srq != nil {
		f = f.And(slog.Bool("srq", true))
	} else {
		f = f.And(slog.Int("max_recv_wr", q.cap.MaxRecvWR), slog.Int("max_recv_sge", q.cap.MaxRecvSGE))
	}
	return f.And(slog.Int("max_inline_data", q.cap.MaxInlineData))
}

// stateText returns the state of a QP as far as it is known without calling the device.
func (q *QP) stateText() string {
	if stage := q.node.Stage(); stage == "closed" || q.known == nil {
		return stage
	}
	return q.known.KnownState().String()
}

func (s *SRQ) facts() show.Facts {
	if s == nil || s.node.Stage() == "" {
		return show.None("SRQ")
	}
	return show.Of("SRQ", under(s.pd.ctx, &s.node)...).And(slog.Int64("max_wr", s.room.Load()),
		slog.Int("max_sge", s.attr.MaxSGE))
}

func (ah *AH) facts() show.Facts {
	if ah == nil || ah.node.Stage() == "" {
		return show.None("AH")
	}
	return show.Of("AH", under(ah.pd.ctx, &ah.node)...).And(slog.Int("port_num", int(ah.attr.PortNum)),
		show.Text("dgid", ah.attr.GRH.DGID), slog.Int("sgid_index", int(ah.attr.GRH.SGIDIndex)),
		slog.Int("dlid", int(ah.attr.DLID)))
}

func (d *Dispatcher) facts() show.Facts {
	if d == nil || d.cq == nil {
		return show.None("Dispatcher")
	}
	return show.Of("Dispatcher", under(d.cq.ctx, &d.cq.node)...).And(slog.Int("entries", len(d.entries)))
}

// Format implements fmt.Formatter: the text of String, with every verb.
func (d *Device) Format(s fmt.State, verb rune) { d.facts().Format(s, verb) }

// String returns "name (provider)".
func (d *Device) String() string { return d.facts().String() }

// LogValue implements slog.LogValuer.
func (d *Device) LogValue() slog.Value { return d.facts().LogValue() }

// MarshalJSON implements json.Marshaler.
func (d *Device) MarshalJSON() ([]byte, error) { return d.facts().MarshalJSON() }

// Format implements fmt.Formatter: the text of String, with every verb.
func (c *Context) Format(s fmt.State, verb rune) { c.facts().Format(s, verb) }

// String shows the Context in one line.
func (c *Context) String() string { return c.facts().String() }

// LogValue implements slog.LogValuer.
func (c *Context) LogValue() slog.Value { return c.facts().LogValue() }

// MarshalJSON implements json.Marshaler.
func (c *Context) MarshalJSON() ([]byte, error) { return c.facts().MarshalJSON() }

// Format implements fmt.Formatter: the text of String, with every verb.
func (pd *PD) Format(s fmt.State, verb rune) { pd.facts().Format(s, verb) }

// String shows the PD in one line.
func (pd *PD) String() string { return pd.facts().String() }

// LogValue implements slog.LogValuer.
func (pd *PD) LogValue() slog.Value { return pd.facts().LogValue() }

// MarshalJSON implements json.Marshaler.
func (pd *PD) MarshalJSON() ([]byte, error) { return pd.facts().MarshalJSON() }

// Format implements fmt.Formatter: the text of String, with every verb.
func (m *MR) Format(s fmt.State, verb rune) { m.facts().Format(s, verb) }

// String shows the MR in one line.
func (m *MR) String() string { return m.facts().String() }

// LogValue implements slog.LogValuer.
func (m *MR) LogValue() slog.Value { return m.facts().LogValue() }

// MarshalJSON implements json.Marshaler.
func (m *MR) MarshalJSON() ([]byte, error) { return m.facts().MarshalJSON() }

// Format implements fmt.Formatter: the text of String, with every verb.
func (w *MW) Format(s fmt.State, verb rune) { w.facts().Format(s, verb) }

// String shows the MW in one line.
func (w *MW) String() string { return w.facts().String() }

// LogValue implements slog.LogValuer.
func (w *MW) LogValue() slog.Value { return w.facts().LogValue() }

// MarshalJSON implements json.Marshaler.
func (w *MW) MarshalJSON() ([]byte, error) { return w.facts().MarshalJSON() }

// Format implements fmt.Formatter: the text of String, with every verb.
func (ch *CompChannel) Format(s fmt.State, verb rune) { ch.facts().Format(s, verb) }

// String shows the CompChannel in one line.
func (ch *CompChannel) String() string { return ch.facts().String() }

// LogValue implements slog.LogValuer.
func (ch *CompChannel) LogValue() slog.Value { return ch.facts().LogValue() }

// MarshalJSON implements json.Marshaler.
func (ch *CompChannel) MarshalJSON() ([]byte, error) { return ch.facts().MarshalJSON() }

// Format implements fmt.Formatter: the text of String, with every verb.
func (cq *CQ) Format(s fmt.State, verb rune) { cq.facts().Format(s, verb) }

// String shows the CQ in one line.
func (cq *CQ) String() string { return cq.facts().String() }

// LogValue implements slog.LogValuer.
func (cq *CQ) LogValue() slog.Value { return cq.facts().LogValue() }

// MarshalJSON implements json.Marshaler.
func (cq *CQ) MarshalJSON() ([]byte, error) { return cq.facts().MarshalJSON() }

// Format implements fmt.Formatter: the text of String, with every verb.
func (q *QP) Format(s fmt.State, verb rune) { q.facts().Format(s, verb) }

// String shows the QP in one line.
func (q *QP) String() string { return q.facts().String() }

// LogValue implements slog.LogValuer.
func (q *QP) LogValue() slog.Value { return q.facts().LogValue() }

// MarshalJSON implements json.Marshaler.
func (q *QP) MarshalJSON() ([]byte, error) { return q.facts().MarshalJSON() }

// Format implements fmt.Formatter: the text of String, with every verb.
func (s *SRQ) Format(st fmt.State, verb rune) { s.facts().Format(st, verb) }

// String shows the SRQ in one line.
func (s *SRQ) String() string { return s.facts().String() }

// LogValue implements slog.LogValuer.
func (s *SRQ) LogValue() slog.Value { return s.facts().LogValue() }

// MarshalJSON implements json.Marshaler.
func (s *SRQ) MarshalJSON() ([]byte, error) { return s.facts().MarshalJSON() }

// Format implements fmt.Formatter: the text of String, with every verb.
func (ah *AH) Format(s fmt.State, verb rune) { ah.facts().Format(s, verb) }

// String shows the AH in one line.
func (ah *AH) String() string { return ah.facts().String() }

// LogValue implements slog.LogValuer.
func (ah *AH) LogValue() slog.Value { return ah.facts().LogValue() }

// MarshalJSON implements json.Marshaler.
func (ah *AH) MarshalJSON() ([]byte, error) { return ah.facts().MarshalJSON() }

// Format implements fmt.Formatter: the text of String, with every verb.
func (d *Dispatcher) Format(s fmt.State, verb rune) { d.facts().Format(s, verb) }

// String shows the Dispatcher in one line.
func (d *Dispatcher) String() string { return d.facts().String() }

// LogValue implements slog.LogValuer.
func (d *Dispatcher) LogValue() slog.Value { return d.facts().LogValue() }

// MarshalJSON implements json.Marshaler.
func (d *Dispatcher) MarshalJSON() ([]byte, error) { return d.facts().MarshalJSON() }
