// SPDX-License-Identifier: BSD-3-Clause

package cm

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"syscall"

	"github.com/goverbs/goverbs/verbs"
)

// listenAuto listens on all devices that have the address: the kernel devices, which share one ID
// of librdmacm, and every registered NIC.
func (l *Listener) listenAuto(ctx context.Context, address string, cfg Config) error {
	devices, err := verbs.Devices()
	if err != nil {
		return err
	}
	m := &multiListener{requests: make(chan ProviderRequest), failures: make(chan error), closed: make(chan struct{})}
	kernel, cause := listenKernel(ctx, address, cfg, nil)
	if cause == nil {
		var vctx *verbs.Context
		l.devices = kernel.devices()
		if len(l.devices) > 0 {
			vctx, cause = l.devices[0].SharedContext()
		}
		if cause != nil {
			return errors.Join(cause, kernel.Close())
		}
		m.add(kernel, vctx)
		address = onPort(address, kernel.Addr())
	} else if ctx.Err() != nil || errors.Is(cause, syscall.EADDRINUSE) {
		return cause
	}
	for i, d := range devices {
		p, ok := verbs.Ability[Provider](d.Provider())
		if !ok || wraps(d, devices[:i]) {
			continue
		}
		vctx, err := d.SharedContext()
		if err == nil {
			cfg.Device, cfg.Context = d, vctx
			var ln ProviderListener
			if ln, err = p.Listen(ctx, address, cfg); err == nil {
				m.add(ln, vctx)
				l.devices = append(l.devices, d)
				address = onPort(address, ln.Addr())
				continue
			}
		}
		// The port may be in use by an iWARP kernel device, or by the first of several NICs.
		if len(m.parts) > 0 && errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, verbs.ErrNotSupported) {
			continue
		}
		return errors.Join(err, m.Close())
	}
	switch len(m.parts) {
	case 0:
		return noDevice(devices, cause)
	case 1:
		l.p, l.vctx = m.parts[0].ln, m.parts[0].vctx
	default:
		m.start()
		l.p, l.vctx = m, m.parts[0].vctx
	}
	return nil
}

// onPort replaces port 0 of an address with the port of at.
func onPort(address string, at net.Addr) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	if n, err := strconv.Atoi(port); err == nil && n == 0 {
		if _, port, err = net.SplitHostPort(at.String()); err == nil {
			return net.JoinHostPort(host, port)
		}
	}
	return address
}

// deviceLister is a ProviderListener of several devices.
type deviceLister interface {
	ProviderListener
	devices() []*verbs.Device
}

// multiListener combines several listeners. One goroutine per listener accepts, and holds one
// request at a time.
type multiListener struct {
	parts    []part
	requests chan ProviderRequest
	failures chan error // of the listeners' Accept
	closed   chan struct{}
	once     sync.Once
	pumps    sync.WaitGroup
	err      error
}

type part struct {
	ln   ProviderListener
	vctx *verbs.Context
}

// partRequest adds the context to a request of a listener whose requests lack one.
type partRequest struct {
	ProviderRequest
	vctx *verbs.Context
}

func (r partRequest) context() *verbs.Context { return r.vctx }

func (m *multiListener) add(ln ProviderListener, vctx *verbs.Context) {
	m.parts = append(m.parts, part{ln, vctx})
}

func (m *multiListener) start() {
	for _, p := range m.parts {
		m.pumps.Go(func() { m.pump(p) })
	}
}

func (m *multiListener) pump(p part) {
	for {
		r, err := p.ln.Accept(context.Background())
		if errors.Is(err, verbs.ErrClosed) {
			return
		}
		if err != nil {
			select {
			case m.failures <- err:
			case <-m.closed:
				return
			}
			continue
		}
		if _, ok := r.(contexter); !ok {
			r = partRequest{r, p.vctx}
		}
		select {
		case m.requests <- r:
		case <-m.closed:
			_ = r.Reject(nil)
			return
		}
	}
}

// Addr implements ProviderListener: all listeners have the same port.
func (m *multiListener) Addr() net.Addr { return m.parts[0].ln.Addr() }

// Accept implements ProviderListener.
func (m *multiListener) Accept(ctx context.Context) (ProviderRequest, error) {
	select {
	case r := <-m.requests:
		return r, nil
	case err := <-m.failures:
		return nil, err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-m.closed:
		return nil, verbs.ErrClosed
	}
}

// Close implements ProviderListener.
func (m *multiListener) Close() error {
	m.once.Do(func() {
		close(m.closed)
		var errs []error
		for _, p := range m.parts {
			errs = append(errs, p.ln.Close())
		}
		m.pumps.Wait()
		m.err = errors.Join(errs...)
	})
	return m.err
}
