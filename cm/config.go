// SPDX-License-Identifier: BSD-3-Clause

package cm

import (
	"fmt"
	"net/netip"

	"github.com/goverbs/goverbs/verbs"
)

// DefaultBacklog is how many connection requests a listener keeps for Accept when none is configured.
const DefaultBacklog = 128

// Auto, as Config.Device, lets the address choose. Resolve takes the kernel's RDMA device that owns the route to it, else the
// first registered user-space NIC. A listener listens on all of them: those of the kernel that have the address, and
// every registered NIC; see [Listener.Devices].
var Auto = new(verbs.Device)

// Config says on which device connections are made.
type Config struct {
	// Device is the device, or Auto. Without one, and without a Context, the call fails with verbs.ErrNoDevice.
	Device *verbs.Device
	// Context is an open context of the device for the objects of the connection (nil = the device's shared one).
	Context *verbs.Context
	// Source is the local address of an outgoing connection (zero = chosen by the route; port 0 = any).
	Source netip.AddrPort
	// PortSpace is TCP or UDP (0 = PortSpaceTCP). UDP is for UD QPs and takes a device of the kernel's.
	PortSpace PortSpace
	// TOS is the type of service of a connection's packets (RDMA_OPTION_ID_TOS, 0 = the system's default). A listener hands
	// it on to what it accepts. It takes a device of the kernel's.
	TOS uint8
	// Backlog is how many requests a listener keeps that Accept has not taken (0 = DefaultBacklog). Further ones are
	// refused.
	Backlog int
}

// isAuto reports whether the address chooses the device.
func (cfg *Config) isAuto() bool { return cfg.Device == Auto && cfg.Context == nil }

// fill puts the defaults in and judges what needs no device.
func (cfg *Config) fill() error {
	switch cfg.PortSpace {
	case 0:
		cfg.PortSpace = PortSpaceTCP
	case PortSpaceTCP, PortSpaceUDP:
	default:
		return fmt.Errorf("%w: %v", verbs.ErrInvalid, cfg.PortSpace)
	}
	if cfg.Backlog == 0 {
		cfg.Backlog = DefaultBacklog
	}
	if cfg.Backlog < 0 {
		return fmt.Errorf("%w: backlog %d", verbs.ErrInvalid, cfg.Backlog)
	}
	return nil
}

// choose completes Device and Context, and returns what makes the connections.
func (cfg *Config) choose() (Provider, error) {
	switch {
	case cfg.Context == nil && cfg.Device == nil:
		return nil, fmt.Errorf("%w: Config names neither Device nor Context (cm.Auto chooses one)", verbs.ErrNoDevice)
	case cfg.Context == nil:
		var err error
		if cfg.Context, err = cfg.Device.SharedContext(); err != nil {
			return nil, err
		}
	case cfg.Device != nil && cfg.Device != Auto && cfg.Device != cfg.Context.Device():
		return nil, fmt.Errorf("%w: Config.Context is of another device than Config.Device", verbs.ErrForeign)
	}
	cfg.Device = cfg.Context.Device()
	return manager(cfg.Device)
}
