// SPDX-License-Identifier: BSD-3-Clause

package cm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/goverbs/goverbs/internal/lifetime"
	"github.com/goverbs/goverbs/verbs"
)

// Listener takes connection requests. All methods may be called concurrently.
type Listener struct {
	node lifetime.Node
	vctx *verbs.Context
	p    ProviderListener
}

// Listen listens on address, "host:port" (rdma_listen(3)): an empty host means every address of the device, port 0 any
// free port. ctx bounds the call only. The caller closes the listener.
func Listen(ctx context.Context, address string, cfg Config) (*Listener, error) {
	vctx, err := cfg.context("Listen", address)
	if err != nil {
		return nil, err
	}
	p, err := provider("Listen", address, vctx)
	if err != nil {
		return nil, err
	}
	backlog := cfg.Backlog
	if backlog == 0 {
		backlog = DefaultBacklog
	}
	if backlog < 0 {
		return nil, opError("Listen", address, fmt.Errorf("%w: backlog %d", verbs.ErrInvalid, backlog))
	}
	ln, err := p.Listen(ctx, address, backlog)
	if err != nil {
		return nil, opError("Listen", address, err)
	}
	l := &Listener{vctx: vctx, p: ln}
	if err := l.node.Init("cm.Listener", l.Close); err != nil {
		return nil, opError("Listen", address, errors.Join(err, ln.Close()))
	}
	return l, nil
}

// Addr returns the address that is listened on.
func (l *Listener) Addr() net.Addr { return l.p.Addr() }

// Context returns the verbs context of the requests.
func (l *Listener) Context() *verbs.Context { return l.vctx }

// Accept waits for the next request. The error Is ctx.Err() when ctx is done and verbs.ErrClosed when the listener is
// closed.
func (l *Listener) Accept(ctx context.Context) (*Request, error) {
	if l.node.Closed() {
		return nil, opError("Accept", l.p.Addr().String(), verbs.ErrClosed)
	}
	p, err := l.p.Accept(ctx)
	if err != nil {
		return nil, opError("Accept", l.p.Addr().String(), err)
	}
	return &Request{vctx: l.vctx, p: p}, nil
}

// Close ends every Accept and refuses the requests that wait. Connections and requests that were taken go on. It is
// idempotent and may be called on nil.
func (l *Listener) Close() error {
	if l == nil {
		return nil
	}
	first, err := l.node.BeginClose()
	if !first || err != nil {
		return opError("Close", l.p.Addr().String(), err)
	}
	err = l.p.Close()
	l.node.End()
	return opError("Close", l.p.Addr().String(), err)
}

// Request is a peer's wish to connect. It is answered once, by Accept or Reject; a request that is dropped without an
// answer leaves the peer to its time-out.
type Request struct {
	vctx *verbs.Context
	p    ProviderRequest

	mu       sync.Mutex
	answered bool
}

// Context returns the verbs context for the objects of the connection.
func (r *Request) Context() *verbs.Context { return r.vctx }

// PrivateData returns what the peer sent with its request.
func (r *Request) PrivateData() []byte { return r.p.PrivateData() }

// Depths returns the numbers of Reads and atomics in progress that the peer offers, as requester (ORD) and as responder
// (IRD); -1 where it did not say.
func (r *Request) Depths() (ord, ird int) { return r.p.Depths() }

// LocalAddr returns the address that the peer called.
func (r *Request) LocalAddr() net.Addr { return r.p.LocalAddr() }

// RemoteAddr returns the peer's address.
func (r *Request) RemoteAddr() net.Addr { return r.p.RemoteAddr() }

// BindQP moves a QP from RESET to INIT, so that receives can be posted before Accept; see [ID.BindQP].
func (r *Request) BindQP(qp *verbs.QP) error {
	return bindQP("BindQP", r.p.RemoteAddr().String(), r.vctx, qp)
}

// Accept connects qp and returns when the connection is established (rdma_accept(3) up to RDMA_CM_EVENT_ESTABLISHED).
// When ctx is done before, the attempt is given up and the error Is ctx.Err(). The caller closes the ID.
func (r *Request) Accept(ctx context.Context, qp *verbs.QP, param ConnParam) (*ID, error) {
	address := r.p.RemoteAddr().String()
	if err := bindQP("Accept", address, r.vctx, qp); err != nil {
		return nil, err
	}
	if err := r.answer("Accept"); err != nil {
		return nil, err
	}
	id := &ID{vctx: r.vctx, address: address, remote: r.p.RemoteAddr()}
	if err := id.init(); err != nil {
		return nil, opError("Accept", address, err)
	}
	err := id.establish(ctx, "Accept", qp, func(ctx context.Context) (ProviderConn, error) {
		return r.p.Accept(ctx, qp.Provider(), param)
	})
	if err != nil {
		return nil, errors.Join(err, id.Close())
	}
	return id, nil
}

// Reject refuses the request and sends privateData with the refusal (rdma_reject(3)).
func (r *Request) Reject(privateData []byte) error {
	if err := r.answer("Reject"); err != nil {
		return err
	}
	return opError("Reject", r.p.RemoteAddr().String(), r.p.Reject(privateData))
}

func (r *Request) answer(op string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.answered {
		return opError(op, r.p.RemoteAddr().String(), fmt.Errorf("%w: the request has been answered", verbs.ErrInvalid))
	}
	r.answered = true
	return nil
}
