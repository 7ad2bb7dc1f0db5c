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

	"github.com/goverbs/goverbs/internal/refusal"
	"github.com/goverbs/goverbs/verbs"
)

// kernelListener is a listening ID. For the wildcard address it is two IDs, one per address family.
// It serves one device, or all kernel devices that have its address.
type kernelListener struct {
	ends       []*endpoint
	ps         PortSpace
	local      kernelAddr
	vctx       *verbs.Context // nil = the shared context of the device on which a request arrives
	backlog    int
	ackTimeout uint8

	mu      sync.Mutex
	waiting []*kernelRequest
	shut    bool
	more    chan struct{} // holds a token while requests wait
	closed  chan struct{}
}

// listenKernel listens on an address of the kernel devices, or of the device of vctx.
func listenKernel(ctx context.Context, address string, cfg Config, vctx *verbs.Context) (deviceLister, error) {
	if err := librdmacm.load(); err != nil {
		return nil, err
	}
	host, port, err := splitAddress(address)
	if err != nil {
		return nil, err
	}
	ips := []netip.Addr{{}}
	if host != "" {
		if ips, err = lookup(ctx, host, netip.Addr{}); err != nil {
			return nil, err
		}
	}
	var first error
	for _, ip := range ips {
		for range 1 + anyRules.portRetries {
			l, err := listenIP(netip.AddrPortFrom(ip, port), cfg, vctx)
			if err == nil {
				return l, nil
			}
			if first == nil {
				first = err
			}
			if port != 0 || !errors.Is(err, syscall.EADDRINUSE) || ctx.Err() != nil {
				break
			}
		}
		if errors.Is(first, syscall.EADDRINUSE) || ctx.Err() != nil {
			break
		}
	}
	return nil, first
}

// listenIP listens on an address, or on both wildcard addresses if at is not valid.
func listenIP(at netip.AddrPort, cfg Config, vctx *verbs.Context) (deviceLister, error) {
	l := &kernelListener{ps: cfg.PortSpace, vctx: vctx, backlog: cfg.Backlog, ackTimeout: cfg.AckTimeout,
		more: make(chan struct{}, 1), closed: make(chan struct{})}
	if at.Addr().IsValid() {
		if err := l.listen(at, &cfg, cfg.AFOnly); err != nil {
			return nil, err
		}
		return l, nil
	}
	if err := l.listen(netip.AddrPortFrom(netip.IPv4Unspecified(), at.Port()), &cfg, true); err != nil {
		return nil, err
	}
	err := l.listen(netip.AddrPortFrom(netip.IPv6Unspecified(), l.local.Port()), &cfg, true)
	if errors.Is(err, syscall.EADDRINUSE) {
		l.destroy()
		return nil, err
	}
	return l, nil // without IPv6 on this host it listens on IPv4 only
}

// kernelBacklog requests the kernel's maximum, 1,024 requests. offer enforces the program's limit
// by refusing further requests: on InfiniBand the kernel does not answer a request for which it has
// no room, and the peer notices only seconds later.
const kernelBacklog = 0

// listen adds an ID.
func (l *kernelListener) listen(at netip.AddrPort, cfg *Config, afOnly bool) error {
	end, err := newEndpoint(l.ps)
	if err != nil {
		return noKernelDevice(err)
	}
	if err := l.listenEnd(end, at, cfg, afOnly); err != nil {
		end.destroy()
		return err
	}
	l.ends = append(l.ends, end)
	l.local, _ = end.where().ends(l.ps)
	return nil
}

func (l *kernelListener) listenEnd(end *endpoint, at netip.AddrPort, cfg *Config, afOnly bool) error {
	if err := end.setOptions(cfg, afOnly); err != nil {
		return err
	}
	if err := end.call(func(id rawID) error { return id.bind(at) }); err != nil {
		// If one of two addresses is the wildcard, the kernel reports a port in use as
		// EADDRNOTAVAIL (cma_check_port). 0.0.0.0 itself is always available.
		if at.Addr() == netip.IPv4Unspecified() && errors.Is(err, syscall.EADDRNOTAVAIL) {
			err = syscall.EADDRINUSE
		}
		return noWay(kernelAddr{at, l.ps}, end.callError("rdma_bind_addr", err))
	}
	// The ID is bound to an address of one device, or to none for the wildcard.
	if name := end.where().device; name != "" {
		vctx, err := kernelContext(l.vctx, name, fmt.Sprintf("the address %v is", at.Addr()))
		if err != nil {
			return err
		}
		if _, err := deviceOf(vctx, l.ps); err != nil {
			return err
		}
		l.vctx = vctx
	}
	end.setAccept(l.offer)
	err := end.call(func(id rawID) error { return id.listen(kernelBacklog) })
	return noWay(kernelAddr{at, l.ps}, end.callError("rdma_listen", err))
}

func (l *kernelListener) destroy() {
	for _, end := range l.ends {
		end.destroy()
	}
}

// offer accepts a request from the dispatcher, or returns the private data of the refusal.
func (l *kernelListener) offer(ev rawEvent) (taken bool, private []byte) {
	place := ev.end.where()
	if l.vctx != nil && kernelName(l.vctx.Device()) != place.device {
		return false, nil
	}
	r := &kernelRequest{end: ev.end, ps: l.ps, device: place.device, port: place.port, ackTimeout: l.ackTimeout,
		vctx: l.vctx, private: ev.data, ord: ev.responderResources, ird: ev.initiatorDepth}
	r.local, r.remote = place.ends(l.ps)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.shut:
		return false, nil
	case len(l.waiting) >= l.backlog:
		return false, refusal.Data(refusal.BacklogFull)
	}
	l.waiting = append(l.waiting, r)
	l.wakeLocked()
	return true, nil
}

func (l *kernelListener) wakeLocked() {
	if len(l.waiting) > 0 {
		select {
		case l.more <- struct{}{}:
		default:
		}
	}
}

func (l *kernelListener) take() (r *kernelRequest, shut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 {
		return nil, l.shut
	}
	r = l.waiting[0]
	l.waiting = l.waiting[1:]
	l.wakeLocked()
	return r, false
}

// Addr implements ProviderListener.
func (l *kernelListener) Addr() net.Addr { return l.local }

// devices implements deviceLister.
func (l *kernelListener) devices() []*verbs.Device {
	if l.vctx != nil {
		return []*verbs.Device{l.vctx.Device()}
	}
	all, _ := verbs.Devices() // after an error there is none to return
	var ours []*verbs.Device
	for _, d := range all {
		if ofKernel(d) {
			ours = append(ours, d)
		}
	}
	return ours
}

// Accept implements ProviderListener.
func (l *kernelListener) Accept(ctx context.Context) (ProviderRequest, error) {
	for {
		r, shut := l.take()
		if shut {
			return nil, verbs.ErrClosed
		}
		if r != nil {
			err := r.prepare()
			if err == nil {
				return r, nil
			}
			// The device of this request cannot be opened. Other requests may be on other devices.
			_ = r.Reject(nil)
			continue
		}
		select {
		case <-l.more:
		case <-l.closed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Close implements ProviderListener.
func (l *kernelListener) Close() error {
	l.mu.Lock()
	shut := l.shut
	l.shut = true
	waiting := l.waiting
	l.waiting = nil
	l.mu.Unlock()
	if shut {
		return nil
	}
	close(l.closed)
	l.destroy()
	for _, r := range waiting {
		_ = r.Reject(nil)
	}
	return nil
}
