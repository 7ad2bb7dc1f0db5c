// SPDX-License-Identifier: BSD-3-Clause

package siw

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/siw/mpa"
	"github.com/goverbs/goverbs/verbs"
)

// maxHandshakes limits the streams of one listener whose Request has not arrived yet. Further ones are closed, so that peers
// that connect and stay silent cannot use up the process's descriptors.
const maxHandshakes = 1024

// listener accepts streams, reads their Requests and keeps them for Accept (cm.ProviderListener).
type listener struct {
	dev      *device
	ln       net.Listener
	requests chan *request
	closed   chan struct{}
	ctx      context.Context // ends the handshakes
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
		case ip.Is4():
			network = "tcp4" // of 0.0.0.0 package net would make a socket for both families
		case cfg.AFOnly && ip.Unmap().Is6():
			network = "tcp6"
		}
	}
	ln, err := d.cfg.Network.Listen(ctx, network, address)
	if err != nil {
		return nil, err
	}
	l := &listener{dev: d, ln: ln, requests: make(chan *request, cfg.Backlog), closed: make(chan struct{})}
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
	slots := make(chan struct{}, maxHandshakes)
	var silent sources
	before := newArrival()
	close(before.read)
	close(before.over)
	for {
		nc, err := l.ln.Accept()
		if err != nil {
			select {
			case <-l.closed:
				return
			case <-time.After(10 * time.Millisecond):
				// A stream was reset before it was accepted, or no descriptor is free at the moment.
				continue
			}
		}
		from := sourceOf(nc.RemoteAddr())
		if !silent.take(from, l.dev.cfg.MaxSilent) {
			nc.Close()
			continue
		}
		select {
		case slots <- struct{}{}:
			earlier, this := before, newArrival()
			before = this
			l.workers.Go(func() {
				l.handshake(nc, earlier, this)
				close(this.over)
				silent.give(from)
				<-slots
			})
		default:
			silent.give(from)
			nc.Close()
		}
	}
}

// sources counts the streams of each address whose Request has not arrived yet, so that one address cannot take all places of
// a listener.
type sources struct {
	mu sync.Mutex // guards n
	n  map[netip.Addr]int
}

// sourceOf returns the address that a stream comes from. For a loopback address and an unknown one, as in a configured Network,
// it returns the zero Addr, which is not counted.
func sourceOf(remote net.Addr) netip.Addr {
	tcp, ok := remote.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	from := tcp.AddrPort().Addr().Unmap()
	if from.IsLoopback() {
		return netip.Addr{}
	}
	return from
}

// take counts a stream. It reports false if the address already has limit streams.
func (s *sources) take(from netip.Addr, limit int) bool {
	if !from.IsValid() {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n == nil {
		s.n = make(map[netip.Addr]int)
	}
	if s.n[from] >= limit {
		return false
	}
	s.n[from]++
	return true
}

// give is the opposite of take.
func (s *sources) give(from netip.Addr) {
	if !from.IsValid() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n[from]--; s.n[from] == 0 {
		delete(s.n, from)
	}
}

// orderTimeout is how long a stream whose Request is there waits for that of the stream which was accepted before it. The Requests
// of a peer that opens one connection after another are queued in that order, although each is read by a goroutine of its own;
// and a stream that stays silent delays the next one by this time at most.
const orderTimeout = 100 * time.Millisecond

// arrival tells the stream that was accepted next how far this one is.
type arrival struct {
	read chan struct{} // closed when its Request is there; if none comes, never
	over chan struct{} // closed when it has been queued, or will not be
}

func newArrival() *arrival { return &arrival{make(chan struct{}), make(chan struct{})} }

// await waits until the stream is over, unless its Request does not come.
func (a *arrival) await(closed <-chan struct{}) {
	timer := time.NewTimer(orderTimeout)
	defer timer.Stop()
	select {
	case <-a.read:
		select {
		case <-a.over: // soon: it waits only as this one does
		case <-closed:
		}
	case <-a.over:
	case <-timer.C:
	case <-closed:
	}
}

// handshake reads the Request of a new stream and queues it for Accept, after that of the stream before it.
func (l *listener) handshake(nc net.Conn, earlier, this *arrival) {
	nc = l.dev.tapped(nc)
	var f mpa.Frame
	err := bounded(l.ctx, nc, time.Now(), l.dev.cfg.setupTimeout(false), func() (err error) {
		f, err = readRequest(nc)
		return err
	})
	if err != nil {
		nc.Close()
		return
	}
	r := &request{dev: l.dev, nc: nc, frame: f}
	close(this.read)
	earlier.await(l.closed)
	select {
	case <-l.closed:
	case l.requests <- r:
		return
	default:
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
		close(l.requests) // no goroutine can send any more
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
func (r *request) Bind(qp *verbs.QP) error { return cm.InitQP(qp) }

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
	// The connection is established when the peer's first message has arrived (RFC 6581 section 9.3).
	timer := time.NewTimer(timeout - time.Since(began))
	defer timer.Stop()
	select {
	case <-c.spoken:
		return c, nil
	case <-c.flushed:
		err = fmt.Errorf("the connection ended during set-up: %w", c.Err())
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = fmt.Errorf("%w after %v: the peer did not send its first message", cm.ErrSetupTimeout, timeout)
	}
	_ = c.Disconnect() // does not wait until the stream is closed
	return nil, err
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
	// The socket of a new stream has room for the frame.
	_ = r.nc.SetWriteDeadline(time.Now().Add(rejectTimeout))
	if _, err := r.nc.Write(frame); err != nil {
		r.nc.Close()
		return nil // the peer has gone, or takes nothing
	}
	r.dev.rejected(r.nc)
	return nil
}

const (
	// rejectTimeout bounds the orderly end of a stream that was rejected: the peer should close it first, so that the frame is not lost
	// if more of it arrives.
	rejectTimeout = time.Second
	// maxRejected is how many such streams may be open. Others are closed at once.
	maxRejected = 256
)

// rejected ends a stream on which a rejection has been written. It waits only if the NIC is being closed.
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
