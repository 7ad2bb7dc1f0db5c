// SPDX-License-Identifier: BSD-3-Clause

package dat

import (
	"bytes"
	"context"
	"net"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/lifetime"
)

// CR is a connection request. The program answers it once, with Accept or Reject, which invalidates
// the handle. A request that is unanswered when the IA is closed is rejected. All methods may be
// called concurrently.
type CR struct {
	node lifetime.Node
	ia   *IA
	req  *cm.Request
}

// CRParam describes a CR (DAT_CR_PARAM).
type CRParam struct {
	RemoteAddr  net.Addr
	PrivateData []byte // owned by the program
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

// Accept connects ep, which must be UNCONNECTED and belong to the same IA (dat_cr_accept). It
// returns immediately. The outcome is an event on the EP's connection EVD: ConnectionEstablished,
// with the private data of the request, or ConnectionAcceptCompletionErr, after which the EP is
// DISCONNECTED. private is copied; it may have up to MaxPrivateData bytes. After an error the
// request can still be answered.
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

// Reject rejects the request and sends private, up to MaxPrivateData bytes, with the rejection
// (dat_cr_reject). After [InvalidParameter] the request can still be answered.
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

// answered invalidates the handle and reports whether it was valid before.
func (cr *CR) answered() bool {
	first, _ := cr.node.BeginClose() // it has no children
	if first {
		cr.node.End()
	}
	return first
}
