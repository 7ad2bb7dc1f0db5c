// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/goverbs/goverbs/internal/show"
)

// A NIC can be printed at any time. Config and Packet print neither the program's own objects nor
// the data sent; package internal/show states the rules for the facts methods.

func (n *NIC) facts() show.Facts {
	if n == nil || n.dev == nil {
		return show.None("NIC")
	}
	state := "open"
	if n.dev.guard.Closed() {
		state = "closed"
	}
	addr := ""
	if n.dev.cfg.Addr.IsValid() {
		addr = n.dev.cfg.Addr.String()
	}
	return show.Of("NIC", slog.String("device", n.dev.cfg.Name), slog.String("state", state),
		show.Text("node_guid", n.dev.guid), slog.Bool("registered", n.registered), slog.String("addr", addr))
}

func (cfg Config) facts() show.Facts {
	f := show.Of("Config", slog.String("name", cfg.Name))
	if cfg.Addr != (netip.Addr{}) {
		f = f.And(show.Text("addr", cfg.Addr))
	}
	for _, v := range []struct {
		name string
		on   bool
	}{{"network", cfg.Network != nil}, {"tap", cfg.Tap != nil}, {"hooks", cfg.Hooks.Build != nil},
		{"guard_memory", cfg.GuardMemory}} {
		if v.on {
			f = f.And(slog.Bool(v.name, true))
		}
	}
	for _, v := range []struct {
		name string
		v    Policy
	}{{"crc", cfg.CRC}, {"rtr", cfg.RTR}, {"markers", cfg.Markers}} {
		if v.v != Default {
			f = f.And(show.Text(v.name, v.v))
		}
	}
	for _, v := range []struct {
		name string
		v    int
	}{
		{"mtu", cfg.MTU}, {"rev", cfg.Rev}, {"rtr_messages", int(cfg.RTRMessages)}, {"max_qp", cfg.MaxQP},
		{"max_srq", cfg.MaxSRQ},
		{"max_cq", cfg.MaxCQ}, {"max_cqe", cfg.MaxCQE}, {"max_mr", cfg.MaxMR}, {"max_pd", cfg.MaxPD},
		{"max_mw", cfg.MaxMW},
		{"max_ird", cfg.MaxIRD}, {"max_silent", cfg.MaxSilent}, {"max_stalled", cfg.MaxStalled},
	} {
		if v.v != 0 {
			f = f.And(slog.Int(v.name, v.v))
		}
	}
	for _, v := range []struct {
		name string
		v    time.Duration
	}{
		{"close_timeout", cfg.CloseTimeout}, {"peer_timeout", cfg.PeerTimeout}, {"idle_timeout", cfg.IdleTimeout},
		{"setup_timeout", cfg.SetupTimeout}, {"hold_timeout", cfg.HoldTimeout}, {"dereg_timeout", cfg.DeregTimeout},
		{"spin", cfg.Spin},
	} {
		if v.v != 0 {
			f = f.And(show.Text(v.name, v.v))
		}
	}
	if cfg.Without != 0 {
		f = f.And(show.Text("without", cfg.Without))
	}
	return f
}

func (p Packet) facts() show.Facts {
	n := 0
	for _, b := range p.Data {
		n += len(b)
	}
	return show.Of("Packet", slog.Time("time", p.Time), show.Addr("local", p.Local), show.Addr("remote", p.Remote),
		slog.Bool("out", p.Out), slog.Int("bytes", n))
}

// Format implements fmt.Formatter: the text of String, with every verb.
func (n *NIC) Format(s fmt.State, verb rune) { n.facts().Format(s, verb) }

// String describes the NIC in one line.
func (n *NIC) String() string { return n.facts().String() }

// LogValue implements slog.LogValuer.
func (n *NIC) LogValue() slog.Value { return n.facts().LogValue() }

// MarshalJSON implements json.Marshaler.
func (n *NIC) MarshalJSON() ([]byte, error) { return n.facts().MarshalJSON() }

// Format implements fmt.Formatter: the text of String, with every verb.
func (cfg Config) Format(s fmt.State, verb rune) { cfg.facts().Format(s, verb) }

// String lists the fields that are set, in one line.
func (cfg Config) String() string { return cfg.facts().String() }

// LogValue implements slog.LogValuer.
func (cfg Config) LogValue() slog.Value { return cfg.facts().LogValue() }

// MarshalJSON implements json.Marshaler.
func (cfg Config) MarshalJSON() ([]byte, error) { return cfg.facts().MarshalJSON() }

// Format implements fmt.Formatter: the text of String, with every verb.
func (p Packet) Format(s fmt.State, verb rune) { p.facts().Format(s, verb) }

// String describes the Packet in one line.
func (p Packet) String() string { return p.facts().String() }

// LogValue implements slog.LogValuer.
func (p Packet) LogValue() slog.Value { return p.facts().LogValue() }

// MarshalJSON implements json.Marshaler.
func (p Packet) MarshalJSON() ([]byte, error) { return p.facts().MarshalJSON() }
