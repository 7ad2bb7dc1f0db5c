// SPDX-License-Identifier: BSD-3-Clause

package rsocket

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/backlog"
	"github.com/goverbs/goverbs/internal/refusal"
	"github.com/goverbs/goverbs/verbs"
)

// setupTimeout bounds the setup of an incoming connection.
const setupTimeout = 20 * time.Second

// Listener is a net.Listener. It accepts connections in the background, as rsockets do, and queues
// them for Accept. All methods may be called concurrently.
type Listener struct {
	cfg     Config
	ln      *cm.Listener
	addr    net.Addr
	queue   chan *Conn // holds up to backlog connections
	closed  chan struct{}
	cancel  context.CancelFunc // cancels setups
	workers sync.WaitGroup
	once    sync.Once
	passed  deadline

	failures chan error // holds the last transient error, such as running out of descriptors
	setups   setups
}

// Listen listens on "host:port" on every device that has the address, with the defaults of Config.
func Listen(address string) (*Listener, error) {
	lc := ListenConfig{}
	return lc.Listen(context.Background(), "tcp", address)
}

// Listen listens on address, "host:port". An empty host means every address of the device, port 0
// any free port. The network is one of those accepted by [Dialer.DialContext]; "tcp6" accepts no
// connections over IPv4. ctx applies only to the call.
func (lc *ListenConfig) Listen(ctx context.Context, network, address string) (*Listener, error) {
	l, err := lc.listen(ctx, network, address)
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: wireNet, Addr: name(address), Err: err}
	}
	return l, nil
}

func (lc *ListenConfig) listen(ctx context.Context, network, address string) (*Listener, error) {
	cfg, err := lc.Config.fill()
	if err != nil {
		return nil, err
	}
	if lc.Backlog < 0 {
		return nil, invalid("ListenConfig.Backlog: %d", lc.Backlog)
	}
	if address, err = inFamily(ctx, network, address); err != nil {
		return nil, err
	}
	at := cfg.connection()
	at.AFOnly = network == "tcp6"
	ln, err := cm.Listen(ctx, address, at)
	if err != nil {
		return nil, err
	}
	for _, dev := range ln.Devices() {
		if err := usable(dev); err != nil {
			return nil, and(err, ln.Close())
		}
	}
	l := &Listener{cfg: cfg, ln: ln, addr: tcpAddr(ln.Addr()), queue: make(chan *Conn, backlog.Of(lc.Backlog)),
		closed: make(chan struct{}), failures: make(chan error, 1), setups: newSetups()}
	l.passed.init(func() {})
	var work context.Context
	work, l.cancel = context.WithCancel(context.Background())
	l.workers.Go(func() { l.serve(work) })
	return l, nil
}

// serve handles requests until the listener is closed.
func (l *Listener) serve(ctx context.Context) {
	for {
		req, err := l.ln.Accept(ctx)
		switch {
		case errors.Is(err, verbs.ErrClosed) || ctx.Err() != nil:
			return
		case err != nil:
			l.fail(err)
			time.Sleep(acceptPause)
			continue
		}
		from := addrOf(req.RemoteAddr())
		if len(l.queue) == cap(l.queue) || !l.setups.enter(from) {
			_ = req.Reject(refusal.Data(refusal.BacklogFull))
			continue
		}
		l.workers.Go(func() {
			defer l.setups.leave(from)
			l.accept(ctx, from, req)
		})
	}
}

// acceptPause is the delay after an error before the next attempt to accept a request.
const acceptPause = 10 * time.Millisecond

// fail makes an Accept return a transient error.
func (l *Listener) fail(err error) {
	select {
	case l.failures <- err:
	default: // the previous error is still pending
	}
}

// accept sets up a connection. Failures concern only its peer, except for running out of
// descriptors.
func (l *Listener) accept(ctx context.Context, from netip.Addr, req *cm.Request) {
	ctx, cancel := context.WithTimeout(ctx, setupTimeout)
	defer cancel()
	work, done, err := l.setups.begin(ctx, from)
	if err != nil {
		_ = req.Reject(refusal.Data(refusal.BacklogFull))
		return
	}
	c, err := accept(work, req, l.cfg)
	done()
	if err != nil {
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
			l.fail(err)
		}
		return
	}
	select {
	case <-l.failures: // descriptors are available again
	default:
	}
	select {
	case l.queue <- c:
	case <-ctx.Done(): // the program is not accepting connections
		_ = c.SetLinger(0)
		_ = c.Close()
	}
}

// accept answers a request and returns the established connection.
func accept(ctx context.Context, req *cm.Request, cfg Config) (*Conn, error) {
	peer, err := parseConnData(req.PrivateData())
	if err != nil {
		return nil, and(err, req.Reject(nil))
	}
	res, err := newResources(req.Context(), cfg)
	if err != nil {
		return nil, and(err, req.Reject(nil))
	}
	if err = req.BindQP(res.qp); err == nil {
		err = res.postAll()
	}
	if err != nil {
		return nil, and(err, req.Reject(nil), res.close())
	}
	id, err := req.Accept(ctx, res.qp, res.param())
	if err != nil {
		return nil, and(err, res.close())
	}
	c := newConn(res)
	c.hush(req.Context().Device())
	c.start(id, &peer)
	return c, nil
}

// Accept returns the next connection, a [*Conn].
func (l *Listener) Accept() (net.Conn, error) {
	c, err := l.AcceptConn()
	if err != nil {
		return nil, err
	}
	return c, nil
}

// AcceptConn is like Accept but returns a *Conn. The error Is net.ErrClosed after Close and
// os.ErrDeadlineExceeded after the deadline.
func (l *Listener) AcceptConn() (*Conn, error) {
	c, err := l.next()
	return c, opError("accept", nil, l.addr, err)
}

func (l *Listener) next() (*Conn, error) {
	for {
		select {
		case <-l.closed:
			return nil, net.ErrClosed
		default:
		}
		passed := l.passed.channel()
		if l.passed.past.Load() {
			return nil, os.ErrDeadlineExceeded
		}
		select {
		case c := <-l.queue:
			return c, nil
		case err := <-l.failures:
			return nil, lack(err)
		case <-passed:
		case <-l.closed:
		}
	}
}

// lack converts a transient error to the form that servers such as net/http recognize: its
// Temporary method returns true.
func lack(err error) error {
	var no syscall.Errno
	if errors.As(err, &no) {
		return os.NewSyscallError("accept", no)
	}
	return err
}

// SetDeadline sets the time after which Accept fails; the zero time means no deadline.
func (l *Listener) SetDeadline(t time.Time) error {
	select {
	case <-l.closed:
		return opError("set", nil, l.addr, net.ErrClosed)
	default:
	}
	l.passed.set(t)
	return nil
}

// Addr returns the listener's address, a *net.TCPAddr.
func (l *Listener) Addr() net.Addr { return l.addr }

// Devices returns the devices on which the listener listens.
func (l *Listener) Devices() []*verbs.Device { return l.ln.Devices() }

// Close unblocks every Accept, refuses requests, and closes the connections that no Accept has
// returned. Other connections stay open.
func (l *Listener) Close() error {
	err := net.ErrClosed
	l.once.Do(func() {
		close(l.closed)
		l.passed.stop()
		err = l.ln.Close()
		l.cancel()
		l.workers.Wait()
		for {
			select {
			case c := <-l.queue:
				_ = c.Close()
				continue
			default:
			}
			return
		}
	})
	return opError("close", nil, l.addr, err)
}

// stateText returns the state of the listener for printing.
func (l *Listener) stateText() string {
	select {
	case <-l.closed:
		return "closed"
	default:
		return "listening"
	}
}

func names(devices []*verbs.Device) string {
	var list []string
	for _, d := range devices {
		list = append(list, d.Name())
	}
	return strings.Join(list, ",")
}
