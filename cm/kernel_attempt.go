// SPDX-License-Identifier: BSD-3-Clause

package cm

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/internal/cmprovider"
	"github.com/goverbs/goverbs/verbs"
)

// attempt is an attempt to establish a connection. It owns the endpoint until it hands it to the
// connection.
type attempt struct {
	end    *endpoint
	dev    kernelDevice
	ps     PortSpace
	qp     *verbs.QP
	failed <-chan struct{} // closed when the QP fails or is closed
	param  rawParam
	minRNR uint8

	touched bool          // the QP was changed and cannot stay in INIT
	calling chan struct{} // closed when a call that may block has returned
}

// connecting holds the QPs with an attempt in progress.
var connecting sync.Map // *verbs.QP -> struct{}

// begin checks the caller's arguments. If it returns nil, finish must be called.
func (a *attempt) begin(param ConnParam, most int) (err error) {
	if ud := a.qp.Type() == verbs.QPTypeUD; ud != (a.ps == PortSpaceUDP) || !ud && a.qp.Type() != verbs.QPTypeRC {
		return fmt.Errorf("%w: a QP of type %v in port space %v", verbs.ErrInvalid, a.qp.Type(), a.ps)
	}
	if err := checkPrivate(param.PrivateData, most); err != nil {
		return err
	}
	p := rawParam{qpn: a.qp.Num(), srq: a.qp.SRQ() != nil, data: param.PrivateData}
	if p.initiatorDepth, err = cmprovider.Depth("InitiatorDepth", param.InitiatorDepth, a.dev.maxORD); err != nil {
		return err
	}
	p.responderResources, err = cmprovider.Depth("ResponderResources", param.ResponderResources, a.dev.maxIRD)
	if err != nil {
		return err
	}
	if p.retryCount, err = retries("RetryCount", param.RetryCount, DefaultRetryCount); err != nil {
		return err
	}
	if p.rnrRetryCnt, err = retries("RNRRetryCount", param.RNRRetryCount, DefaultRNRRetryCount); err != nil {
		return err
	}
	if a.minRNR = param.MinRNRTimer; a.minRNR == 0 {
		a.minRNR = DefaultMinRNRTimer
	} else if a.minRNR > 31 {
		return &verbs.LimitError{Name: "MinRNRTimer", Limit: 31, Value: uint64(a.minRNR)}
	}
	a.param = p
	if a.ps == PortSpaceTCP {
		if _, busy := connecting.LoadOrStore(a.qp, struct{}{}); busy {
			return &verbs.StateError{State: verbs.QPStateInit, Why: "another connection is being made for it"}
		}
	}
	a.failed = failedOf(a.qp)
	return nil
}

// finish ends an attempt after begin. After an error it undoes everything.
func (a *attempt) finish(err error) {
	connecting.Delete(a.qp)
	if err != nil {
		a.abandon(err)
	}
}

// abandon frees the ID, which notifies the peer, and moves the QP to ERR if it was changed.
func (a *attempt) abandon(err error) {
	if a.touched {
		toError(a.qp, err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.end.destroy()
	}()
	// The wait can be bounded because destroying the QP waits for the same call.
	timer := time.NewTimer(a.dev.connectBlocks)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// goneLimit bounds how long an attempt whose QP failed waits for the reason. On a busy machine the
// thread that has read a refusal may be late.
const goneLimit = time.Second

var errQPGone = fmt.Errorf("the QP failed or was closed during connection set-up: %w", verbs.ErrClosed)

// await waits for the next event of the attempt. If the event ends the attempt, await returns it as
// an error.
func (a *attempt) await(ctx context.Context) (rawEvent, error) {
	ev, err := a.end.next(ctx, a.failed)
	if errors.Is(err, verbs.ErrClosed) {
		// The QP may have failed because of an event that is about to arrive: librdmacm moves the
		// QP to ERR as soon as it has read a refusal.
		soon, cancel := context.WithTimeout(ctx, goneLimit)
		defer cancel()
		if ev, err := a.end.next(soon, nil); err == nil {
			if why := a.judge(ev); why != nil {
				return ev, why
			}
		}
		return ev, errQPGone
	}
	if err != nil {
		return ev, err
	}
	return ev, a.judge(ev)
}

// judge returns the error that an event means, nil if none.
func (a *attempt) judge(ev rawEvent) error {
	switch ev.event {
	case EventConnectResponse, EventEstablished:
		if ev.status == 0 {
			return nil
		}
	case EventRejected:
		// On iWARP the kernel knows only that the stream ended before the connection was
		// established, and reports an errno.
		rejected := Rejected(ev.data, -1, -1)
		switch {
		case ev.status < 0:
			return fmt.Errorf("%w: %w", rejected, eventError(ev.event, ev.status))
		case ev.status == rejectConsumer:
			return rejected
		}
	case EventUnreachable:
		if ev.status == sidrReject {
			return Rejected(ev.data, -1, -1)
		}
	}
	return eventError(ev.event, ev.status)
}

// Connect implements Route.
func (r *kernelRoute) Connect(ctx context.Context, qp *verbs.QP, param ConnParam) (conn ProviderConn, err error) {
	r.taken = true
	a := &attempt{end: r.id(), dev: r.dev, ps: r.ps, qp: qp}
	if err := a.begin(param, r.dev.request); err != nil {
		a.end.destroy()
		return nil, err
	}
	defer func() { a.finish(err) }()
	if a.ps == PortSpaceUDP {
		if err := raiseUD(qp); err != nil {
			return nil, err
		}
	}
	ev, err := r.ask(ctx, a)
	if err != nil {
		return nil, err
	}
	c := &kernelConn{end: a.end, qp: qp, dev: a.dev, ps: a.ps, private: ev.data, datagram: ev.datagram}
	switch {
	case a.ps == PortSpaceUDP:
		c.peer = [2]int{-1, -1}
	case a.dev.iwarp:
		// The device has already moved the QP. Its event has this side's values: the depth as
		// requester is in responderResources. Kernel siw uses the number that the peer serves, even
		// if this side asked for less.
		c.ord, c.ird = min(a.param.initiatorDepth, ev.responderResources), ev.initiatorDepth
		c.peer = [2]int{ev.initiatorDepth, ev.responderResources} // the device has set them to the values in the Reply
		c.arrived()
		if i, ok := verbs.Ability[verbs.ProviderQPInitiator](c.qp.Provider()); ok {
			i.Initiated()
		}
	default:
		c.ord = min(a.param.initiatorDepth, ev.initiatorDepth)
		c.ird = min(a.param.responderResources, ev.responderResources)
		c.peer = [2]int{ev.responderResources, ev.initiatorDepth} // an event has its receiver's point of view
		a.touched = true
		if err := raise(a.end, qp, c.ord, c.ird, a.minRNR); err != nil {
			return nil, err
		}
		if err := a.end.call(rawID.establish); err != nil {
			return nil, a.end.callError("rdma_establish", err)
		}
	}
	c.start(a.failed)
	return c, nil
}

// ask sends the request of an attempt and returns the answer. librdmacm selects a local port that
// is free in the table of the kernel's connection manager. If the device finds that port in use,
// ask tries others.
func (r *kernelRoute) ask(ctx context.Context, a *attempt) (rawEvent, error) {
	for try := 1; ; try++ {
		ev, err := a.ask(ctx)
		if err == nil || !portInUse(err) || ctx.Err() != nil {
			return ev, err
		}
		// The QP is reusable if the device has not changed it. A datagram QP is in RTS and is not
		// retried: its ID may be a member of multicast groups.
		if attr, failed := a.qp.Query(); failed != nil || attr.State != verbs.QPStateInit {
			return ev, err
		}
		a.touched = false
		if try > a.dev.portRetries || r.cfg.Source.Port() != 0 {
			return ev, err
		}
		if err := r.otherPort(ctx); err != nil {
			if ctx.Err() != nil {
				err = ctx.Err()
			}
			return ev, err
		}
		a.end = r.id()
	}
}

// portInUse reports whether the local port of a connection is in use.
func portInUse(err error) bool {
	return errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, syscall.EADDRNOTAVAIL)
}

// ask sends the request from the ID's port and returns the answer.
func (a *attempt) ask(ctx context.Context) (rawEvent, error) {
	if err := a.request(ctx); err != nil {
		return rawEvent{}, err
	}
	return a.await(ctx)
}

// request sends the request. The call can block, so it runs in its own goroutine.
func (a *attempt) request(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	a.touched = a.dev.iwarp // its QP goes to ERR when the attempt fails
	a.calling = make(chan struct{})
	var err error
	end, param := a.end, a.param
	go func() {
		defer close(a.calling)
		err = end.call(func(id rawID) error { return id.connect(param) })
	}()
	select {
	case <-a.calling:
		return a.end.callError("rdma_connect", err)
	case <-ctx.Done():
		return ctx.Err()
	case <-a.failed:
		// await finds the reason: a refusal can arrive before this goroutine sees that the call has
		// returned
		return nil
	}
}
