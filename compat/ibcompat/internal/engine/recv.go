// SPDX-License-Identifier: BSD-3-Clause

package engine

import (
	"fmt"

	"github.com/goverbs/goverbs/compat/ibcompat/internal/wire"
	"github.com/goverbs/goverbs/internal/queue"
	"github.com/goverbs/goverbs/verbs"
)

// recvSide has the receives of a QP, oldest first. The peer is told of them in this order, and sends nothing for which it does not
// know a receive.
type recvSide struct {
	recvs queue.Ring[receive]
	told  int    // the peer knows so many of them
	tells uint64 // receives that the peer has been told of, since the beginning
}

// receive is a receive of the program.
type receive struct {
	id     uint64
	sgl    []verbs.SGE
	total  uint64
	filled uint64 // bytes of Parts
	open   bool   // the peer may write into it
}

func (s *recvSide) init(c verbs.QPCap) {
	s.recvs = queue.Grown[receive](c.MaxRecvWR)
	sges := make([]verbs.SGE, len(s.recvs.Places())*c.MaxRecvSGE)
	for i := range s.recvs.Places() {
		s.recvs.Places()[i].sgl = sges[i*c.MaxRecvSGE:][:0:c.MaxRecvSGE]
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
		*r = receive{id: wrs[n].ID, sgl: append(r.sgl[:0], wrs[n].SGL...)}
		for _, s := range r.sgl {
			r.total += uint64(s.Length)
		}
	}
	q.goOn()
	return n, err
}

// advert describes a receive to the peer. A receive is opened for Writes if a message can be longer than what is copied, and if the
// program lets the peer write through the QP.
func (q *qp) advert(r *receive, a *wire.Advert) {
	a.Total, a.Segments = uint32(min(r.total, 1<<32-1)), a.Segments[:0]
	if r.open = false; r.total <= uint64(q.slots.eager) || q.access&verbs.AccessRemoteWrite == 0 {
		return
	}
	for _, s := range r.sgl {
		if s.Length == 0 {
			continue
		}
		_, m, err := q.dom.find(s.LKey, s.Addr, uint64(s.Length), verbs.AccessLocalWrite)
		if err != nil {
			a.Segments = a.Segments[:0]
			return // it fails when a message needs it
		}
		a.Segments = append(a.Segments, wire.Segment{Addr: s.Addr, RKey: m.sink.RKey(), Length: s.Length})
		m.mu.RUnlock()
	}
	r.open = r.total < 1<<32
	if !r.open {
		a.Segments = a.Segments[:0]
	}
}

// scatter copies data into a receive, behind those that are there.
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
	wc.ID, wc.QPNum = q.recvs.At(0).id, q.num
	q.recvs.Pop()
	q.told--
	q.recvCQ.push(&wc, solicited)
}
