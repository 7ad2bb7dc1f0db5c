// SPDX-License-Identifier: BSD-3-Clause

package cm

import (
	"context"
	"net"

	"github.com/goverbs/goverbs/verbs"
)

// kernelRequest is the ID of a request.
type kernelRequest struct {
	end           *endpoint
	ps            PortSpace
	device        string
	vctx          *verbs.Context
	dev           kernelDevice
	local, remote kernelAddr
	private       []byte
	ord, ird      int // of the peer, -1 if it sent none
	port          int
	ackTimeout    uint8
}

// prepare finds the device on which the request arrived.
func (r *kernelRequest) prepare() (err error) {
	if r.vctx, err = kernelContext(r.vctx, r.device, "the request is"); err != nil {
		return err
	}
	if r.dev, err = deviceOf(r.vctx, r.ps); err != nil {
		return err
	}
	if r.dev.silentDepths && r.ord == 0 && r.ird == 0 {
		r.ord, r.ird = -1, -1
	}
	return nil
}

// context implements contexter.
func (r *kernelRequest) context() *verbs.Context { return r.vctx }

// LocalAddr implements ProviderRequest.
func (r *kernelRequest) LocalAddr() net.Addr { return r.local }

// RemoteAddr implements ProviderRequest.
func (r *kernelRequest) RemoteAddr() net.Addr { return r.remote }

// PrivateData implements ProviderRequest.
func (r *kernelRequest) PrivateData() []byte { return r.private }

// Depths implements ProviderRequest.
func (r *kernelRequest) Depths() (ord, ird int) { return r.ord, r.ird }

// PortNum implements ProviderRequest.
func (r *kernelRequest) PortNum() int { return r.port }

// Bind implements ProviderRequest.
func (r *kernelRequest) Bind(qp *verbs.QP) error { return bindKernel(r.end, qp) }

// Accept implements ProviderRequest.
func (r *kernelRequest) Accept(ctx context.Context, qp *verbs.QP, param ConnParam) (conn ProviderConn, err error) {
	a := &attempt{end: r.end, dev: r.dev, ps: r.ps, qp: qp}
	if err := a.begin(param, r.dev.reply); err != nil {
		_ = r.Reject(nil)
		return nil, err
	}
	defer func() { a.finish(err) }()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := r.end.setAckTimeout(r.ackTimeout); err != nil {
		return nil, err
	}
	if r.ord >= 0 {
		a.param.initiatorDepth = min(a.param.initiatorDepth, r.ird)
		a.param.responderResources = min(a.param.responderResources, r.ord)
	}
	c := &kernelConn{end: r.end, qp: qp, dev: a.dev, ps: a.ps, private: r.private,
		ord: a.param.initiatorDepth, ird: a.param.responderResources}
	if c.peer = [2]int{-1, -1}; a.ps != PortSpaceUDP {
		c.peer[0], c.peer[1] = r.Depths()
	}
	switch {
	case a.ps == PortSpaceUDP:
		err = raiseUD(qp)
	case !a.dev.iwarp:
		a.touched = true
		err = raise(r.end, qp, c.ord, c.ird, a.minRNR)
	}
	if err != nil {
		return nil, err
	}
	a.touched = a.ps != PortSpaceUDP
	if err := r.end.call(func(id rawID) error { return id.accept(a.param) }); err != nil {
		return nil, r.end.callError("rdma_accept", err)
	}
	if a.ps != PortSpaceUDP { // datagrams have no event after the answer
		ev, err := a.await(ctx)
		if err != nil {
			return nil, err
		}
		if a.dev.iwarp {
			// Kernel siw serves at least as many as the peer requested, and has fewer outstanding
			// than this side requested if the peer serves fewer.
			c.ord, c.ird = min(c.ord, ev.responderResources), ev.initiatorDepth
			c.arrived()
		}
	}
	c.start(a.failed)
	return c, nil
}

// Reject implements ProviderRequest.
func (r *kernelRequest) Reject(private []byte) error {
	if err := checkPrivate(private, r.dev.reject); err != nil {
		r.end.destroy()
		return err
	}
	err := r.end.callError("rdma_reject", r.end.call(func(id rawID) error { return id.reject(private) }))
	r.end.destroy()
	return err
}
