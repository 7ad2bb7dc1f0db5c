// SPDX-License-Identifier: BSD-3-Clause

package verbs

import "fmt"

// AttachMcast attaches a UD QP to a multicast group, whose messages it then receives
// (ibv_attach_mcast(3)). The group must have been joined, which the connection manager does. lid is
// the multicast LID of the group on InfiniBand, 0 on RoCE.
func (q *QP) AttachMcast(gid GID, lid uint16) error {
	return q.mcast("QP.AttachMcast", func(m ProviderMulticaster) error { return m.AttachMcast(gid, lid) })
}

// DetachMcast undoes AttachMcast (ibv_detach_mcast(3)).
func (q *QP) DetachMcast(gid GID, lid uint16) error {
	return q.mcast("QP.DetachMcast", func(m ProviderMulticaster) error { return m.DetachMcast(gid, lid) })
}

func (q *QP) mcast(op string, call func(ProviderMulticaster) error) error {
	if !q.node.Enter() {
		return q.opError(op, ErrClosed)
	}
	defer q.node.Exit()
	m, ok := Ability[ProviderMulticaster](q.p)
	if !ok {
		return q.opError(op, fmt.Errorf("%w: multicast", ErrNotSupported))
	}
	if q.typ != QPTypeUD {
		return q.opError(op, invalid("a %v QP: multicast is for UD", q.typ))
	}
	return q.opError(op, call(m))
}
