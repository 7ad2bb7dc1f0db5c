// SPDX-License-Identifier: BSD-3-Clause

package cm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// resolveLimit bounds the neighbour lookup if the context has no deadline.
const resolveLimit = 10 * time.Second

// kernelRoute is an ID with a device and a route (after rdma_resolve_addr and rdma_resolve_route).
type kernelRoute struct {
	ps     PortSpace
	remote kernelAddr
	cfg    Config         // as passed to Resolve
	vctx   *verbs.Context // of the device

	dev   kernelDevice
	taken bool // Connect owns the ID and destroys it

	mu  sync.Mutex
	end *endpoint // Connect replaces it to use another port
}

// id returns the current ID of the route.
func (r *kernelRoute) id() *endpoint {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.end
}

// kernelDevice is what the connection manager needs to know about a device.
type kernelDevice struct {
	rules
	iwarp                  bool
	maxORD, maxIRD         int
	request, reply, reject int // bytes of private data
}

// deviceOf returns the kernelDevice of a context.
func deviceOf(vctx *verbs.Context, ps PortSpace) (kernelDevice, error) {
	attr, err := vctx.QueryDevice()
	if err != nil {
		return kernelDevice{}, err
	}
	// A depth of librdmacm has 8 bits, and 255 means the device's maximum, so the maximum itself is
	// passed instead.
	d := kernelDevice{rules: anyRules, maxORD: min(attr.MaxQPInitRdAtom, 254), maxIRD: min(attr.MaxQPRdAtom, 254)}
	own, err := verbs.Own[verbs.ProviderKernelDevice](vctx.Device().Provider())
	if err != nil {
		return kernelDevice{}, err
	}
	iwarp := own.Info().Transport == verbs.TransportIWARP
	switch {
	case iwarp && ps == PortSpaceUDP:
		return kernelDevice{}, fmt.Errorf("%w: datagrams on %v: iWARP has none", verbs.ErrNotSupported, vctx.Device())
	case iwarp:
		d.iwarp, d.rules = true, rulesOf(iwarpDevices)
		d.request, d.reply, d.reject = 255, 255, 255 // what the interface of the kernel allows
	case ps == PortSpaceUDP:
		d.request, d.reply, d.reject = 216-cmaHeader, 136, 136
	default:
		d.request, d.reply, d.reject = 92-cmaHeader, 196, 148
	}
	if most := d.privateData; most > 0 {
		d.request, d.reply, d.reject = min(d.request, most), min(d.reply, most), min(d.reject, most)
	}
	return d, nil
}

// cmaHeader is the size of the IP addresses that the kernel puts before the private data of a
// request on InfiniBand.
const cmaHeader = 36

func checkPrivate(data []byte, most int) error {
	if len(data) > most {
		return &verbs.LimitError{Name: "private data", Limit: uint64(most), Value: uint64(len(data))}
	}
	return nil
}

// resolveKernel finds the kernel device with a route to an address. If vctx is not nil, it must be
// the device of vctx. The error Is ErrNoDevice if there is none.
func resolveKernel(ctx context.Context, address string, cfg Config,
	vctx *verbs.Context) (Route, *verbs.Context, error) {
	if err := librdmacm.load(); err != nil {
		return nil, nil, err
	}
	host, port, err := splitAddress(address)
	switch {
	case err != nil:
		return nil, nil, err
	case host == "":
		return nil, nil, fmt.Errorf("%w: no host in %q", verbs.ErrInvalid, address)
	}
	ips, err := lookup(ctx, host, cfg.Source.Addr())
	if err != nil {
		return nil, nil, err
	}
	var first error
	for _, ip := range ips {
		if port == 0 && !ip.IsMulticast() { // a group has no ports
			return nil, nil, fmt.Errorf("%w: port 0 in %q", verbs.ErrInvalid, address)
		}
		r, err := resolveIP(ctx, netip.AddrPortFrom(ip, port), cfg, vctx)
		if err == nil {
			return r, r.vctx, nil
		}
		if first == nil {
			first = err
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, nil, first
}

func resolveIP(ctx context.Context, to netip.AddrPort, cfg Config, vctx *verbs.Context) (*kernelRoute, error) {
	end, err := newEndpoint(cfg.PortSpace)
	if err != nil {
		return nil, noKernelDevice(err)
	}
	r := &kernelRoute{ps: cfg.PortSpace, remote: kernelAddr{to, cfg.PortSpace}, cfg: cfg, vctx: vctx, end: end}
	if err := r.find(ctx); err != nil {
		end.destroy()
		return nil, err
	}
	return r, nil
}

// noKernelDevice adds ErrNoDevice to errors that mean that there is no device.
func noKernelDevice(err error) error {
	for _, no := range []syscall.Errno{syscall.ENODEV, syscall.ENOENT, syscall.ENOSYS, syscall.EPERM, syscall.EACCES} {
		if errors.Is(err, no) {
			return fmt.Errorf("%w of the kernel: %w", verbs.ErrNoDevice, err)
		}
	}
	return err
}

// neighbour resolves the address, with several lookups of short timeout.
func (r *kernelRoute) neighbour(ctx context.Context, source netip.AddrPort, limit time.Duration) error {
	for end := time.Now().Add(limit); ; {
		step := max(min(anyRules.neighbourStep, time.Until(end)), time.Millisecond)
		if err := r.end.call(func(id rawID) error { return id.resolveAddr(source, r.remote.at, step) }); err != nil {
			return r.end.callError("rdma_resolve_addr", err)
		}
		err := r.await(ctx, EventAddrResolved)
		if !errors.Is(err, syscall.ETIMEDOUT) || time.Until(end) <= 0 {
			return err
		}
	}
}

// find resolves address and route, and sets the context if the caller left the selection to the
// kernel.
func (r *kernelRoute) find(ctx context.Context) (err error) {
	limit := resolveLimit
	if deadline, ok := ctx.Deadline(); ok {
		limit = max(time.Until(deadline), time.Millisecond)
	}
	source := r.cfg.Source
	if !source.Addr().IsValid() && source.Port() != 0 {
		any := netip.IPv4Unspecified()
		if r.remote.Addr().Is6() {
			any = netip.IPv6Unspecified()
		}
		source = netip.AddrPortFrom(any, source.Port())
	}
	if err := r.end.setOptions(&r.cfg, false); err != nil {
		return err
	}
	if err := r.neighbour(ctx, source, limit); err != nil {
		return noWay(r.remote, err)
	}
	why := fmt.Sprintf("the way to %v is", r.remote)
	if r.vctx, err = kernelContext(r.vctx, r.end.where().device, why); err != nil {
		return err
	}
	if r.dev, err = deviceOf(r.vctx, r.ps); err != nil {
		return err
	}
	if r.remote.Addr().IsMulticast() {
		return nil // a group has no single route
	}
	if err := r.end.call(func(id rawID) error { return id.resolveRoute(limit) }); err != nil {
		return r.end.callError("rdma_resolve_route", err)
	}
	return r.await(ctx, EventRouteResolved)
}

// otherPort replaces the ID with a new one, for which librdmacm selects another local port.
func (r *kernelRoute) otherPort(ctx context.Context) error {
	next, err := resolveIP(ctx, r.remote.at, r.cfg, r.vctx)
	if err != nil {
		return err
	}
	r.mu.Lock()
	last := r.end
	r.end = next.end
	r.mu.Unlock()
	last.destroy()
	return nil
}

// noWay adds ErrNoDevice to the error if the kernel found no RDMA device for an address.
func noWay(to net.Addr, err error) error {
	if errors.Is(err, syscall.ENODEV) {
		return fmt.Errorf("%w of the kernel reaches %v: %w", verbs.ErrNoDevice, to, err)
	}
	return err
}

// kernelContext returns the context for a device that the kernel selected. If want is not nil, it
// must be the device of want.
func kernelContext(want *verbs.Context, name, why string) (*verbs.Context, error) {
	if want != nil {
		if has := kernelName(want.Device()); has != name {
			return nil, fmt.Errorf("%w: %s of %q, not of %q", verbs.ErrNoDevice, why, name, has)
		}
		return want, nil
	}
	devices, err := verbs.Devices()
	if err != nil {
		return nil, err
	}
	for _, d := range devices {
		if ofKernel(d) && kernelName(d) == name {
			return d.SharedContext()
		}
	}
	return nil, fmt.Errorf("%w: %s of %q, which libibverbs does not list", verbs.ErrNoDevice, why, name)
}

// kernelName returns the kernel's name for a device, or for the device that it wraps; "" for other
// devices.
func kernelName(d *verbs.Device) string {
	if k, ok := verbs.Ability[verbs.ProviderKernelDevice](d.Provider()); ok {
		return k.KernelName()
	}
	return ""
}

func (r *kernelRoute) await(ctx context.Context, want Event) error {
	ev, err := r.end.next(ctx, nil)
	switch {
	case err != nil:
		return err
	case ev.event != want || ev.status != 0:
		return eventError(ev.event, ev.status)
	}
	return nil
}

// RemoteAddr implements Route.
func (r *kernelRoute) RemoteAddr() net.Addr { return r.remote }

// PortNum implements Route.
func (r *kernelRoute) PortNum() int { return r.id().where().port }

// Close implements Route. It frees the ID unless Connect took ownership.
func (r *kernelRoute) Close() error {
	if !r.taken {
		r.id().destroy()
	}
	return nil
}

// Bind implements Route.
func (r *kernelRoute) Bind(qp *verbs.QP) error { return bindKernel(r.id(), qp) }
