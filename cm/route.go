// SPDX-License-Identifier: BSD-3-Clause

package cm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/goverbs/goverbs/verbs"
)

// route is a way to a peer that Resolve has found. connect is called once at most, and close after that has returned.
type route interface {
	remoteAddr() net.Addr
	binder
	connect(ctx context.Context, qp *verbs.QP, param ConnParam) (ProviderConn, error)
	close()
}

// binder moves a QP from RESET to INIT.
type binder interface{ bind(qp *verbs.QP) error }

// providerRoute is a route of a Provider.
type providerRoute struct {
	plainBinder
	p      Provider
	remote net.Addr
	source netip.AddrPort
}

func (r providerRoute) remoteAddr() net.Addr { return r.remote }
func (r providerRoute) close()               {}

func (r providerRoute) connect(ctx context.Context, qp *verbs.QP, param ConnParam) (ProviderConn, error) {
	return r.p.Connect(ctx, qp.Provider(), r.remote, r.source, param)
}

// plainBinder is for devices with one port and one partition.
type plainBinder struct{}

func (plainBinder) bind(qp *verbs.QP) error {
	return qp.Modify(verbs.QPAttr{State: verbs.QPStateInit, PortNum: 1, AccessFlags: remoteAccess},
		verbs.QPAttrState|verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrAccessFlags)
}

// remoteAccess is what a connected QP lets the peer do, where the memory allows it.
const remoteAccess = verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic

// resolveRoute finds the device and the way to an address.
func resolveRoute(ctx context.Context, address string, cfg Config) (route, *verbs.Context, error) {
	switch {
	case cfg.PortSpace != 0 && cfg.PortSpace != PortSpaceTCP && cfg.PortSpace != PortSpaceUDP:
		return nil, nil, fmt.Errorf("%w: %v", verbs.ErrInvalid, cfg.PortSpace)
	case cfg.Device == Auto && cfg.Context == nil:
		return resolveAuto(ctx, address, cfg)
	}
	vctx, err := cfg.chosen()
	if err != nil {
		return nil, nil, err
	}
	if isKernel(vctx.Device()) {
		return resolveKernel(ctx, address, cfg, vctx)
	}
	r, err := resolveProvider(ctx, address, cfg, vctx.Device())
	return r, vctx, err
}

func resolveAuto(ctx context.Context, address string, cfg Config) (route, *verbs.Context, error) {
	r, vctx, kernelErr := resolveKernel(ctx, address, cfg, nil)
	if kernelErr == nil {
		return r, vctx, nil
	}
	if ctx.Err() != nil || errors.Is(kernelErr, ErrSetupTimeout) {
		return nil, nil, kernelErr
	}
	devices, err := verbs.Devices()
	if err != nil {
		return nil, nil, err
	}
	for _, d := range devices {
		if _, ok := d.Provider().(Provider); ok && !isKernel(d) {
			if vctx, err = d.SharedContext(); err != nil {
				return nil, nil, err
			}
			r, err := resolveProvider(ctx, address, cfg, d)
			return r, vctx, err
		}
	}
	return nil, nil, noDevice(devices, kernelErr)
}

// noDevice is the error of a choice that found nothing.
func noDevice(devices []*verbs.Device, cause error) error {
	names := ""
	for _, d := range devices {
		names += " " + d.Name()
	}
	if names == "" {
		names = " none"
	}
	if !errors.Is(cause, verbs.ErrNoDevice) {
		cause = fmt.Errorf("%w: %w", verbs.ErrNoDevice, cause)
	}
	return fmt.Errorf("%w (looked at:%s; siw.Register adds one)", cause, names)
}

func resolveProvider(ctx context.Context, address string, cfg Config, d *verbs.Device) (route, error) {
	p, err := provider(cfg, d)
	if err != nil {
		return nil, err
	}
	remote, err := p.Resolve(ctx, address, cfg.Source)
	if err != nil {
		return nil, err
	}
	return providerRoute{p: p, remote: remote, source: cfg.Source}, nil
}

// provider returns the connection manager of a device that is not the kernel's.
func provider(cfg Config, d *verbs.Device) (Provider, error) {
	p, ok := d.Provider().(Provider)
	switch {
	case !ok:
		return nil, fmt.Errorf("%w: device %s has no connection manager", verbs.ErrNotSupported, d.Name())
	case cfg.PortSpace == PortSpaceUDP:
		return nil, fmt.Errorf("%w: port space udp on %v", verbs.ErrNotSupported, d)
	case cfg.TOS != 0:
		return nil, fmt.Errorf("%w: a type of service on %v", verbs.ErrNotSupported, d)
	}
	return p, nil
}

// isKernel reports whether the kernel's connection manager makes the connections of a device.
func isKernel(d *verbs.Device) bool { return d.Info().Provider == "ibverbs" }

// chosen returns the context that cfg names.
func (cfg Config) chosen() (*verbs.Context, error) {
	switch {
	case cfg.Context == nil && cfg.Device == nil:
		return nil, fmt.Errorf("%w: Config names neither Device nor Context (cm.Auto chooses one)", verbs.ErrNoDevice)
	case cfg.Context == nil:
		return cfg.Device.SharedContext()
	case cfg.Device != nil && cfg.Device != Auto && cfg.Device != cfg.Context.Device():
		return nil, fmt.Errorf("%w: Config.Context is of another device than Config.Device", verbs.ErrForeign)
	}
	return cfg.Context, nil
}

func (cfg Config) portSpace() PortSpace {
	if cfg.PortSpace == 0 {
		return PortSpaceTCP
	}
	return cfg.PortSpace
}
