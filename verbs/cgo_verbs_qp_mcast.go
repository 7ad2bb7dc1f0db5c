// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

// #include "cgo_verbs.h"
import "C"

// AttachMcast joins the QP to a group.
func (q *cgoQP) AttachMcast(gid GID, lid uint16) error {
	q.modify.Lock()
	defer q.modify.Unlock()
	if err := q.mcast("ibv_attach_mcast", gid, lid, 1); err != nil {
		return err
	}
	if q.groups == nil {
		q.groups = make(map[mcastGroup]struct{})
	}
	q.groups[mcastGroup{gid, lid}] = struct{}{}
	return nil
}

// DetachMcast undoes AttachMcast.
func (q *cgoQP) DetachMcast(gid GID, lid uint16) error {
	q.modify.Lock()
	defer q.modify.Unlock()
	if err := q.mcast("ibv_detach_mcast", gid, lid, 0); err != nil {
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

func (q *cgoQP) mcast(call string, gid GID, lid uint16, attach C.int) error {
	g := C.union_ibv_gid(gid)
	return callError(call, C.gv_mcast(q.c, &g, C.uint16_t(lid), attach))
}
