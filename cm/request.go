// SPDX-License-Identifier: BSD-3-Clause

package cm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"github.com/goverbs/goverbs/verbs"
)

// Request is a peer's request to connect. The program must answer it once, with Accept or Reject.
// Otherwise the peer waits until its timeout, and on kernel devices librdmacm never frees its
// memory for the request.
type Request struct {
	vctx          *verbs.Context
	p             ProviderRequest
	local, remote net.Addr
	answered      atomic.Bool
}

// Context returns the verbs context for the objects of the connection.
func (r *Request) Context() *verbs.Context { return r.vctx }

// PrivateData returns the private data of the peer's request.
func (r *Request) PrivateData() []byte { return r.p.PrivateData() }

// Depths returns the numbers of outstanding Reads and atomics that the peer offers, as requester
// (ORD) and as responder (IRD); -1 if the peer sent none.
func (r *Request) Depths() (ord, ird int) { return r.p.Depths() }

// PortNum returns the device port, from 1, on which the request arrived (port_num of struct
// rdma_cm_id).
func (r *Request) PortNum() int { return r.p.PortNum() }

// LocalAddr returns the local address that the peer connects to.
func (r *Request) LocalAddr() net.Addr { return r.local }

// RemoteAddr returns the peer's address.
func (r *Request) RemoteAddr() net.Addr { return r.remote }

// BindQP moves a QP from RESET to INIT, so that receives can be posted before Accept; see
// [ID.BindQP].
func (r *Request) BindQP(qp *verbs.QP) error {
	return opError("BindQP", r.remote.String(), bindQP(r.vctx, qp, r.p.Bind))
}

// Accept connects qp and returns when the connection is established (rdma_accept(3) up to
// RDMA_CM_EVENT_ESTABLISHED). If ctx is done first, the attempt is abandoned and the error Is
// ctx.Err(). The caller closes the ID.
func (r *Request) Accept(ctx context.Context, qp *verbs.QP, param ConnParam) (*ID, error) {
	address := r.remote.String()
	if err := bindQP(r.vctx, qp, r.p.Bind); err != nil {
		if !errors.Is(err, verbs.ErrForeign) && !errors.Is(err, verbs.ErrInvalid) && !errors.Is(err, verbs.ErrState) {
			// This is not the caller's mistake: the peer may be gone, and another QP would not
			// help.
			if r.answer("Accept") == nil {
				_ = r.p.Reject(nil)
			}
		}
		return nil, opError("Accept", address, err)
	}
	if err := r.answer("Accept"); err != nil {
		return nil, err
	}
	id := newID(r.vctx, address, r.remote, r.p.PortNum(), r.p.Bind)
	err := id.establish(ctx, "Accept", qp, func(ctx context.Context) (ProviderConn, error) {
		return r.p.Accept(ctx, qp, param)
	})
	if err != nil {
		return nil, and(err, id.Close())
	}
	return id, nil
}

// Reject refuses the request and sends privateData with the refusal (rdma_reject(3)).
func (r *Request) Reject(privateData []byte) error {
	if err := r.answer("Reject"); err != nil {
		return err
	}
	return opError("Reject", r.remote.String(), r.p.Reject(privateData))
}

func (r *Request) answer(op string) error {
	if r.answered.Swap(true) {
		return opError(op, r.remote.String(), fmt.Errorf("%w: the request has been answered", verbs.ErrInvalid))
	}
	return nil
}
