// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"math"

	"github.com/goverbs/goverbs/internal/iwarp/ddp"
	"github.com/goverbs/goverbs/verbs"
)

// recvWrite places a segment of an RDMA Write.
func (c *conn) recvWrite(h ddp.Tagged, payload []byte) (fault, bool) {
	// The key of a segment without data is not checked (RFC 5041 section 5.2).
	if len(payload) > 0 {
		if c.q.remoteAccess()&verbs.AccessRemoteWrite == 0 {
			return c.denied(rejectRights, h.STag, h.TO, uint64(len(payload)), verbs.AccessRemoteWrite).tagged(), false
		}
		reg, mem, why := c.dev.stags.check(c.q, h.STag, h.TO, len(payload), verbs.AccessRemoteWrite)
		if why == accepted {
			why = reg.place(mem, payload)
		}
		if why != accepted {
			return c.denied(why, h.STag, h.TO, uint64(len(payload)), verbs.AccessRemoteWrite).tagged(), false
		}
	}
	r := &c.rx
	if c.rtr && !r.writing && h.Last && len(payload) == 0 && h.STag == rtrSTag {
		return fault{}, true // a nudge, to which a following immediate does not belong
	}
	if !r.writing {
		r.writing, r.written = true, 0
	}
	if r.written += uint64(len(payload)); r.written > math.MaxUint32 {
		// A DDP message is shorter than 2^32 bytes (RFC 5041 section 5.2), and a completion cannot
		// count more.
		return faultStream, false
	}
	if h.Last {
		r.writing, r.wrote = false, true
	}
	return fault{}, true
}
