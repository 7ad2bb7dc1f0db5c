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
	// Device is the device. Without one, and without a Context, the address chooses: Resolve takes
	// the RDMA device of the kernel that has the route to the address, or else the first registered
	// user-space NIC. A listener listens on several devices: on those of the kernel that have the
	// address, and on every registered NIC; see [Listener.Devices]. If no device is found, the
	// error Is verbs.ErrNoDevice.
	Device *verbs.Device
	// Context is an open context of the device for the objects of the connection (nil = the
	// device's shared one).
	Context *verbs.Context
	// Source is the local address of an outgoing connection (zero = chosen by the route; port 0 =
	// any).
	Source netip.AddrPort
	// PortSpace is TCP or UDP (0 = PortSpaceTCP). UDP is for UD QPs, and only devices of the kernel
	// have it.
	PortSpace PortSpace
	// TOS is the type of service of a connection's packets (RDMA_OPTION_ID_TOS, 0 = the system's
	// default). The connections that a listener accepts have the TOS of the listener. Only devices
	// of the kernel have it.
	TOS uint8
	// AckTimeout is the time after which the device resends a packet that the peer has not
	// acknowledged, as a code: 4.096 us times 2 to the power of it (RDMA_OPTION_ID_ACK_TIMEOUT), 1
	// to 31 (0 = what the system finds out). ConnParam.RetryCount says how often. The connections
	// that a listener accepts have that of the listener. It is for InfiniBand and RoCE; iWARP
	// devices of the kernel ignore it, the user-space RNIC refuses it.
	AckTimeout uint8
	// ReuseAddr lets several IDs have the same local address and port, as long as at most one of
	// them listens (RDMA_OPTION_ID_REUSEADDR): a program that chooses the port of an outgoing
	// connection, by Source, can use it again at once. On the user-space RNIC it is SO_REUSEADDR of
	// TCP, which listeners always have.
	ReuseAddr bool
	// AFOnly makes a listener on the address "::" take connections over IPv6 only
	// (RDMA_OPTION_ID_AFONLY). Without it, it takes those over IPv4 too. It has no effect on other
	// addresses; with an empty host, which means both families, it is an error.
	AFOnly bool
	// Backlog is the number of requests that wait for Accept, as of listen(2): 0, or more than
	// net.core.somaxconn, is that. Further requests are refused; between peers of this module the
	// error says "backlog full".
	Backlog int
}

// isAuto reports whether the address chooses the device.
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
