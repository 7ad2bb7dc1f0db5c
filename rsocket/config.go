// SPDX-License-Identifier: BSD-3-Clause

package rsocket

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/verbs"
)

// None switches off: Config.Inline and Config.KeepAlive.
const None = cm.None

// The defaults of a Config. Those of buffers, queues and inline data are those of librdmacm, but
// for DefaultGrowing: that of the buffers on the user-space RNIC, where a connection takes only the
// memory that it has used.
const (
	DefaultBuffer    = 131072
	DefaultGrowing   = 1 << 20
	DefaultQueue     = 384
	DefaultInline    = 64
	DefaultKeepAlive = 15 * time.Second
)

// The bounds of a Config.
const (
	minBuffer = 4096
	maxBuffer = 1 << 30
	minQueue  = 16
	maxQueue  = 65000

	maxMappings = 128
)

// Config has what dialled and accepted connections have in common. The zero value of every field
// is its default.
type Config struct {
	// Device is the device. Without one, and without a Context, the address chooses, as of
	// cm.Config. Devices ib:NAME of package compat/ibcompat are refused: they need the private data
	// of a connection for themselves.
	Device *verbs.Device
	// Context is an open context of the device for the objects of the connections (nil = the
	// device's shared one).
	Context *verbs.Context

	// RecvBuffer is the size in bytes of the buffer into which the peer's device writes (4,096 to
	// 2^30, even): the most by which the peer can be ahead of Read. SendBuffer is that of the
	// buffer to which Write copies (4,096 to 2^30). Each connection has both. The defaults (0) are
	// DefaultGrowing on the user-space RNIC and DefaultBuffer on devices of the kernel.
	//
	// A connection begins with DefaultBuffer of a larger buffer, and takes twice as much as long as
	// the peer sends, or the program writes, more at a time than it holds. On the user-space RNIC
	// the rest takes no memory until then. Devices of the kernel keep all of a buffer in memory.
	RecvBuffer, SendBuffer int
	// RecvQueue is the number of messages that the peer can be ahead of Read (0 = DefaultQueue; 16
	// to 65,000): a Write of this package is one message for each half of the SendBuffer, a send of
	// a C program one for each 64 KiB, and at least one each. SendQueue is the number of requests
	// of the send queue (0 = DefaultQueue; 16 to 65,000): on iWARP a message takes two. A device
	// whose queues are smaller lowers the defaults; larger values of the program are refused.
	RecvQueue, SendQueue int
	// Inline is the number of bytes that a request may carry itself (0 = DefaultInline, None =
	// none). A device that has less lowers it.
	Inline int

	// Mappings is how many pieces of its memory the peer may map for WriteAt at a time (0 = none;
	// up to 128).
	Mappings int

	// KeepAlive is the time without a message of the peer after which an empty Write is sent (0 =
	// DefaultKeepAlive, negative = never). The peer's program does not notice it. If the peer's
	// host is gone, the device finds out because of it, after its own time-outs, and the connection
	// fails.
	KeepAlive time.Duration

	// TOS is the type of service of the packets, see cm.Config.
	TOS uint8
}

// Dialer makes connections. Its methods may be called concurrently.
type Dialer struct {
	Config Config
	// Source is the local address (zero = chosen by the route; port 0 = any).
	Source netip.AddrPort
	// Timeout limits a Dial, in addition to its context (0 = no limit).
	Timeout time.Duration
}

// ListenConfig makes listeners.
type ListenConfig struct {
	Config Config
	// Backlog is the number of connections that wait for Accept, as of listen(2): 0, or more than
	// net.core.somaxconn, is that. The listener accepts them by itself, as rsockets do. While so
	// many wait, it refuses requests.
	Backlog int
}

// fill sets the defaults, which do not depend on a device, and checks the bounds.
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

// connection is the part of a Config that package cm needs.
func (cfg *Config) connection() cm.Config {
	return cm.Config{Device: cfg.Device, Context: cfg.Context, TOS: cfg.TOS}
}

// usable refuses devices on which there are no rsockets.
func usable(dev *verbs.Device) error {
	if dev.Info().Provider == "ibcompat" {
		return fmt.Errorf("%w: device %s: rsockets need the private data of a connection, which devices ib: use themselves; take the device below",
			verbs.ErrNotSupported, dev.Name())
	}
	return nil
}

// kernelDevice reports whether dev is a device of the kernel, and not the user-space RNIC.
func kernelDevice(dev *verbs.Device) bool {
	_, ok := verbs.Ability[verbs.ProviderKernelDevice](dev.Provider())
	return ok
}

// fit sets the sizes of buffers and queues for a device.
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
