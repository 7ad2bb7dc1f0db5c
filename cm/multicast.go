// SPDX-License-Identifier: BSD-3-Clause

package cm

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/verbs"
)

// Multicast is the membership of a UD QP in a multicast group. Its methods may be called
// concurrently.
type Multicast struct {
	Datagram // the destination for sends to the group

	id    *ID
	qp    *verbs.QP
	group netip.Addr
	once  sync.Once
	err   error
	left  atomic.Bool

	cancel context.CancelFunc // cancels the join
	ready  chan struct{}      // closed when the join has ended
	leave  func() error       // nil if the join failed
}

// JoinMulticast joins a group with a UD QP (rdma_join_multicast(3) up to
// RDMA_CM_EVENT_MULTICAST_JOIN). The QP then receives messages to the group and can send to it. The
// ID must be in the UDP port space. It may have been resolved to the address of the group, with any
// port, and need not be connected. QPs in RESET and INIT are moved to RTS. The caller leaves the
// group before closing the QP; closing the ID also leaves it. If ctx is done first, the error Is
// ctx.Err().
func (id *ID) JoinMulticast(ctx context.Context, qp *verbs.QP, group netip.Addr) (*Multicast, error) {
	m, err := id.joinMulticast(ctx, qp, group)
	return m, opError("JoinMulticast", group.String(), err)
}

func (id *ID) joinMulticast(ctx context.Context, qp *verbs.QP, group netip.Addr) (*Multicast, error) {
	if !group.IsMulticast() {
		return nil, fmt.Errorf("%w: %v is not a multicast address", verbs.ErrInvalid, group)
	}
	j, ok := verbs.Ability[ProviderMulticaster](id.route)
	if c := id.connection(); c != nil {
		j, ok = verbs.Ability[ProviderMulticaster](c)
	}
	if !ok {
		return nil, fmt.Errorf("%w: multicast on %v", verbs.ErrNotSupported, id.vctx.Device())
	}
	if err := bindQP(id.vctx, qp, id.bind); err != nil {
		return nil, err
	}
	joining, cancel := context.WithCancel(ctx)
	defer cancel()
	m := &Multicast{id: id, qp: qp, group: group.Unmap(), cancel: cancel, ready: make(chan struct{})}
	if err := id.addGroup(m); err != nil {
		return nil, err
	}
	defer close(m.ready)
	var err error
	if m.Datagram, m.leave, err = j.JoinMulticast(joining, qp, m.group); err == nil {
		return m, nil
	}
	m.leave = nil
	id.mu.Lock()
	defer id.mu.Unlock()
	delete(id.groups, m)
	if id.closing && ctx.Err() == nil && errors.Is(err, context.Canceled) {
		err = verbs.ErrClosed
	}
	return nil, err
}

func (id *ID) addGroup(m *Multicast) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.closing {
		return verbs.ErrClosed
	}
	for o := range id.groups {
		if o.group == m.group {
			return fmt.Errorf("%w: the ID is a member of the group", verbs.ErrInvalid)
		}
	}
	if id.groups == nil {
		id.groups = make(map[*Multicast]struct{})
	}
	id.groups[m] = struct{}{}
	return nil
}

// Group returns the address of the group.
func (m *Multicast) Group() netip.Addr { return m.group }

// Leave leaves the group (rdma_leave_multicast(3)). It is idempotent and may be called on nil.
func (m *Multicast) Leave() error {
	if m == nil {
		return nil
	}
	m.once.Do(func() {
		m.left.Store(true)
		m.cancel()
		<-m.ready
		if m.leave == nil {
			return
		}
		m.err = m.leave()
		m.id.mu.Lock()
		delete(m.id.groups, m)
		m.id.mu.Unlock()
	})
	return opError("Leave", m.group.String(), m.err)
}

// Datagram returns the address of the peer's UD QP. Only the active side knows it, once it is
// connected; otherwise, and for QPs that are not UD, Datagram returns false. The passive side
// learns the address from the datagrams that it receives.
func (id *ID) Datagram() (Datagram, bool) {
	if d, ok := verbs.Ability[ProviderDatagram](id.connection()); ok {
		return d.Datagram()
	}
	return Datagram{}, false
}
