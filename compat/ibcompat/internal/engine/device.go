// SPDX-License-Identifier: BSD-3-Clause

package engine

import (
	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/internal/queue"
	"github.com/goverbs/goverbs/verbs"
)

// Config configures the wrapping of a device.
type Config struct {
	Name    string // name of the new device
	Relaxed bool   // treat every request as verbs.SendRelaxed
	// first of the Ports TCP ports, one of which the device listens on for the peers of QPs that
	// are brought up manually; 0 = DefaultPort
	Port uint16

	GuardMemory bool // registered memory may be unmapped by the program: fragile.go
}

// New returns a device with InfiniBand semantics on top of an iWARP device.
func New(in *verbs.Device, cfg Config) *verbs.Device {
	if cfg.Port == 0 {
		cfg.Port = DefaultPort
	}
	return verbs.NewDevice(&device{in: in, cfg: cfg})
}

// device implements verbs.ProviderDevice and cm.Provider.
type device struct {
	in   *verbs.Device
	cfg  Config
	gids gids
}

func (d *device) Info() verbs.DeviceInfo {
	info := d.in.Info()
	info.Name, info.Provider, info.Transport, info.NodeType = d.cfg.Name, "ibcompat", verbs.TransportIB, verbs.NodeCA
	return info
}

// Unwrap exposes the inner device's abilities.
func (d *device) Unwrap() verbs.ProviderDevice { return d.in.Provider() }

// The operations of every device of this package, and those that a device needs in order to use no
// emulation.
const (
	operations = verbs.OpSet(1<<verbs.OpSend|1<<verbs.OpSendImm|1<<verbs.OpWrite|1<<verbs.OpWriteImm|1<<verbs.OpRead) |
		ext.Atomics
	oneSided = ext.Atomics | verbs.OpSet(1<<verbs.OpWriteImm)
)

// Implementation limits of QPs.
const (
	mostSGE    = 8   // elements of a request
	mostInline = 256 // bytes of inline data
)

func (d *device) Open(owner *verbs.Context) (verbs.ProviderContext, error) {
	in, err := d.in.Open()
	if err != nil {
		return nil, err
	}
	attr, err := in.QueryDevice()
	if err != nil {
		_ = in.Close() // the first error is the reason
		return nil, err
	}
	c := &vcontext{dev: d, in: in, native: in.Ops() & oneSided, sge: min(mostSGE, attr.MaxSGE-1),
		regions: map[uint32]*mr{}, owners: map[*verbs.QP]*verbs.QP{}, meet: newRendezvous(in, d.cfg.Port),
		events: queue.NewEvents(verbs.AsyncEvent.OfClosed)}
	_, c.silent = verbs.Ability[verbs.ProviderKernelDevice](d.in.Provider())
	if s, ok := verbs.Ability[verbs.ProviderLocalSinks](in.Provider()); ok {
		c.localSinks = s.LocalSinks()
	}
	if in.Supports(verbs.OpBindMW) {
		c.opener, _ = verbs.Ability[verbs.ProviderOpener](in.Provider())
	}
	c.ending.Go(c.translate)
	return c, nil
}
