// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/cmprovider"
	"github.com/goverbs/goverbs/internal/iwarp/mpa"
	"github.com/goverbs/goverbs/internal/refusal"
	"github.com/goverbs/goverbs/verbs"
)

// listener accepts streams, reads their Requests and queues them for Accept (cm.ProviderListener).
type listener struct {
	dev      *device
	ln       net.Listener
	requests chan *request // requests waiting for Accept
	failures chan error    // the last error of the listening socket
	closed   chan struct{}
	ctx      context.Context // cancels the handshakes
	cancel   context.CancelFunc
	workers  sync.WaitGroup // the accept loop and the handshakes
	waiters  sync.WaitGroup // Accepts
	once     sync.Once

	mu   sync.Mutex // guards shut, and waiters.Add
	shut bool
}

// Listen implements cm.Provider.
func (d *device) Listen(ctx context.Context, address string, cfg cm.Config) (cm.ProviderListener, error) {
	if err := d.accepts(&cfg); err != nil {
		return nil, err
	}
	var host string
	if d.isHost() {
		var port int
		var err error
		host, port, err = splitAddress(address)
		if err != nil {
			return nil, err
		}
		if host == "" && d.cfg.Addr.IsValid() {
			host = d.cfg.Addr.String()
		}
		address = net.JoinHostPort(host, fmt.Sprint(port))
	}
	network := "tcp"
	if ip, err := netip.ParseAddr(host); err == nil {
		switch {
		case ip.Unmap().Is4():
			network = "tcp4" // for 0.0.0.0, package net would create a socket for both families
		case cfg.AFOnly:
			network = "tcp6"
		}
	}
	ln, err := d.cfg.Network.Listen(ctx, network, address)
	if err != nil {
		return nil, err
	}
	l := &listener{dev: d, ln: ln, requests: make(chan *request, cfg.Backlog), failures: make(chan error, 1),
		closed: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	d.mu.Lock()
	closed := d.guard.Closed()
	if !closed {
		d.listeners[l] = struct{}{}
	}
	d.mu.Unlock()
	if closed {
		ln.Close()
		return nil, verbs.ErrClosed
	}
	l.workers.Go(l.serve)
	return l, nil
}

func (l *listener) Addr() net.Addr { return l.ln.Addr() }

// serve accepts streams until the listener is closed.
func (l *listener) serve() {
	var all sources
	for {
		nc, err := l.ln.Accept()
		if err != nil {
			select {
			case <-l.closed:
				return
			case <-time.After(acceptPause):
				l.fail(err)
				continue
			}
		}
		select {
		case <-l.failures: // drop an error that did not persist
		default:
		}
		from, earlier, this := all.enter(sourceOf(nc.RemoteAddr()))
		l.workers.Go(func() {
			defer all.leave(from, this)
			silence := all.listen(from, l.dev.cfg.MaxSilent, func() { nc.Close() })
			r, err := l.handshake(nc)
			if !all.hear(from, silence) || err != nil {
				return
			}
			close(this.read)
			earlier.await(l.closed)
			l.queue(r)
		})
	}
}

// acceptPause is the pause between attempts to accept a stream while an error persists, such as a
// lack of descriptors.
const acceptPause = 10 * time.Millisecond

// fail makes an Accept return an error of the listening socket.
func (l *listener) fail(err error) {
	select {
	case l.failures <- err:
	default: // no Accept has returned the previous one
	}
}

// handshake reads the Request of a new stream.
func (l *listener) handshake(nc net.Conn) (*request, error) {
	nc = l.dev.tapped(nc)
	var f mpa.Frame
	err := bounded(l.ctx, nc, time.Now(), l.dev.cfg.setupTimeout(false), func() (err error) {
		f, err = readRequest(nc)
		return err
	})
	if err != nil {
		nc.Close()
		return nil, err
	}
	return &request{dev: l.dev, nc: nc, frame: f}, nil
}

// queue queues a request for Accept, or rejects it.
func (l *listener) queue(r *request) {
	select {
	case <-l.closed:
	case l.requests <- r:
		return
	default:
		_ = r.Reject(refusal.Data(refusal.BacklogFull))
		return
	}
	_ = r.Reject(nil)
}

func (l *listener) Accept(ctx context.Context) (cm.ProviderRequest, error) {
	l.mu.Lock()
	if l.shut {
		l.mu.Unlock()
		return nil, verbs.ErrClosed
	}
	l.waiters.Add(1)
	l.mu.Unlock()
	defer l.waiters.Done()
	select {
	case r := <-l.requests:
		return r, nil
	default:
	}
	select {
	case r := <-l.requests:
		return r, nil
	case err := <-l.failures:
		return nil, err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-l.closed:
		return nil, verbs.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() {
		l.mu.Lock()
		l.shut = true
		l.mu.Unlock()
		close(l.closed)
		l.cancel()
		l.ln.Close()
		l.workers.Wait()
		l.waiters.Wait()
		close(l.requests) // no goroutine sends from here on
		var rejections sync.WaitGroup
		for r := range l.requests {
			rejections.Go(func() { _ = r.Reject(nil) })
		}
		rejections.Wait()
		l.dev.mu.Lock()
		delete(l.dev.listeners, l)
		l.dev.mu.Unlock()
	})
	return nil
}

// request is a stream whose Request has been read (cm.ProviderRequest).
type request struct {
	dev   *device
	nc    net.Conn
	frame mpa.Frame
}

func (r *request) LocalAddr() net.Addr  { return r.nc.LocalAddr() }
func (r *request) RemoteAddr() net.Addr { return r.nc.RemoteAddr() }
func (r *request) PrivateData() []byte  { return r.frame.PrivateData }

func (r *request) Depths() (ord, ird int) {
	d := said(&r.frame)
	return d.ord, d.ird
}

// PortNum implements cm.ProviderRequest.
func (r *request) PortNum() int { return 1 }

// Bind implements cm.ProviderRequest.
func (r *request) Bind(qp *verbs.QP) error { return cmprovider.InitQP(qp) }

// Accept implements cm.ProviderRequest.
func (r *request) Accept(ctx context.Context, qp *verbs.QP, param cm.ConnParam) (cm.ProviderConn, error) {
	want, err := r.dev.depths(&param)
	if err != nil {
		r.nc.Close()
		return nil, err
	}
	rep, agreed, err := r.dev.respond(&r.frame, want, param.PrivateData)
	if err != nil {
		r.nc.Close()
		return nil, err
	}
	frame, err := rep.Append(nil)
	if err != nil {
		r.nc.Close()
		return nil, err
	}
	timeout := r.dev.cfg.setupTimeout(false)
	began := time.Now()
	c, err := r.dev.establish(ctx, qp, func(ctx context.Context) (net.Conn, setup, error) {
		return r.nc, agreed, bounded(ctx, r.nc, began, timeout, func() error {
			_, err := r.nc.Write(frame)
			return err
		})
	})
	if err != nil {
		r.nc.Close()
		return nil, err
	}
	if !agreed.rtr {
		return c, nil
	}
	late := time.NewTimer(timeout - time.Since(began))
	defer late.Stop()
	if err := c.opened(ctx, late.C); err != nil {
		if err == cm.ErrSetupTimeout {
			err = fmt.Errorf("%w after %v: the peer did not send its first message", err, timeout)
		}
		_ = c.Disconnect() // does not wait for the stream to close
		return nil, err
	}
	return c, nil
}

// opened waits for the peer's first message, which establishes the connection (RFC 6581
// section 9.3). On a busy machine the message may arrive, or even be handled, long before the
// goroutines of the connection run: it still counts as in time. A peer that closes the connection
// right after its message has still opened it.
func (c *conn) opened(ctx context.Context, late <-chan time.Time) (err error) {
	select {
	case <-c.spoken:
	case <-c.flushed:
		err = fmt.Errorf("the connection ended during set-up: %w", c.Err())
	case <-ctx.Done():
		return ctx.Err()
	case <-late:
		c.receive()
		err = cm.ErrSetupTimeout
	}
	select {
	case <-c.spoken:
		return nil
	default:
		return err
	}
}

// Reject implements cm.ProviderRequest. It does not wait for the peer.
func (r *request) Reject(private []byte) error {
	if err := checkPrivate(private, r.frame.HasEnhanced); err != nil {
		r.nc.Close()
		return err
	}
	rep := r.dev.refusal(&r.frame, private)
	frame, err := rep.Append(nil)
	if err != nil {
		r.nc.Close()
		return err
	}
	// A new stream's socket has room for the frame.
	_ = r.nc.SetWriteDeadline(time.Now().Add(rejectTimeout))
	if _, err := r.nc.Write(frame); err != nil {
		r.nc.Close()
		return nil // the peer is gone, or does not read
	}
	r.dev.rejected(r.nc)
	return nil
}

const (
	// rejectTimeout bounds the orderly shutdown of a rejected stream. The peer should close it
	// first: if its data arrived at a closed socket, the reset could destroy the rejection.
	rejectTimeout = time.Second
	// maxRejected limits the rejected streams that are still open. Beyond that, streams are closed
	// at once.
	maxRejected = 256
)

// rejected shuts down a stream after the rejection has been written. It waits only if the NIC is
// being closed.
func (d *device) rejected(nc net.Conn) {
	end := func() { finishConn(context.Background(), nc, nil, time.Now().Add(rejectTimeout)) }
	d.mu.Lock()
	closing, over := d.guard.Closed(), d.rejects == maxRejected
	if !closing && !over {
		d.rejects++
		d.rejecting.Go(func() {
			end()
			d.mu.Lock()
			d.rejects--
			d.mu.Unlock()
		})
	}
	d.mu.Unlock()
	switch {
	case closing:
		end()
	case over:
		nc.Close()
	}
}
