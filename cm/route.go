// SPDX-License-Identifier: BSD-3-Clause

package cm

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/goverbs/goverbs/verbs"
)

// resolveRoute finds the device for an address and the route to it.
func resolveRoute(ctx context.Context, address string, cfg Config) (Route, *verbs.Context, error) {
	if err := cfg.fill(); err != nil {
		return nil, nil, err
	}
	if cfg.isAuto() {
		return resolveAuto(ctx, address, cfg)
	}
	p, err := cfg.choose()
	if err != nil {
		return nil, nil, err
	}
	r, err := p.Resolve(ctx, address, cfg)
	return r, cfg.Context, err
}

func resolveAuto(ctx context.Context, address string, cfg Config) (Route, *verbs.Context, error) {
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
	for i, d := range devices {
		p, ok := verbs.Ability[Provider](d.Provider())
		if !ok || wraps(d, devices[:i]) {
			continue
		}
		cfg.Device = d
		if cfg.Context, err = d.SharedContext(); err != nil {
			return nil, nil, err
		}
		r, err := p.Resolve(ctx, address, cfg)
		return r, cfg.Context, err
	}
	return nil, nil, noDevice(devices, kernelErr)
}

// wraps reports whether a device wraps one of the given devices. When the address selects the
// device, the wrapped one is used.
func wraps(d *verbs.Device, devices []*verbs.Device) bool {
	for p := d.Provider(); ; {
		outer, ok := p.(interface{ Unwrap() verbs.ProviderDevice })
		if !ok {
			return false
		}
		p = outer.Unwrap()
		name := p.Info().Name
		if slices.ContainsFunc(devices, func(o *verbs.Device) bool { return o.Name() == name }) {
			return true
		}
	}
}

// noDevice returns the error for an address that no device serves.
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
	return fmt.Errorf("%w (looked at:%s; usiw.Register adds one)", cause, names)
}

// kernelManager is the Provider of the kernel devices.
type kernelManager struct{}

// Resolve implements Provider.
func (kernelManager) Resolve(ctx context.Context, address string, cfg Config) (Route, error) {
	r, _, err := resolveKernel(ctx, address, cfg, cfg.Context)
	return r, err
}

// Listen implements Provider.
func (kernelManager) Listen(ctx context.Context, address string, cfg Config) (ProviderListener, error) {
	l, err := listenKernel(ctx, address, cfg, cfg.Context)
	return l, err
}

// manager returns the Provider of a device's connections.
func manager(d *verbs.Device) (Provider, error) {
	if p, ok := verbs.Ability[Provider](d.Provider()); ok {
		return p, nil
	}
	if _, ok := verbs.Ability[verbs.ProviderKernelDevice](d.Provider()); ok {
		return kernelManager{}, nil
	}
	return nil, fmt.Errorf("%w: device %s has no connection manager", verbs.ErrNotSupported, d.Name())
}

// ofKernel reports whether a device is itself a kernel device rather than a wrapper of one.
func ofKernel(d *verbs.Device) bool {
	_, ok := d.Provider().(verbs.ProviderKernelDevice)
	return ok
}
