// SPDX-License-Identifier: BSD-3-Clause

package cm

import "github.com/goverbs/goverbs/verbs"

// Datagram is the address of a UD QP or of a multicast group: the path for [verbs.PD.CreateAH], and
// the remaining fields of a verbs.UDDest in a send request.
type Datagram struct {
	AH   verbs.AHAttr
	QPN  uint32 // MulticastQPN for a group
	QKey uint32
}

// MulticastQPN is the QP number of every multicast group.
const MulticastQPN = 0xFFFFFF
