// SPDX-License-Identifier: BSD-3-Clause

package cm

import (
	"fmt"
	"log/slog"
	"net"

	"github.com/goverbs/goverbs/internal/show"
	"github.com/goverbs/goverbs/verbs"
)

// Every type of this package is safe to print at any time, even while other goroutines use or close
// the value: with fmt and every verb, with log/slog, and with encoding/json. Of private data only
// the length is shown; package internal/show has the rules for the methods facts.

func (id *ID) facts() show.Facts {
	if id == nil || id.node.Stage() == "" {
		return show.None("ID")
	}
	state, local, remote := id.known()
	f := show.Of("ID", slog.String("device", id.vctx.Device().Name()), slog.String("state", state),
		show.Addr("local", local), show.Addr("remote", remote))
	if qp := id.QP(); qp != nil {
		f = f.And(slog.Uint64("qp_num", uint64(qp.Num())))
	}
	return f
}

// known is the state of the ID and its addresses.
func (id *ID) known() (state string, local, remote net.Addr) {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.stateLocked(), id.local, id.remote
}

// stateLocked names the state of the ID. The caller holds id.mu.
func (id *ID) stateLocked() string {
	ended := false
	select {
	case <-id.done:
		ended = true
	default:
	}
	switch {
	case id.closing:
		return "closed"
	case ended:
		return "ended"
	case id.qp != nil:
		return "established"
	case id.used:
		return "connecting"
	}
	return "idle"
}

func (l *Listener) facts() show.Facts {
	if l == nil || l.node.Stage() == "" {
		return show.None("Listener")
	}
	names := make([]string, len(l.devices))
	for i, d := range l.devices {
		names[i] = d.Name()
	}
	return show.Of("Listener", slog.Any("devices", names), slog.String("state", l.node.Stage()),
		show.Addr("local", l.addr))
}

func (r *Request) facts() show.Facts {
	if r == nil || r.p == nil {
		return show.None("Request")
	}
	state := "waiting"
	if r.answered.Load() {
		state = "answered"
	}
	return show.Of("Request", slog.String("device", r.vctx.Device().Name()), slog.String("state", state),
		show.Addr("local", r.local), show.Addr("remote", r.remote))
}

func (m *Multicast) facts() show.Facts {
	if m == nil || m.id == nil {
		return show.None("Multicast")
	}
	state := "member"
	if m.left.Load() {
		state = "left"
	}
	return show.Of("Multicast", slog.String("device", m.id.vctx.Device().Name()), slog.String("state", state),
		show.Text("group", m.group), slog.Uint64("qp_num", uint64(m.qp.Num())), show.Hex("mlid", m.AH.DLID))
}

func (d Datagram) facts() show.Facts {
	return show.Of("Datagram", slog.Uint64("qp_num", uint64(d.QPN)), show.Hex("qkey", d.QKey),
		slog.Int("port_num", int(d.AH.PortNum)), show.Text("dgid", d.AH.GRH.DGID),
		slog.Int("sgid_index", int(d.AH.GRH.SGIDIndex)), slog.Int("dlid", int(d.AH.DLID)))
}

func (cfg Config) facts() show.Facts {
	device := cfg.Device.Name()
	switch {
	case cfg.isAuto():
		device = "auto"
	case cfg.Device == nil:
		device = cfg.Context.Device().Name()
	}
	source := ""
	if cfg.Source.IsValid() {
		source = cfg.Source.String()
	}
	return show.Of("Config", slog.String("device", device), slog.Bool("own_context", cfg.Context != nil),
		slog.String("source", source), show.Text("port_space", cfg.PortSpace), slog.Int("tos", int(cfg.TOS)),
		slog.Int("ack_timeout", int(cfg.AckTimeout)), slog.Bool("reuse_addr", cfg.ReuseAddr),
		slog.Bool("af_only", cfg.AFOnly), slog.Int("backlog", cfg.Backlog))
}

func (p ConnParam) facts() show.Facts {
	return show.Of("ConnParam", slog.Int("private_data_len", len(p.PrivateData)),
		slog.Int("initiator_depth", p.InitiatorDepth), slog.Int("responder_resources", p.ResponderResources),
		slog.Int("retry_count", p.RetryCount), slog.Int("rnr_retry_count", p.RNRRetryCount),
		slog.Int("min_rnr_timer", int(p.MinRNRTimer)))
}

// shownEndpoint is the printable state of an endpoint. It is replaced as a whole, because Prepare
// gets the endpoint before it has an ID.
type shownEndpoint struct {
	id       *ID // nil until connected
	qp       *verbs.QP
	memory   int // bytes of its region
	size     int // of messages
	messages int // of Recv
}

// show records the printable state of the endpoint.
func (e *Endpoint) show() {
	memory := 0
	if e.mr != nil {
		memory = e.mr.Len()
	}
	e.shown.Store(&shownEndpoint{e.id, e.qp, memory, e.recvBufs.size, len(e.recvBufs.sges)})
}

func (e *Endpoint) facts() show.Facts {
	if e == nil || e.shown.Load() == nil {
		return show.None("Endpoint")
	}
	at := e.shown.Load()
	state, local, remote := "preparing", net.Addr(nil), net.Addr(nil)
	if at.id != nil {
		state, local, remote = at.id.known()
	}
	if e.node.Stage() == "closed" {
		state = "closed"
	}
	return show.Of("Endpoint", slog.String("device", at.qp.Context().Device().Name()), slog.String("state", state),
		show.Addr("local", local), show.Addr("remote", remote), slog.Uint64("qp_num", uint64(at.qp.Num())),
		slog.Int("memory", at.memory), slog.Int("message_size", at.size), slog.Int("messages", at.messages))
}

func (cfg EndpointConfig) facts() show.Facts {
	return show.Of("EndpointConfig", slog.Any("param", cfg.Param.LogValue()), slog.Bool("own_pd", cfg.PD == nil),
		slog.Bool("own_cq", cfg.Dispatcher == nil), slog.Bool("own_qp", cfg.QP == nil),
		slog.Bool("own_mr", cfg.MR == nil), slog.Bool("srq", cfg.SRQ != nil),
		slog.String("cap", fmt.Sprintf("%+v", cfg.Cap)), slog.String("send_ops", cfg.SendOps.String()),
		slog.Int("memory", cfg.Memory), show.Text("access", cfg.Access), slog.Int("message_size", cfg.MessageSize),
		slog.Int("messages", cfg.Messages), slog.Bool("offer", cfg.Offer), slog.Bool("shutdown_both", cfg.ShutdownBoth),
		slog.Bool("no_credits", cfg.NoCredits), slog.Bool("prepare", cfg.Prepare != nil))
}

// Format implements fmt.Formatter: the text of String, with every verb.
func (id *ID) Format(s fmt.State, verb rune) { id.facts().Format(s, verb) }

// String shows the ID in one line.
func (id *ID) String() string { return id.facts().String() }

// LogValue implements slog.LogValuer.
func (id *ID) LogValue() slog.Value { return id.facts().LogValue() }

// MarshalJSON implements json.Marshaler.
func (id *ID) MarshalJSON() ([]byte, error) { return id.facts().MarshalJSON() }

// Format implements fmt.Formatter: the text of String, with every verb.
func (l *Listener) Format(s fmt.State, verb rune) { l.facts().Format(s, verb) }

// String shows the Listener in one line.
func (l *Listener) String() string { return l.facts().String() }

// LogValue implements slog.LogValuer.
func (l *Listener) LogValue() slog.Value { return l.facts().LogValue() }

// MarshalJSON implements json.Marshaler.
func (l *Listener) MarshalJSON() ([]byte, error) { return l.facts().MarshalJSON() }

// Format implements fmt.Formatter: the text of String, with every verb.
func (r *Request) Format(s fmt.State, verb rune) { r.facts().Format(s, verb) }

// String shows the Request in one line.
func (r *Request) String() string { return r.facts().String() }

// LogValue implements slog.LogValuer.
func (r *Request) LogValue() slog.Value { return r.facts().LogValue() }

// MarshalJSON implements json.Marshaler.
func (r *Request) MarshalJSON() ([]byte, error) { return r.facts().MarshalJSON() }

// Format implements fmt.Formatter: the text of String, with every verb.
func (m *Multicast) Format(s fmt.State, verb rune) { m.facts().Format(s, verb) }

// String shows the Multicast in one line.
func (m *Multicast) String() string { return m.facts().String() }

// LogValue implements slog.LogValuer.
func (m *Multicast) LogValue() slog.Value { return m.facts().LogValue() }

// MarshalJSON implements json.Marshaler.
func (m *Multicast) MarshalJSON() ([]byte, error) { return m.facts().MarshalJSON() }

// Format implements fmt.Formatter: the text of String, with every verb.
func (d Datagram) Format(s fmt.State, verb rune) { d.facts().Format(s, verb) }

// String shows the Datagram in one line.
func (d Datagram) String() string { return d.facts().String() }

// LogValue implements slog.LogValuer.
func (d Datagram) LogValue() slog.Value { return d.facts().LogValue() }

// MarshalJSON implements json.Marshaler.
func (d Datagram) MarshalJSON() ([]byte, error) { return d.facts().MarshalJSON() }

// Format implements fmt.Formatter: the text of String, with every verb.
func (cfg Config) Format(s fmt.State, verb rune) { cfg.facts().Format(s, verb) }

// String shows the Config in one line.
func (cfg Config) String() string { return cfg.facts().String() }

// LogValue implements slog.LogValuer.
func (cfg Config) LogValue() slog.Value { return cfg.facts().LogValue() }

// MarshalJSON implements json.Marshaler.
func (cfg Config) MarshalJSON() ([]byte, error) { return cfg.facts().MarshalJSON() }

// Format implements fmt.Formatter: the text of String, with every verb.
func (p ConnParam) Format(s fmt.State, verb rune) { p.facts().Format(s, verb) }

// String shows the ConnParam in one line.
func (p ConnParam) String() string { return p.facts().String() }

// LogValue implements slog.LogValuer.
func (p ConnParam) LogValue() slog.Value { return p.facts().LogValue() }

// MarshalJSON implements json.Marshaler.
func (p ConnParam) MarshalJSON() ([]byte, error) { return p.facts().MarshalJSON() }

// Format implements fmt.Formatter: the text of Error, with every verb.
func (e *RejectedError) Format(s fmt.State, verb rune) { show.Error{Err: e}.Format(s, verb) }

// LogValue implements slog.LogValuer.
func (e *RejectedError) LogValue() slog.Value { return show.Error{Err: e}.LogValue() }

// MarshalJSON implements json.Marshaler.
func (e *RejectedError) MarshalJSON() ([]byte, error) { return show.Error{Err: e}.MarshalJSON() }

// Format implements fmt.Formatter: the text of Error, with every verb.
func (e *OpError) Format(s fmt.State, verb rune) { show.Error{Err: e}.Format(s, verb) }

// LogValue implements slog.LogValuer.
func (e *OpError) LogValue() slog.Value { return show.Error{Err: e}.LogValue() }

// MarshalJSON implements json.Marshaler.
func (e *OpError) MarshalJSON() ([]byte, error) { return show.Error{Err: e}.MarshalJSON() }

// Format implements fmt.Formatter: the text of Error, with every verb.
func (e *EventError) Format(s fmt.State, verb rune) { show.Error{Err: e}.Format(s, verb) }

// LogValue implements slog.LogValuer.
func (e *EventError) LogValue() slog.Value { return show.Error{Err: e}.LogValue() }

// MarshalJSON implements json.Marshaler.
func (e *EventError) MarshalJSON() ([]byte, error) { return show.Error{Err: e}.MarshalJSON() }

// Format implements fmt.Formatter: the text of String, with every verb.
func (e *Endpoint) Format(s fmt.State, verb rune) { e.facts().Format(s, verb) }

// String shows the Endpoint in one line.
func (e *Endpoint) String() string { return e.facts().String() }

// LogValue implements slog.LogValuer.
func (e *Endpoint) LogValue() slog.Value { return e.facts().LogValue() }

// MarshalJSON implements json.Marshaler.
func (e *Endpoint) MarshalJSON() ([]byte, error) { return e.facts().MarshalJSON() }

// Format implements fmt.Formatter: the text of String, with every verb.
func (cfg EndpointConfig) Format(s fmt.State, verb rune) { cfg.facts().Format(s, verb) }

// String shows the EndpointConfig in one line.
func (cfg EndpointConfig) String() string { return cfg.facts().String() }

// LogValue implements slog.LogValuer.
func (cfg EndpointConfig) LogValue() slog.Value { return cfg.facts().LogValue() }

// MarshalJSON implements json.Marshaler.
func (cfg EndpointConfig) MarshalJSON() ([]byte, error) { return cfg.facts().MarshalJSON() }

// Format implements fmt.Formatter: the text of Error, with every verb.
func (p *PendingError) Format(s fmt.State, verb rune) { show.Error{Err: p}.Format(s, verb) }

// LogValue implements slog.LogValuer.
func (p *PendingError) LogValue() slog.Value { return show.Error{Err: p}.LogValue() }

// MarshalJSON implements json.Marshaler.
func (p *PendingError) MarshalJSON() ([]byte, error) { return show.Error{Err: p}.MarshalJSON() }
