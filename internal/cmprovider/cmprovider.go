// SPDX-License-Identifier: BSD-3-Clause

// Package cmprovider contains what the connection managers of this module's devices share: the
// Provider of package cm for kernel devices, and the Providers of software devices.
package cmprovider

import (
	"fmt"

	"github.com/goverbs/goverbs/verbs"
)

// RemoteAccess is the peer's access rights on a connected QP, as far as the memory allows them.
const RemoteAccess = verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic

// InitQP implements Bind for a device with one port and one partition key. It moves a QP from RESET
// to INIT with all remote rights, so that the access rights of the memory decide what the peer may
// do.
func InitQP(qp *verbs.QP) error {
	return qp.Modify(verbs.QPAttr{State: verbs.QPStateInit, PortNum: 1, AccessFlags: RemoteAccess},
		verbs.QPAttrState|verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrAccessFlags)
}

// none is cm.None.
const none = -1

// Depth returns the number of Reads and atomics that a depth of cm.ConnParam means: most, the
// device's maximum, for 0, and none for cm.None. For values out of range it returns an error that
// names the field.
func Depth(field string, v, most int) (int, error) {
	switch {
	case v == none:
		return 0, nil
	case v == 0:
		return most, nil
	case v < 0:
		return 0, fmt.Errorf("%w: %s %d", verbs.ErrInvalid, field, v)
	case v > most:
		return 0, &verbs.LimitError{Name: field, Limit: uint64(most), Value: uint64(v)}
	}
	return v, nil
}
