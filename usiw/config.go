// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"time"

	"github.com/goverbs/goverbs/internal/iwarp/mpa"
	"github.com/goverbs/goverbs/usiw/internal/testhook"
	"github.com/goverbs/goverbs/verbs"
)

// Policy selects whether a NIC uses an option of the protocol.
type Policy uint8

const (
	Default Policy = iota // the default stated in the field's comment
	On
	Off
	Auto // decided by the peer's Request; only for fields whose comment allows it
)

// String returns "default", "on", "off" or "auto".
func (p Policy) String() string {
	if p > Auto {
		return fmt.Sprintf("Policy(%d)", uint8(p))
	}
	return [...]string{"default", "on", "off", "auto"}[p]
}

// RTRMessages is a set of the messages that can open a peer-to-peer connection.
type RTRMessages uint8

const (
	RTRWrite RTRMessages = 1 << iota // an RDMA Write of length 0
	RTRRead                          // an RDMA Read of length 0; requires a depth of at least 1
	RTRSend                          // a Send of length 0; consumes a receive on the passive side
)

// Network provides the byte streams that a NIC runs over. The default is the host's TCP.
type Network interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
	Listen(ctx context.Context, network, address string) (net.Listener, error)
}

// Config configures a NIC. The zero value selects every default. New rejects a value out of range;
// it never adjusts one silently.
type Config struct {
	// Name is the device's name (default: the first free one of usiw0, usiw1, ...). The device's
	// GUID is a hash of the name and the host's machine-id(5), which it does not reveal, so it is
	// the same in every process and every run. Hosts with the same machine-id have the same GUIDs.
	// On Linux hosts without a machine-id, such as most containers, the hash uses the boot ID and
	// the host name; on other systems the GUID is random.
	Name string
	// Addr is the local address of connections and listeners. If it is zero, the route selects the
	// address of a connection, and listeners listen on all addresses.
	Addr netip.Addr
	// Network replaces the host's TCP (nil = the host's TCP).
	Network Network
	// MTU is the largest FPDU in bytes, 156 to 65,536 (default 65,536). TCP's maximum segment size
	// limits FPDUs further.
	MTU int
	// CRC selects when to ask for CRC32C (RFC 5044 section 4.4). A connection uses it if either
	// side asks. With Auto (the default) the active side does not ask, and the passive side asks if
	// the peer's Request wants a peer-to-peer connection. Two NICs of this package therefore use
	// CRC32C unless RTR is Off or Rev is 1. Linux siw is not asked, because CRC32C breaks its
	// connections over a network (docs/interop.md). On always asks, as the RFC requires unless an
	// administrator disables CRCs; Off never asks.
	CRC Policy
	// Rev is the MPA revision of outgoing connections. Revision 2 (the default, RFC 6581)
	// negotiates the depths and lets either side send first; revision 1 (RFC 5044) does neither.
	Rev int
	// RTR selects whether outgoing connections of revision 2 are peer-to-peer. With On (the
	// default) a message without data opens the connection, after which either side may send first
	// (RFC 6581 section 5). With Off the active side sends the first message, as in plain iWARP.
	RTR Policy
	// RTRMessages are the messages that may open a peer-to-peer connection (0 = RTRWrite on the
	// active side, all of them on the passive side).
	RTRMessages RTRMessages
	// Markers selects whether to ask peers for MPA markers (RFC 5044 section 4.3); the default is
	// Off. The NIC sends markers to every peer that asks for them. They cost a copy on both sides
	// and serve no purpose over TCP sockets.
	Markers Policy

	// Device limits, with the defaults in parentheses.
	MaxQP  int // queue pairs (65,536)
	MaxSRQ int // shared receive queues (65,536)
	MaxCQ  int // completion queues (65,536)
	MaxCQE int // entries of a completion queue (4,194,304)
	MaxMR  int // memory regions (1,048,576; at most 2^23)
	MaxPD  int // protection domains (65,536)
	MaxMW  int // memory windows (1,048,576; at most 2^23)
	// Reads and atomics in progress in each direction (128; at most 16,382); cm.ConnParam sets the
	// depths of a connection
	MaxIRD int

	// MaxSilent limits how many streams from one address a listener keeps for more than a second
	// before their MPA Request arrives (64; at most 1,024). When more arrive, it closes the oldest.
	// In total, a listener keeps at most 1,024 streams without a Request; beyond that it closes the
	// oldest one from the address with the most. It keeps another 1,024 from loopback addresses,
	// all of which may come from one address.
	MaxSilent int

	// MaxStalled limits the memory, in bytes, that the NIC holds for stalled peers (67,108,864 =
	// 64 MiB; 4 MiB to 1 GiB). It covers data prepared for a peer that does not read, such as
	// answers to its Reads, and incomplete FPDUs, except for 512 bytes per connection and 64
	// receive buffers of 256 KiB. While more than half is in use, the NIC prepares data in small
	// portions, which makes slow peers slower still. If the limit would be exceeded, the connection
	// whose data have been held longest ends at once, without a Terminate. Its error is a
	// *verbs.LimitError named "Config.MaxStalled". Buffers of the operating system do not count.
	MaxStalled int

	// GuardMemory protects the process from registered memory that disappears: C memory that is
	// freed, or a mapped file that is truncated. If an access to such memory faults, the region is
	// invalidated: this request fails, and so does every other request that uses the key, as if the
	// region had been closed. The program must still close the region. Without GuardMemory (the
	// default) the fault ends the process, as it does when the program itself accesses the memory.
	// The guard costs some 10 ns per access, and has no effect if C code in the process has
	// replaced the Go runtime's handlers of SIGSEGV and SIGBUS.
	GuardMemory bool

	// CloseTimeout bounds the orderly shutdown of a connection, from the Terminate and FIN to the
	// peer's FIN (3 s).
	CloseTimeout time.Duration
	// PeerTimeout is how long a peer may acknowledge nothing, or keep its window closed, before the
	// connection ends (20 s).
	PeerTimeout time.Duration
	// IdleTimeout is how long a connection may go without a byte in either direction before it ends
	// (0 = no limit). Without it, a connection stays open even if the peer owes a response and is
	// silent.
	IdleTimeout time.Duration
	// SetupTimeout bounds the exchange of MPA frames (10 s on the active side, 5 s on the passive
	// side).
	SetupTimeout time.Duration
	// HoldTimeout is how long the passive side of a connection that is not peer-to-peer waits for
	// the peer's first message before it sends (100 ms). The time starts when the peer has received
	// the Reply. RFC 5044 section 7.1.2 sets no limit.
	HoldTimeout time.Duration
	// DeregTimeout is how long a deregistration waits for operations in progress before it ends
	// their connections (3 s). Only data sent without CRC can stay in progress that long: with CRC
	// they are copied.
	DeregTimeout time.Duration

	// Spin is how long CQ.Wait polls before it sleeps, at most 50 us (0 = it sleeps at once).
	// Polling shortens the wait for an answer that arrives soon, but keeps a processor busy. Use it
	// for one or two goroutines in a process with idle processors.
	Spin time.Duration

	// Tap observes what connections send and receive (nil = none).
	Tap Tap

	// Without disables operations, for example to emulate an RNIC that lacks RFC 7306. Posting a
	// disabled operation fails, and a peer that sends its message receives a Terminate for an
	// unexpected opcode. Only the operations of RFC 7306 and those of memory windows (OpSendInv,
	// OpLocalInv, OpBindMW) can be disabled. The four atomics can only be disabled together
	// (RFC 7306 section 5), and so can OpImm64 and OpWriteImm, which use the same message.
	Without verbs.OpSet

	// Hooks are for use by package usiwtest.
	Hooks testhook.Hooks
}

// Bounds of a Config.
const (
	minMTU = mpa.MinMULPDU + 28
	maxMTU = 65536
	maxIRD = mpa.NoNegotiate - 1
	// maxKeys is how many regions or windows random 24-bit indices can name without long searches
	// for a free index.
	maxKeys = 1 << 23

	maxSpin = 50 * time.Microsecond

	maxMRSize     = 1 << 46
	maxQPWR       = 32768
	maxSGE        = 16
	maxSGERd      = 1
	maxInlineData = 1024
)

// switchable are the operations that Config.Without may disable.
var switchable = verbs.MakeOpSet(verbs.OpSendInv, verbs.OpWriteImm, verbs.OpFetchAdd, verbs.OpCmpSwap,
	verbs.OpMaskedFetchAdd, verbs.OpMaskedCmpSwap, verbs.OpImm64, verbs.OpLocalInv, verbs.OpBindMW)

// together are sets of operations that Config.Without disables as a whole or not at all.
var together = []verbs.OpSet{
	verbs.MakeOpSet(verbs.OpFetchAdd, verbs.OpCmpSwap, verbs.OpMaskedFetchAdd, verbs.OpMaskedCmpSwap),
	verbs.MakeOpSet(verbs.OpImm64, verbs.OpWriteImm),
}

// fill validates cfg and returns it with the defaults filled in.
func (cfg Config) fill() (Config, error) {
	bad := func(field string, v any, want string) error {
		return fmt.Errorf("usiw: Config.%s: %v is not %s: %w", field, v, want, verbs.ErrInvalid)
	}
	for _, f := range []struct {
		name           string
		v              *int
		fill, low, top int
	}{
		{"MTU", &cfg.MTU, maxMTU, minMTU, maxMTU},
		{"Rev", &cfg.Rev, mpa.Rev2, mpa.Rev1, mpa.Rev2},
		{"MaxQP", &cfg.MaxQP, 1 << 16, 1, 1 << 22},
		{"MaxSRQ", &cfg.MaxSRQ, 1 << 16, 1, 1 << 22},
		{"MaxCQ", &cfg.MaxCQ, 1 << 16, 1, 1 << 22},
		{"MaxCQE", &cfg.MaxCQE, 1 << 22, 1, 1 << 26},
		{"MaxMR", &cfg.MaxMR, 1 << 20, 1, maxKeys},
		{"MaxPD", &cfg.MaxPD, 1 << 16, 1, 1 << 22},
		{"MaxMW", &cfg.MaxMW, 1 << 20, 1, maxKeys},
		{"MaxIRD", &cfg.MaxIRD, 128, 1, maxIRD},
		{"MaxSilent", &cfg.MaxSilent, 64, 1, maxSilent},
		{"MaxStalled", &cfg.MaxStalled, 64 << 20, 4 << 20, 1 << 30},
	} {
		if *f.v == 0 {
			*f.v = f.fill
		}
		if *f.v < f.low || *f.v > f.top {
			return cfg, bad(f.name, *f.v, fmt.Sprintf("from %d to %d", f.low, f.top))
		}
	}
	for _, f := range []struct {
		name string
		v    *time.Duration
		fill time.Duration
	}{
		{"CloseTimeout", &cfg.CloseTimeout, 3 * time.Second},
		{"PeerTimeout", &cfg.PeerTimeout, 20 * time.Second},
		{"IdleTimeout", &cfg.IdleTimeout, 0},
		{"SetupTimeout", &cfg.SetupTimeout, 0},
		{"HoldTimeout", &cfg.HoldTimeout, 100 * time.Millisecond},
		{"DeregTimeout", &cfg.DeregTimeout, 3 * time.Second},
	} {
		if *f.v == 0 {
			*f.v = f.fill
		}
		if *f.v < 0 {
			return cfg, bad(f.name, *f.v, "positive")
		}
	}
	if cfg.Spin < 0 || cfg.Spin > maxSpin {
		return cfg, bad("Spin", cfg.Spin, "from 0 to "+maxSpin.String())
	}
	if runtime.GOMAXPROCS(0) == 1 {
		cfg.Spin = 0 // polling would keep every other goroutine from running
	}
	if cfg.CRC > Auto {
		return cfg, bad("CRC", cfg.CRC, "Default, On, Off or Auto")
	}
	for _, f := range []struct {
		name string
		v    Policy
	}{{"RTR", cfg.RTR}, {"Markers", cfg.Markers}} {
		if f.v > Off {
			return cfg, bad(f.name, f.v, "Default, On or Off")
		}
	}
	if cfg.CRC == Default {
		cfg.CRC = Auto
	}
	if cfg.RTR == Default {
		cfg.RTR = On
	}
	if cfg.RTRMessages > RTRWrite|RTRRead|RTRSend {
		return cfg, bad("RTRMessages", cfg.RTRMessages, "a set of RTRWrite, RTRRead and RTRSend")
	}
	if extra := cfg.Without &^ switchable; extra != 0 {
		return cfg, bad("Without", extra, "a set of "+switchable.String())
	}
	for _, set := range together {
		if some := cfg.Without & set; some != 0 && some != set {
			return cfg, bad("Without", some, "all of "+set.String()+" or none")
		}
	}
	if cfg.Network == nil {
		cfg.Network = hostNetwork{}
	}
	return cfg, nil
}

// setupTimeout returns the limit on the exchange of MPA frames for one side.
func (cfg *Config) setupTimeout(active bool) time.Duration {
	switch {
	case cfg.SetupTimeout != 0:
		return cfg.SetupTimeout
	case active:
		return 10 * time.Second
	}
	return 5 * time.Second
}

// hostNetwork is the host's TCP.
type hostNetwork struct{}

func (hostNetwork) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	d.KeepAlive = -1
	return d.DialContext(ctx, network, address)
}

func (hostNetwork) Listen(ctx context.Context, network, address string) (net.Listener, error) {
	var lc net.ListenConfig
	lc.KeepAlive = -1
	return lc.Listen(ctx, network, address)
}
