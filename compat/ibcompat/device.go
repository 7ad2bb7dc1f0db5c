// SPDX-License-Identifier: BSD-3-Clause

package ibcompat

import (
	"fmt"

	"github.com/goverbs/goverbs/compat/ibcompat/internal/engine"
	"github.com/goverbs/goverbs/internal/forward"
	"github.com/goverbs/goverbs/verbs"
)

// Prefix precedes the name of the inner device.
const Prefix = "ib:"

// Config configures the wrapping of a device.
type Config struct {
	// Relaxed makes every request complete as with verbs.SendRelaxed. It has no effect on
	// InfiniBand and RoCE.
	Relaxed bool
	// Rendezvous is the first of the RendezvousPorts TCP ports at which an iWARP device can be
	// called by the peers of QPs that programs bring up by hand (0 = DefaultRendezvous). Each open
	// device takes the first free one for itself, which its QPs' numbers name. The devices of both
	// sides need the same value. It has no meaning on InfiniBand and RoCE.
	Rendezvous uint16
	// GuardMemory is usiw.Config.GuardMemory for what an iWARP device of this package does itself:
	// Sends, atomics, and requests of a QP that is connected to itself. It must also be set on the
	// inner device. It has no effect on InfiniBand and RoCE.
	GuardMemory bool
}

// DefaultRendezvous is the first port of a Config that names none, RendezvousPorts how many there
// are.
const (
	DefaultRendezvous = engine.DefaultPort
	RendezvousPorts   = engine.Ports
)

// RendezvousError is the error of a Modify to RTR on an iWARP device that cannot be called: none of
// its ports is free, or it cannot listen.
type RendezvousError = engine.RendezvousError

// HandError says why a QP on an iWARP device that was brought up by hand has got no connection. On
// InfiniBand such a QP notices that nobody is there when its first request is not acknowledged, and
// so it is here: the request completes with verbs.WCRetryExcErr, and verbs.QP.Err and
// verbs.QP.Cause have this error. Its Reason is one of the three below.
type HandError = engine.HandError

// HandName is what a QP is called: the GID of its device and its number.
type HandName = engine.Name

// The reasons of a HandError.
var (
	// ErrWrongQP: at the address no QP of this number waits for this one. It may not be in RTR yet,
	// or have been told other PSNs.
	ErrWrongQP = engine.ErrWrongQP
	// ErrPeerAbsent: nobody came. The host is there, but no device where the peer's QP would be, or
	// the peer has not called.
	ErrPeerAbsent = engine.ErrPeerAbsent
	// ErrNoAnswer: the address does not answer, or cannot be reached.
	ErrNoAnswer = engine.ErrNoAnswer
)

// PeerError is the error of a Connect or an Accept on an iWARP device whose peer is not such a
// device, or one of another version of this package. Remote says that it is the peer who refuses.
type PeerError = engine.PeerError

// ProtocolError is the reason (verbs.QP.Err) for the end of a connection over iWARP whose peer has
// not kept to the protocol between two devices of this package. Nothing of what was wrong has been
// done.
type ProtocolError = engine.ProtocolError

// TransportError reports that devices with this transport cannot be wrapped, and what is missing.
// It Is verbs.ErrNotSupported.
type TransportError struct {
	Device    string // the name of the inner device
	Transport verbs.Transport
	Missing   string
}

// Error names the device, its transport and what is missing.
func (e *TransportError) Error() string {
	return fmt.Sprintf("ibcompat: %v: %s is a device of transport %v, for which there is no %s", verbs.ErrNotSupported,
		e.Device, e.Transport, e.Missing)
}

// Is reports whether target is verbs.ErrNotSupported.
func (e *TransportError) Is(target error) bool { return target == verbs.ErrNotSupported }

// Wrap returns the device "ib:NAME" on top of the device NAME. The returned device is not
// registered, and it is closed with the inner device. The error Is verbs.ErrNoDevice if no provider
// made dev; it is a *[TransportError] if dev is not an InfiniBand, RoCE or iWARP device.
func Wrap(dev *verbs.Device, cfg Config) (*verbs.Device, error) {
	if dev.Name() == "" {
		return nil, fmt.Errorf("ibcompat: %w: %v cannot be wrapped", verbs.ErrNoDevice, dev)
	}
	switch t := dev.Info().Transport; t {
	case verbs.TransportIB:
		return verbs.NewDevice(&device{in: dev}), nil
	case verbs.TransportIWARP:
		if most := uint16(1<<16 - RendezvousPorts); cfg.Rendezvous > most {
			return nil, &verbs.LimitError{Name: "Config.Rendezvous", Limit: uint64(most), Value: uint64(cfg.Rendezvous)}
		}
		return engine.New(dev, engine.Config{Name: Prefix + dev.Name(), Relaxed: cfg.Relaxed, Port: cfg.Rendezvous,
			GuardMemory: cfg.GuardMemory}), nil
	default:
		return nil, &TransportError{Device: dev.Name(), Transport: t,
			Missing: "way to give it the semantics of InfiniBand"}
	}
}

// device implements verbs.ProviderDevice and cm.Provider.
type device struct{ in *verbs.Device }

func (d *device) Info() verbs.DeviceInfo {
	info := d.in.Info()
	info.Name, info.Provider = Prefix+info.Name, "ibcompat"
	return info
}

// Unwrap exposes the inner device's abilities.
func (d *device) Unwrap() verbs.ProviderDevice { return d.in.Provider() }

func (d *device) Open(*verbs.Context) (verbs.ProviderContext, error) {
	in, err := d.in.Open()
	if err != nil {
		return nil, err
	}
	return &vcontext{Context: forward.Context{In: in}, composed: composedOn(in.Ops()), regions: map[uint32]*mr{}}, nil
}

// masked is the set of operations that can be composed.
const masked = verbs.OpSet(1<<verbs.OpMaskedFetchAdd | 1<<verbs.OpMaskedCmpSwap)

// composedOn returns the operations that are composed on a device with these native ones.
func composedOn(native verbs.OpSet) verbs.OpSet {
	if !native.Has(verbs.OpCmpSwap) {
		return 0
	}
	return masked &^ native
}
