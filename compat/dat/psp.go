// SPDX-License-Identifier: BSD-3-Clause

package dat

import (
	"context"
	"errors"
	"math"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/lifetime"
	"github.com/goverbs/goverbs/verbs"
)

// PSP is a public service point: it delivers an event for each connection request to its qualifier,
// which is a port. All methods may be called concurrently.
type PSP struct {
	node lifetime.Node
	ia   *IA
	evd  *EVD
	ln   *cm.Listener
	qual uint64
	done chan struct{} // closed when the goroutine returns
}

// PSPParam describes a PSP (DAT_PSP_PARAM).
type PSPParam struct {
	IA       *IA
	ConnQual uint64
	EVD      *EVD
	Flags    PSPFlags
}

// CreatePSP listens on the port connQual of the IA's address (dat_psp_create), or on any free port
// if it is 0 (dat_psp_create_any), which Query returns. Requests are delivered as events to evd,
// which must accept connection requests; if evd has no room, the request is rejected. The error is
// [ConnQualInUse] if the port is in use, and [ModelNotSupported] for PSPProvider.
func (ia *IA) CreatePSP(connQual uint64, evd *EVD, flags PSPFlags) (*PSP, error) {
	const call = "IA.CreatePSP"
	if err := ia.enter(call); err != nil {
		return nil, err
	}
	defer ia.node.Exit()
	switch {
	case connQual > math.MaxUint16:
		return nil, argument(call, InvalidArg2, "the connection qualifier %d is not a port", connQual)
	case evd == nil || evd.ia != ia || evd.flags&EVDCR == 0:
		return nil, fault(call, InvalidHandle, InvalidHandleEVDCR, nil)
	case flags == PSPProvider:
		return nil, fault(call, ModelNotSupported, NoSubtype, errors.New("the program makes the EP"))
	case flags != PSPConsumer:
		return nil, argument(call, InvalidArg4, "flags %#x", uint32(flags))
	}
	host := ""
	if ia.addr.IsValid() {
		host = ia.addr.String()
	}
	ln, err := cm.Listen(context.Background(), net.JoinHostPort(host, strconv.FormatUint(connQual, 10)),
		cm.Config{Context: ia.ctx})
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fault(call, ConnQualInUse, NoSubtype, err)
	}
	if err != nil {
		return nil, below(call, ResourceTEP, err)
	}
	p := &PSP{ia: ia, evd: evd, ln: ln, qual: connQual, done: make(chan struct{})}
	if at, err := netip.ParseAddrPort(ln.Addr().String()); err == nil {
		p.qual = uint64(at.Port())
	}
	if err := p.node.Init("dat.PSP", p.Free, &ia.node, &evd.node); err != nil {
		return nil, fault(call, InvalidHandle, InvalidHandleEVDCR, errors.Join(err, ln.Close()))
	}
	go p.serve()
	return p, nil
}

// acceptPause is the delay after an error before the next attempt to accept a request.
const acceptPause = 10 * time.Millisecond

// serve converts requests to events until the listener is closed.
func (p *PSP) serve() {
	defer close(p.done)
	for {
		req, err := p.ln.Accept(context.Background())
		if errors.Is(err, verbs.ErrClosed) {
			return // Free, or the device is gone, which the IA reports
		}
		if err != nil {
			time.Sleep(acceptPause) // out of descriptors
			continue
		}
		cr, err := p.ia.newCR(req)
		if err != nil {
			_ = req.Reject(nil) // the IA is being closed
			continue
		}
		if !p.evd.post(Event{Number: ConnectionRequestEvent,
			CR: CRArrival{PSP: p, LocalAddr: req.LocalAddr(), ConnQual: p.qual, CR: cr}}) {
			_ = cr.Reject(nil) // the peer may have given up
		}
	}
}

// Query describes the PSP (dat_psp_query).
func (p *PSP) Query() (PSPParam, error) {
	if p == nil || !p.node.Enter() {
		return PSPParam{}, fault("PSP.Query", InvalidHandle, InvalidHandlePSP, lifetime.ErrClosed)
	}
	defer p.node.Exit()
	return PSPParam{IA: p.ia, ConnQual: p.qual, EVD: p.evd, Flags: PSPConsumer}, nil
}

// Free stops listening (dat_psp_free). Requests whose events were delivered can still be answered.
// It is idempotent.
func (p *PSP) Free() error {
	const call = "PSP.Free"
	if p == nil {
		return fault(call, InvalidHandle, InvalidHandlePSP, nil)
	}
	if !freeing(&p.node) {
		return nil
	}
	err := p.ln.Close()
	<-p.done
	p.node.End()
	return below(call, NoSubtype, err)
}
