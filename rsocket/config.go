// SPDX-License-Identifier: BSD-3-Clause

package rsocket

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/verbs"
)

// None disables Config.Inline or Config.KeepAlive.
const None = cm.None

// Defaults for Config. The sizes of buffers, queues and inline data are those of librdmacm.
// DefaultGrowing is the exception: it applies to buffers on the user-space RNIC, where a connection
// occupies only the memory it has used.
const (
	DefaultBuffer    = 131072
	DefaultGrowing   = 1 << 20
	DefaultQueue     = 384
	DefaultInline    = 64
	DefaultKeepAlive = 15 * time.Second
)

// Limits for Config.
const (
	minBuffer = 4096
	maxBuffer = 1 << 30
	minQueue  = 16
	maxQueue  = 65000

	maxMappings = 128
)

// Config configures dialled and accepted connections. The zero value of every field selects its
// default.
type Config struct {
	// Device is the device to use. Without a Device or Context, the address decides, as in
	// cm.Config. The ib:NAME devices of package compat/ibcompat are refused because they use the
	// connection's private data themselves.
	Device *verbs.Device
	// Context is an open context of the device in which to create the connections' objects (nil =
	// the device's shared context).
	Context *verbs.Context

	// RecvBuffer is the size in bytes of the buffer that the peer's device writes into (4,096 to
	// 2^30, even). It limits how far the peer can be ahead of Read. SendBuffer is the size in bytes
	// of the buffer that Write copies into (4,096 to 2^30). Each connection has both. The defaults
	// (0) are DefaultGrowing on the user-space RNIC and DefaultBuffer on kernel devices.
	//
	// A connection starts with DefaultBuffer bytes of a larger buffer and doubles that whenever the
	// peer sends, or the program writes, more at once than it holds. On the user-space RNIC the
	// rest occupies no memory until then. Kernel devices keep the whole buffer in memory.
	RecvBuffer, SendBuffer int
	// RecvQueue is the number of messages that the peer can be ahead of Read (0 = DefaultQueue; 16
	// to 65,000). A Write of this package takes one message for each half of its SendBuffer, a send
	// of a C program one for each 64 KiB; both take at least one. SendQueue is the number of
	// requests in the send queue (0 = DefaultQueue; 16 to 65,000); on iWARP a message takes two.
	// The defaults are lowered to what the device supports; larger explicit values are refused.
	RecvQueue, SendQueue int
	// Inline is the number of bytes that a request may carry inline (0 = DefaultInline, None = no
	// inline data). It is lowered to the device's limit.
	Inline int

	// Mappings is the number of memory areas that the peer may have mapped for WriteAt at the same
	// time (0 = none; up to 128).
	Mappings int

	// KeepAlive is how long the peer may be silent before an empty RDMA Write is sent (0 =
	// DefaultKeepAlive, negative = never). The peer's program does not notice the Write. If the
	// peer's host is gone, the device detects it after its own timeouts, and the connection fails.
	KeepAlive time.Duration

	// TOS is the type of service of the packets; see cm.Config.
	TOS uint8
}

// Dialer dials connections. Its methods may be called concurrently.
type Dialer struct {
	Config Config
	// Source is the local address (zero = chosen by the route; port 0 = any).
	Source netip.AddrPort
	// Timeout limits a Dial in addition to its context (0 = no limit).
	Timeout time.Duration
}

// ListenConfig configures listeners.
type ListenConfig struct {
	Config Config
	// Backlog is the number of connections that may wait for Accept, as in listen(2); 0, or a value
	// above net.core.somaxconn, selects net.core.somaxconn. The listener accepts connections in the
	// background, as rsockets do. While the backlog is full, it refuses requests.
	Backlog int
}

// fill sets the defaults that do not depend on a device and checks the limits.
func (cfg Config) fill() (Config, error) {
	for _, f := range []struct {
		name           string
		v              *int
		fill, low, top int
	}{
		{"RecvBuffer", &cfg.RecvBuffer, 0, minBuffer, maxBuffer},
		{"SendBuffer", &cfg.SendBuffer, 0, minBuffer, maxBuffer},
		{"RecvQueue", &cfg.RecvQueue, 0, minQueue, maxQueue},
		{"SendQueue", &cfg.SendQueue, 0, minQueue, maxQueue},
		{"Inline", &cfg.Inline, DefaultInline, None, 1 << 20},
		{"Mappings", &cfg.Mappings, 0, 0, maxMappings},
	} {
		switch {
		case *f.v == 0:
			*f.v = f.fill
		case *f.v < f.low || *f.v > f.top:
			return cfg, fmt.Errorf("Config.%s: %w", f.name, invalid("%d is not from %d to %d", *f.v, f.low, f.top))
		}
	}
	if cfg.RecvBuffer%2 != 0 {
		return cfg, fmt.Errorf("Config.RecvBuffer: %w", invalid("%d is odd: the buffer has two halves", cfg.RecvBuffer))
	}
	cfg.Inline = max(cfg.Inline, 0)
	if cfg.KeepAlive == 0 {
		cfg.KeepAlive = DefaultKeepAlive
	}
	return cfg, nil
}

// connection returns the part of the Config that package cm needs.
func (cfg *Config) connection() cm.Config {
	return cm.Config{Device: cfg.Device, Context: cfg.Context, TOS: cfg.TOS}
}

// usable refuses devices that do not support rsockets.
func usable(dev *verbs.Device) error {
	if dev.Info().Provider == "ibcompat" {
		return fmt.Errorf("%w: device %s: rsockets need the private data of a connection, which devices ib: use themselves; take the device below",
			verbs.ErrNotSupported, dev.Name())
	}
	return nil
}

// kernelDevice reports whether dev is a kernel device rather than the user-space RNIC.
func kernelDevice(dev *verbs.Device) bool {
	_, ok := verbs.Ability[verbs.ProviderKernelDevice](dev.Provider())
	return ok
}

// fit sets the sizes of buffers and queues for the device.
func (cfg *Config) fit(dev *verbs.Device, attr *verbs.DeviceAttr) error {
	buffer := DefaultBuffer
	if !kernelDevice(dev) {
		buffer = DefaultGrowing
	}
	if cfg.RecvBuffer == 0 {
		cfg.RecvBuffer = buffer
	}
	if cfg.SendBuffer == 0 {
		cfg.SendBuffer = buffer
	}
	recvs := min(attr.MaxQPWR, attr.MaxCQE/2)
	sends := min(attr.MaxQPWR, attr.MaxCQE-recvs)
	if cfg.RecvQueue == 0 {
		cfg.RecvQueue = min(DefaultQueue, recvs-extraRecvs)
	}
	if cfg.SendQueue == 0 {
		cfg.SendQueue = min(DefaultQueue, sends)
	}
	if n := cfg.RecvQueue + extraRecvs; n > recvs || cfg.RecvQueue < minQueue {
		return &verbs.LimitError{Name: "max_recv_wr", Limit: uint64(recvs), Value: uint64(max(n, minQueue+extraRecvs))}
	}
	if cfg.SendQueue > sends || cfg.SendQueue < minQueue {
		return &verbs.LimitError{Name: "max_send_wr", Limit: uint64(sends), Value: uint64(max(cfg.SendQueue, minQueue))}
	}
	cfg.Inline = min(cfg.Inline, attr.MaxInlineData)
	return nil
}
