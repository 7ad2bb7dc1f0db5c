// SPDX-License-Identifier: BSD-3-Clause

package engine

import (
	"fmt"

	"github.com/goverbs/goverbs/compat/ibcompat/internal/wire"
	"github.com/goverbs/goverbs/internal/queue"
	"github.com/goverbs/goverbs/verbs"
)

// recvSide holds the receives of a QP, oldest first. They are advertised in this order, and the
// peer sends nothing for which it has no advert.
type recvSide struct {
	recvs queue.Ring[receive]
	told  int    // number of them that have been advertised
	tells uint64 // receives advertised since the connection began
	openings
}

// receive is a receive posted by the program.
type receive struct {
	id     uint64
	sgl    []verbs.SGE
	total  uint64
	filled uint64   // bytes that arrived in Parts
	keys   []uint32 // keys by which the peer may write into it: one for each non-empty element, or none
}

func (s *recvSide) init(c verbs.QPCap) {
	s.recvs = queue.Grown[receive](c.MaxRecvWR)
	n := len(s.recvs.Places())
	sges, keys := make([]verbs.SGE, n*c.MaxRecvSGE), make([]uint32, n*c.MaxRecvSGE)
	for i := range s.recvs.Places() {
		r := &s.recvs.Places()[i]
		r.sgl = sges[i*c.MaxRecvSGE:][:0:c.MaxRecvSGE]
		r.keys = keys[i*c.MaxRecvSGE:][:0:c.MaxRecvSGE]
	}
}

func (s *recvSide) clear() {
	s.recvs.Clear()
	s.told, s.tells = 0, 0
}

func (q *qp) PostRecv(wrs []verbs.RecvWR) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.state == verbs.QPStateReset {
		return 0, &verbs.StateError{State: q.state, Why: "receives can be posted from INIT on"}
	}
	n := 0
	var err error
	for ; n < len(wrs); n++ {
		if q.recvs.Len() >= q.cap.MaxRecvWR {
			err = fmt.Errorf("%w: max_recv_wr %d", verbs.ErrQueueFull, q.cap.MaxRecvWR)
			break
		}
		r := q.recvs.Add()
		*r = receive{id: wrs[n].ID, sgl: append(r.sgl[:0], wrs[n].SGL...), keys: r.keys[:0]}
		for _, s := range r.sgl {
			r.total += uint64(s.Length)
		}
	}
	q.goOn()
	return n, err
}

// advert encodes a receive into an advert for a message with room bytes left. It reports false if
// the receive cannot be advertised in this message.
func (q *qp) advert(r *receive, a *wire.Advert, room int) bool {
	a.Total, a.Segments = uint32(min(r.total, 1<<32-1)), a.Segments[:0]
	if !q.opens(r) {
		return wire.AdvertLen <= room
	}
	if q.opened == mostOpen || wire.AdvertLen+len(r.sgl)*wire.SegmentLen > room {
		return false
	}
	q.open(r, a)
	return true
}

// scatter copies data into a receive, after the bytes already there.
func (q *qp) scatter(r *receive, data []byte) error {
	skip := r.filled
	r.filled += uint64(len(data))
	for i, s := range r.sgl {
		if skip >= uint64(s.Length) {
			skip -= uint64(s.Length)
			continue
		}
		if len(data) == 0 {
			break
		}
		n := min(uint64(s.Length)-skip, uint64(len(data)))
		mem, m, err := q.dom.find(s.LKey, s.Addr+skip, n, verbs.AccessLocalWrite)
		if err != nil {
			err.(*verbs.AccessError).Element = i
			return err
		}
		if err := m.place(mem, data[:n]); err != nil {
			err.Element = i
			return err
		}
		data, skip = data[n:], 0
	}
	return nil
}

// received completes the oldest receive.
func (q *qp) received(wc verbs.WC, solicited bool) {
	if q.state == verbs.QPStateRTR && !q.hand.told {
		q.hand.told = true
		q.ctx.events.Post(verbs.AsyncEvent{Type: verbs.EventCommEst, QP: q.owner})
	}
	r := q.recvs.At(0)
	q.shut(r)
	wc.ID, wc.QPNum = r.id, q.num
	q.recvs.Pop()
	q.told--
	q.recvCQ.push(&wc, solicited)
}
