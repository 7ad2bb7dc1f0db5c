// SPDX-License-Identifier: BSD-3-Clause

package cm

import "github.com/goverbs/goverbs/verbs"

// Datagram is how to reach a UD QP, or a multicast group: the path for [verbs.PD.CreateAH], and what a send request names in
// its verbs.UDDest.
type Datagram struct {
	AH   verbs.AHAttr
	QPN  uint32 // MulticastQPN for a group
	QKey uint32
}

// MulticastQPN is the QP number of every multicast group.
const MulticastQPN = 0xFFFFFF
