// SPDX-License-Identifier: BSD-3-Clause

package cm

import (
	"fmt"
	"net/netip"

	"github.com/goverbs/goverbs/internal/backlog"
	"github.com/goverbs/goverbs/verbs"
)

// Config selects the device of a connection or listener, and how it connects.
type Config struct {
	// Device is the device. If neither Device nor Context is set, the address selects the device.
	// Resolve uses the kernel device that has the route to the address, or else the first
	// registered user-space RNIC. A listener listens on several devices: the kernel devices that
	// have the address, and every registered user-space RNIC; see [Listener.Devices]. If no device
	// is found, the error Is verbs.ErrNoDevice.
	Device *verbs.Device
	// Context is an open context of the device for the objects of the connection (nil = the
	// device's shared one).
	Context *verbs.Context
	// Source is the local address of an outgoing connection (zero = selected by the route; port 0 =
	// any free port).
	Source netip.AddrPort
	// PortSpace is TCP or UDP (0 = PortSpaceTCP). UDP is for UD QPs; only kernel devices support
	// it.
	PortSpace PortSpace
	// TOS is the type of service of a connection's packets (RDMA_OPTION_ID_TOS, 0 = the system's
	// default). Accepted connections inherit the TOS of their listener. Only kernel devices support
	// it.
	TOS uint8
	// AckTimeout is the time after which the device retransmits an unacknowledged packet, as a code
	// from 1 to 31 that means 4.096 us * 2^code (RDMA_OPTION_ID_ACK_TIMEOUT; 0 = the system
	// determines it). ConnParam.RetryCount limits the retransmissions. Accepted connections inherit
	// the timeout of their listener. It applies to InfiniBand and RoCE; iWARP kernel devices ignore
	// it, and the user-space RNIC refuses it.
	AckTimeout uint8
	// ReuseAddr lets several IDs share a local address and port, as long as at most one of them
	// listens (RDMA_OPTION_ID_REUSEADDR). A program that chooses the port of an outgoing
	// connection, with Source, can then reuse it at once. On the user-space RNIC this is
	// SO_REUSEADDR of TCP, which listeners always set.
	ReuseAddr bool
	// AFOnly makes a listener on the address "::" accept connections over IPv6 only
	// (RDMA_OPTION_ID_AFONLY). Otherwise it accepts IPv4 connections too. It has no effect on other
	// addresses. With an empty host, which means both families, it is an error.
	AFOnly bool
	// Backlog is the number of requests that can wait for Accept, as for listen(2); 0, or more than
	// net.core.somaxconn, means net.core.somaxconn. Further requests are refused; if both peers use
	// this module the error says "backlog full".
	Backlog int
}

// isAuto reports whether the address selects the device.
func (cfg *Config) isAuto() bool { return cfg.Device == nil && cfg.Context == nil }

// fill sets defaults and checks the fields that do not depend on the device.
func (cfg *Config) fill() error {
	switch cfg.PortSpace {
	case 0:
		cfg.PortSpace = PortSpaceTCP
	case PortSpaceTCP, PortSpaceUDP:
	default:
		return fmt.Errorf("%w: %v", verbs.ErrInvalid, cfg.PortSpace)
	}
	if cfg.AckTimeout > 31 {
		return &verbs.LimitError{Name: "AckTimeout", Limit: 31, Value: uint64(cfg.AckTimeout)}
	}
	if cfg.Backlog < 0 {
		return fmt.Errorf("%w: backlog %d", verbs.ErrInvalid, cfg.Backlog)
	}
	cfg.Backlog = backlog.Of(cfg.Backlog)
	return nil
}

// choose completes Device and Context, and returns the Provider of the connections.
func (cfg *Config) choose() (Provider, error) {
	switch {
	case cfg.Context == nil:
		var err error
		if cfg.Context, err = cfg.Device.SharedContext(); err != nil {
			return nil, err
		}
	case cfg.Device != nil && cfg.Device != cfg.Context.Device():
		return nil, fmt.Errorf("%w: Config.Context is of another device than Config.Device", verbs.ErrForeign)
	}
	cfg.Device = cfg.Context.Device()
	return manager(cfg.Device)
}
