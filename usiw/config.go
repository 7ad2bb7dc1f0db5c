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

// Policy says whether a NIC uses an option of the protocol.
type Policy uint8

const (
	Default Policy = iota // the default that the field's comment gives
	On
	Off
	Auto // depends on the peer's Request; only for fields whose comment allows it
)

// String returns "default", "on", "off" or "auto".
func (p Policy) String() string {
	if p > Auto {
		return fmt.Sprintf("Policy(%d)", uint8(p))
	}
	return [...]string{"default", "on", "off", "auto"}[p]
}

// RTRMessages is a set of messages that can open a peer-to-peer connection.
type RTRMessages uint8

const (
	RTRWrite RTRMessages = 1 << iota // an RDMA Write of length 0
	RTRRead                          // an RDMA Read of length 0; it needs a depth of at least 1
	RTRSend                          // a Send of length 0; it consumes a receive of the passive side
)

// Network makes the byte streams that a NIC runs on. The host's TCP is used where none is
// configured.
type Network interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
	Listen(ctx context.Context, network, address string) (net.Listener, error)
}

// Config describes a NIC. The zero value gives a NIC with all defaults. For a value out of range
// New returns an error; it never replaces the value silently.
type Config struct {
	// Name is the device's name (default: the first free one of usiw0, usiw1, ...). The device's
	// GUID is a hash of the name and of the host's machine-id(5), which it does not reveal; so it
	// is the same in every process and every run. Hosts that share a machine-id share it. On Linux
	// without a machine-id, as in most containers, it is made of the boot's ID and the host name;
	// elsewhere it is random.
	Name string
	// Addr is the local address of connections and listeners (zero: the route chooses that of a
	// connection, and listeners listen on all addresses).
	Addr netip.Addr
	// Network replaces the host's TCP (nil = the host's).
	Network Network
	// MTU is the largest FPDU in bytes, 156 to 65,536 (default 65,536). TCP's maximum segment size
	// limits it further.
	MTU int
	// CRC says when to ask for CRC32C (RFC 5044 section 4.4). A connection uses it if either side
	// asks. With Auto (the default) the active side does not ask, and the passive side asks if the
	// peer's Request wants a peer-to-peer connection. So two NICs of this package use CRC32C,
	// unless RTR is Off or Rev is 1. Linux's siw is not asked, because CRC32C breaks its
	// connections over a network (docs/interop.md). On always asks, which the RFC requires unless
	// an administrator disables it; Off never asks.
	CRC Policy
	// Rev is the MPA revision of outgoing connections. 2 (the default, RFC 6581) negotiates the
	// depths and lets either side send first; 1 (RFC 5044) does neither.
	Rev int
	// RTR: On (the default) makes outgoing connections of revision 2 peer-to-peer: a message
	// without data opens them, so that either side may send first (RFC 6581 section 5). Off leaves
	// the first message to the active side, as plain iWARP does.
	RTR Policy
	// RTRMessages are the messages that may open such a connection (0 = as active side RTRWrite, as
	// passive side all).
	RTRMessages RTRMessages
	// Markers: On asks the peers to send MPA markers (RFC 5044 section 4.3); Off is the default.
	// This NIC sends markers to every peer that asks for them. They cost a copy on both sides and
	// are of no use over TCP sockets.
	Markers Policy

	// Limits of the device, with the default in parentheses.
	MaxQP  int // queue pairs (65,536)
	MaxSRQ int // shared receive queues (65,536)
	MaxCQ  int // completion queues (65,536)
	MaxCQE int // entries of a completion queue (4,194,304)
	MaxMR  int // memory regions (1,048,576; at most 2^23)
	MaxPD  int // protection domains (65,536)
	MaxMW  int // memory windows (1,048,576; at most 2^23)
	// Reads and atomics in progress in each direction (128; at most 16,382); cm.ConnParam sets
	// those of a connection
	MaxIRD int

	// MaxSilent is how many streams from one address a listener keeps for more than a second while
	// their MPA Request has not arrived (64; at most 1,024). When further ones come, it closes the
	// oldest. From all addresses together a listener keeps at most 1,024, where the address with
	// the most loses its oldest, and as many from loopback addresses, of which one may have them
	// all.
	MaxSilent int

	// MaxStalled limits the memory, in bytes, that the NIC holds for peers that have stopped
	// half-way (67,108,864 = 64 MiB; 4 MiB to 1 GiB). Two things count: data prepared for a peer
	// that does not read, such as answers to its Reads; and incomplete FPDUs, except for 512 bytes
	// of each connection and 64 receive buffers of 256 KiB. While more than half is in use, the NIC
	// prepares data in small portions, so many slow peers get slower. If the limit would be
	// exceeded, the connection whose data have been held longest ends at once, without a Terminate.
	// Its error is a *verbs.LimitError named "Config.MaxStalled". Buffers of the operating system
	// do not count.
	MaxStalled int

	// GuardMemory is for memory of regions that may go away while it is registered: C memory that
	// is freed, or a mapped file that becomes shorter. If an access to such memory faults, the
	// region ends: this request fails, and every other one with the key, as if the region had been
	// closed, which is still to be done. Without GuardMemory (the default) the fault ends the
	// process, as it does when the program itself uses the memory. It costs some 10 ns for each
	// access, and has no effect if C code of the process has replaced the Go runtime's handlers of
	// SIGSEGV and SIGBUS.
	GuardMemory bool

	// CloseTimeout bounds the orderly end of a connection: Terminate, FIN, the peer's FIN (3 s).
	CloseTimeout time.Duration
	// PeerTimeout ends a connection whose peer acknowledges nothing, or keeps its window closed,
	// for this time (20 s).
	PeerTimeout time.Duration
	// IdleTimeout ends a connection on which no byte has moved in either direction for this time (0
	// = never). Without it, a connection does not end because the peer owes a response and is
	// silent.
	IdleTimeout time.Duration
	// SetupTimeout bounds the exchange of MPA frames (10 s on the active side, 5 s on the passive
	// side).
	SetupTimeout time.Duration
	// HoldTimeout is how long the passive side of a connection that is not peer-to-peer waits for
	// the peer's first message before it sends (100 ms). The time starts when the Reply has
	// arrived. RFC 5044 section 7.1.2 sets no limit.
	HoldTimeout time.Duration
	// DeregTimeout is how long a deregistration waits for operations in progress before it ends
	// their connections (3 s). Only what is sent without CRC can be in progress for long: with CRC
	// it is copied.
	DeregTimeout time.Duration

	// Spin is how long CQ.Wait polls before it sleeps, at most 50 us (0 = it sleeps at once).
	// Polling shortens the wait for an answer that comes soon, but keeps a processor busy. Use it
	// for one or two goroutines of a process that has free processors.
	Spin time.Duration

	// Tap sees what connections send and receive (nil = none).
	Tap Tap

	// Without switches operations off, for example to get an RNIC without RFC 7306. Posting such an
	// operation fails, and a peer that sends its message gets a Terminate for an unknown opcode.
	// Only the operations of RFC 7306 and those of memory windows (OpSendInv, OpLocalInv, OpBindMW)
	// may be named. An RNIC has all four atomics or none (RFC 7306 section 5). OpImm64 and
	// OpWriteImm use the same message, so they must be named together too.
	Without verbs.OpSet

	// Hooks is for package usiwtest.
	Hooks testhook.Hooks
}

// Implementation constants: the bounds of a Config.
const (
	minMTU = mpa.MinMULPDU + 28
	maxMTU = 65536
	maxIRD = mpa.NoNegotiate - 1
	// maxKeys is the number of regions or windows that random 24-bit indices can name without long
	// searches for a free one.
	maxKeys = 1 << 23

	maxSpin = 50 * time.Microsecond

	maxMRSize     = 1 << 46
	maxQPWR       = 32768
	maxSGE        = 16
	maxSGERd      = 1
	maxInlineData = 1024
)

// switchable are the operations that Config.Without may name.
var switchable = verbs.MakeOpSet(verbs.OpSendInv, verbs.OpWriteImm, verbs.OpFetchAdd, verbs.OpCmpSwap,
	verbs.OpMaskedFetchAdd, verbs.OpMaskedCmpSwap, verbs.OpImm64, verbs.OpLocalInv, verbs.OpBindMW)

// together are sets of operations; Config.Without names all of a set or none.
var together = []verbs.OpSet{
	verbs.MakeOpSet(verbs.OpFetchAdd, verbs.OpCmpSwap, verbs.OpMaskedFetchAdd, verbs.OpMaskedCmpSwap),
	verbs.MakeOpSet(verbs.OpImm64, verbs.OpWriteImm),
}

// fill checks cfg and returns it with the defaults filled in.
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
		cfg.Spin = 0 // no other goroutine could run meanwhile
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

// setupTimeout returns the bound of the exchange of MPA frames for one side.
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
