// SPDX-License-Identifier: BSD-3-Clause

package rping

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/cmd/goverbs/internal/output"
	"github.com/goverbs/goverbs/cmd/goverbs/internal/shutdown"
	"github.com/goverbs/goverbs/verbs"
)

// errMismatch reports that data differ from what was expected.
var errMismatch = errors.New("not the data that were expected")

// pingAll is the client: it connects and performs all pings.
func (r *run) pingAll(ctx context.Context, p *report) (err error) {
	source, err := r.sourceAddr(ctx)
	if err != nil {
		return err
	}
	id, err := cm.Resolve(ctx, r.serverAddr(), cm.Config{Device: r.dev, Source: source})
	if err != nil {
		return err
	}
	r.trace("device %v", id.Context().Device())
	r.trace("resolved %v", id.RemoteAddr())
	e, err := r.newEndpoint(id.Context(), id.BindQP, p)
	if err != nil {
		return errors.Join(err, id.Close())
	}
	e.id = id
	late := shutdown.Late(ctx)
	defer func() { err = errors.Join(err, shutdown.InTime(late, e.close)) }()
	if err := id.Connect(ctx, e.qp, connParam()); err != nil {
		if ctx.Err() == nil {
			event, status := connectEvent(err, id.Context().Device().Info().Transport)
			r.note("cma event %v, error %d", event, status)
		}
		return err
	}
	e.connected()
	for n := 0; r.Count == 0 || n < r.Count; n++ {
		if err := e.pingOnce(ctx, n); err != nil {
			return fmt.Errorf("ping %d: %w", n, err)
		}
	}
	err = id.Disconnect()
	r.note("%s DISCONNECT EVENT...", e.role())
	return err
}

// pingOnce performs ping n: the server reads it, then writes it back.
func (e *endpoint) pingOnce(ctx context.Context, n int) error {
	fillPing(e.origin.Bytes(), n)
	begun := time.Now()
	if err := e.advertise(e.origin); err != nil {
		return err
	}
	if _, err := e.receive(ctx, stateWriteAdv); err != nil {
		return err
	}
	e.trace("the server has read")
	if err := e.advertise(e.data); err != nil {
		return err
	}
	if _, err := e.receive(ctx, stateWriteComplete); err != nil {
		return err
	}
	took := time.Since(begun)
	e.trace("the server has written")
	if e.Validate && !bytes.Equal(e.data.Bytes(), e.origin.Bytes()) {
		e.note("data mismatch!")
		return fmt.Errorf("%w: first in byte %d", errMismatch, firstDifference(e.data.Bytes(), e.origin.Bytes()))
	}
	e.report.trips.add(took)
	e.report.Pings++
	if e.Verbose {
		return e.print("ping data: %s", output.Printable(pingText(e.data.Bytes())))
	}
	return nil
}

// advertise tells the server where a buffer is.
func (e *endpoint) advertise(mr *verbs.MR) error {
	i := bufferInfo{addr: mr.Addr(), rkey: mr.RKey(), size: uint32(mr.Len())}
	e.trace("advertise %v", i)
	return e.tell(i)
}

// firstDifference returns the index of the first byte in which a and b, of the same length, differ.
func firstDifference(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return len(a)
}

// rejectedByConsumer is the rejection reason on InfiniBand when the listener's program rejected the
// request (IB_CM_REJ_CONSUMER_DEFINED).
const rejectedByConsumer = 28

// connectEvent returns the event that librdmacm reports for a failed connection attempt, with its
// status: a negative errno, or on InfiniBand the rejection reason.
func connectEvent(err error, transport verbs.Transport) (ev cm.Event, status int) {
	var errno syscall.Errno
	errors.As(err, &errno)
	var timeout net.Error
	var event *cm.EventError
	switch {
	case errors.As(err, &event):
		return event.Event, event.Status
	case errors.Is(err, cm.ErrRejected) && transport == verbs.TransportIB:
		return cm.EventRejected, rejectedByConsumer
	case errors.Is(err, cm.ErrRejected):
		return cm.EventRejected, -int(syscall.ECONNREFUSED)
	case errno == syscall.ECONNREFUSED, errno == syscall.ECONNRESET:
		return cm.EventRejected, -int(errno)
	case errors.As(err, &timeout) && timeout.Timeout():
		return cm.EventUnreachable, -int(syscall.ETIMEDOUT)
	}
	return cm.EventConnectError, -int(errno)
}
