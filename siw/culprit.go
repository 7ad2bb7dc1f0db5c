// SPDX-License-Identifier: BSD-3-Clause

package siw

import (
	"github.com/goverbs/goverbs/siw/ddp"
	"github.com/goverbs/goverbs/siw/rdmap"
	"github.com/goverbs/goverbs/verbs"
)

// culprit finds the request that a peer's Terminate is about, nil if it cannot be told. The caller holds q.mu.
func (c *conn) culprit(t *rdmap.Terminate) *sendEntry {
	sq := &c.q.sq
	var quoted func(e *sendEntry) bool
	switch {
	case len(t.DDPHeader) == 0 && t.Layer == rdmap.LayerRDMAP && t.Type == rdmap.ErrTypeOperation:
		// Nothing is quoted, as kernel siw does for operations that it does not know: it is the oldest one without an answer.
		quoted = func(e *sendEntry) bool { return e.awaitsAnswer() && !e.answered }
	case len(t.DDPHeader) == 0:
		return nil
	case ddp.IsTagged(t.DDPHeader[0]):
		h, err := ddp.ParseTagged(t.DDPHeader)
		if err != nil {
			return nil
		}
		quoted = func(e *sendEntry) bool {
			return (e.op == verbs.WRRDMAWrite || e.op == verbs.WRRDMAWriteWithImm) && e.rkey == h.STag &&
				h.TO >= e.raddr && h.TO-e.raddr <= uint64(e.length)
		}
	default:
		h, err := ddp.ParseUntagged(t.DDPHeader)
		if err != nil {
			return nil
		}
		quoted = func(e *sendEntry) bool {
			return e.msn == h.MSN && (h.QN == ddp.QNReadRequest && e.awaitsAnswer() ||
				h.QN == ddp.QNSend && !e.awaitsAnswer() && !e.isLocal() && e.op != verbs.WRRDMAWrite)
		}
	}
	for i := sq.head; i < sq.next; i++ {
		if e := sq.at(i); quoted(e) {
			return e
		}
	}
	return nil
}
