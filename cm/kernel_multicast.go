// SPDX-License-Identifier: BSD-3-Clause

package cm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/goverbs/goverbs/verbs"
)

// JoinMulticast implements ProviderMulticaster.
func (r *kernelRoute) JoinMulticast(ctx context.Context, qp *verbs.QP,
	group netip.Addr) (Datagram, func() error, error) {
	return r.id().joinAttached(ctx, r.ps, qp, group)
}

// JoinMulticast implements ProviderMulticaster.
func (c *kernelConn) JoinMulticast(ctx context.Context, qp *verbs.QP,
	group netip.Addr) (Datagram, func() error, error) {
	return c.end.joinAttached(ctx, c.ps, qp, group)
}

// Datagram implements ProviderDatagram. QPN is 0 if the peer's QP is not known.
func (c *kernelConn) Datagram() (Datagram, bool) {
	return c.datagram, c.ps == PortSpaceUDP && c.datagram.QPN != 0
}

// joinAttached joins a group and attaches the QP to it.
func (e *endpoint) joinAttached(ctx context.Context, ps PortSpace, qp *verbs.QP,
	group netip.Addr) (Datagram, func() error, error) {
	d, leave, err := e.joinGroup(ctx, ps, qp, group)
	if err != nil {
		return Datagram{}, nil, err
	}
	if err := qp.AttachMcast(d.AH.GRH.DGID, d.AH.DLID); err != nil {
		return Datagram{}, nil, and(err, leave())
	}
	return d, func() error {
		return errors.Join(qp.DetachMcast(d.AH.GRH.DGID, d.AH.DLID), leave())
	}, nil
}

// membership is an ID's membership in a multicast group, or the attempt to join it.
type membership struct {
	at     netip.AddrPort
	answer chan rawEvent // receives the kernel's answer
}

func (e *endpoint) memberships() []membership {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Values(e.groups))
}

func (e *endpoint) joinGroup(ctx context.Context, ps PortSpace, qp *verbs.QP,
	group netip.Addr) (Datagram, func() error, error) {
	if ps != PortSpaceUDP || qp.Type() != verbs.QPTypeUD {
		return Datagram{}, nil, fmt.Errorf("%w: multicast takes a UD QP and port space udp, not %v and %v",
			verbs.ErrInvalid, qp.Type(), ps)
	}
	if err := raiseUD(qp); err != nil {
		return Datagram{}, nil, err
	}
	// The port is not part of a group, but librdmacm looks up groups by the whole address.
	at := netip.AddrPortFrom(group, 0)
	answer := make(chan rawEvent, 1)
	e.mu.Lock()
	e.lastJoin++
	key := e.lastJoin
	if e.groups == nil {
		e.groups = make(map[uintptr]membership)
	}
	e.groups[key] = membership{at, answer}
	e.mu.Unlock()
	forget := func() {
		e.mu.Lock()
		delete(e.groups, key)
		e.mu.Unlock()
	}
	if err := e.call(func(id rawID) error { return id.join(at, key) }); err != nil {
		forget()
		return Datagram{}, nil, e.callError("rdma_join_multicast", err)
	}
	leave := func() error {
		err := e.call(func(id rawID) error { return id.leave(at) })
		if errors.Is(err, verbs.ErrClosed) {
			return nil // it was left when the ID was destroyed
		}
		forget()
		return e.callError("rdma_leave_multicast", err)
	}
	var err error
	select {
	case ev := <-answer:
		if ev.event == EventMulticastJoin && ev.status == 0 {
			return ev.datagram, leave, nil
		}
		err = eventError(ev.event, ev.status)
	case <-ctx.Done():
		err = ctx.Err()
	}
	_ = leave() // a group must be left even if the join failed
	return Datagram{}, nil, err
}
