// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

// AttachMcast joins the QP to a group.
func (q *kernelQP) AttachMcast(gid GID, lid uint16) error {
	q.modify.Lock()
	defer q.modify.Unlock()
	if err := q.mcast("ibv_attach_mcast", gid, lid, true); err != nil {
		return err
	}
	if q.groups == nil {
		q.groups = make(map[mcastGroup]struct{})
	}
	q.groups[mcastGroup{gid, lid}] = struct{}{}
	return nil
}

// DetachMcast undoes AttachMcast.
func (q *kernelQP) DetachMcast(gid GID, lid uint16) error {
	q.modify.Lock()
	defer q.modify.Unlock()
	if err := q.mcast("ibv_detach_mcast", gid, lid, false); err != nil {
		return err
	}
	delete(q.groups, mcastGroup{gid, lid})
	return nil
}

// mcastGroup is a group that a QP is in.
type mcastGroup struct {
	gid GID
	lid uint16
}

func (q *kernelQP) mcast(call string, gid GID, lid uint16, attach bool) error {
	return callError(call, q.c.Mcast(gid, lid, attach))
}
