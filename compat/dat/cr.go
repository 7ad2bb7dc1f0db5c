// SPDX-License-Identifier: BSD-3-Clause

package dat

import (
	"bytes"
	"context"
	"net"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/lifetime"
)

// CR is a connection request. The program answers it once, by Accept or Reject; then the handle is
// invalid. A request that is not answered when the IA is closed is refused. All methods may be
// called concurrently.
type CR struct {
	node lifetime.Node
	ia   *IA
	req  *cm.Request
}

// CRParam describes a CR (DAT_CR_PARAM).
type CRParam struct {
	RemoteAddr  net.Addr
	PrivateData []byte // belongs to the program
}

func (ia *IA) newCR(req *cm.Request) (*CR, error) {
	cr := &CR{ia: ia, req: req}
	return cr, cr.node.Init("dat.CR", func() error { return cr.Reject(nil) }, &ia.node)
}

// Query describes the request (dat_cr_query).
func (cr *CR) Query() (CRParam, error) {
	if cr == nil || !cr.node.Enter() {
		return CRParam{}, cr.gone("CR.Query")
	}
	defer cr.node.Exit()
	return CRParam{RemoteAddr: cr.req.RemoteAddr(), PrivateData: bytes.Clone(cr.req.PrivateData())}, nil
}

func (cr *CR) gone(call string) error {
	return fault(call, InvalidHandle, InvalidHandleCR, lifetime.ErrClosed)
}

// Accept connects ep, which is UNCONNECTED and of the same IA (dat_cr_accept). It returns at once;
// what comes of it is an event of the EP's connection EVD: ConnectionEstablished, with the private
// data of the request, or ConnectionAcceptCompletionErr, after which the EP is DISCONNECTED.
// private has MaxPrivateData bytes at most; it is copied. After an error the request is as before.
func (cr *CR) Accept(ep *EP, private []byte) error {
	const call = "CR.Accept"
	if cr == nil || !cr.node.Enter() {
		return cr.gone(call)
	}
	defer cr.node.Exit()
	if ep == nil || ep.ia != cr.ia || !ep.node.Enter() {
		return fault(call, InvalidHandle, InvalidHandleEP, nil)
	}
	defer ep.node.Exit()
	if len(private) > MaxPrivateData {
		return argument(call, InvalidArg3, "%d bytes of private data, of %d", len(private), MaxPrivateData)
	}
	param := ep.param(private)
	claim := func() error {
		if !cr.answered() {
			return cr.gone(call)
		}
		return nil
	}
	return ep.begin(call, EPCompletionPending, Infinite, claim, func(ctx context.Context) (*cm.ID, error) {
		if err := ep.usePort(cr.req.PortNum()); err != nil {
			_ = cr.req.Reject(nil) // the peer may have given up
			return nil, err
		}
		return cr.req.Accept(ctx, ep.qp, param)
	})
}

// Reject refuses the request and sends private, of MaxPrivateData bytes at most, with the refusal
// (dat_cr_reject). After [InvalidParameter] the request is as before.
func (cr *CR) Reject(private []byte) error {
	const call = "CR.Reject"
	if cr == nil || cr.node.Closed() {
		return cr.gone(call)
	}
	if len(private) > MaxPrivateData {
		return argument(call, InvalidArg2, "%d bytes of private data, of %d", len(private), MaxPrivateData)
	}
	if !cr.answered() {
		return cr.gone(call)
	}
	return below(call, NoSubtype, cr.req.Reject(private))
}

// answered makes the handle invalid, and reports whether it was not before.
func (cr *CR) answered() bool {
	first, _ := cr.node.BeginClose() // it has no children
	if first {
		cr.node.End()
	}
	return first
}
