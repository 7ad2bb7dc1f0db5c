// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/lifetime"
)

// SRQAttr holds the capacities and the limit of a shared receive queue (struct ibv_srq_attr).
type SRQAttr struct {
	MaxWR  int // max_wr: receives in the queue
	MaxSGE int // max_sge: elements per receive
	// SRQLimit: when fewer receives than this remain, the context gets one EventSRQLimitReached.
	// The event resets the limit to 0, which disables it.
	SRQLimit int
}

// SRQAttrMask selects fields of [SRQAttr].
type SRQAttrMask uint32

const (
	SRQAttrMaxWR SRQAttrMask = 1 << 0 // IBV_SRQ_MAX_WR
	SRQAttrLimit SRQAttrMask = 1 << 1 // IBV_SRQ_LIMIT
)

// String lists the bits by their C names without IBV_SRQ_.
func (m SRQAttrMask) String() string { return flagText(uint64(m), []string{"MAX_WR", "LIMIT"}) }

// SRQ is a shared receive queue: the QPs created with it consume its receives in the order in which
// messages arrive. All methods may be called concurrently.
type SRQ struct {
	node lifetime.Node
	pd   *PD
	p    ProviderSRQ
	attr SRQAttr
	room atomic.Int64 // max_wr, as last known
}

// CreateSRQ creates a shared receive queue (ibv_create_srq(3)). Zero MaxWR means DefaultRecvWR,
// zero MaxSGE means DefaultSGE; the device may provide more, see Attr. The limit is set by Modify,
// as in C.
func (pd *PD) CreateSRQ(attr SRQAttr) (*SRQ, error) {
	if err := pd.enter("CreateSRQ"); err != nil {
		return nil, err
	}
	defer pd.node.Exit()
	s, err := pd.createSRQ(attr)
	return s, opError("CreateSRQ", pd.ctx.dev.Name(), err)
}

func (pd *PD) createSRQ(attr SRQAttr) (*SRQ, error) {
	alloc, ok := Ability[ProviderSRQAllocator](pd.p)
	if !ok {
		return nil, fmt.Errorf("%w: shared receive queues", ErrNotSupported)
	}
	err := fillSizes([]size{
		{"max_srq_wr", &attr.MaxWR, DefaultRecvWR, pd.ctx.attr.MaxSRQWR},
		{"max_srq_sge", &attr.MaxSGE, DefaultSGE, pd.ctx.attr.MaxSRQSGE},
	})
	if err != nil {
		return nil, err
	}
	if attr.SRQLimit != 0 {
		return nil, invalid("srq_limit %d: it is set by Modify", attr.SRQLimit)
	}
	s := &SRQ{pd: pd}
	if s.p, s.attr, err = alloc.CreateSRQ(s, attr); err != nil {
		return nil, err
	}
	s.room.Store(int64(s.attr.MaxWR))
	if err := s.node.Init("SRQ", s.Close, &pd.node); err != nil {
		return nil, errors.Join(err, s.p.Destroy())
	}
	return s, nil
}

// PD returns the queue's protection domain.
func (s *SRQ) PD() *PD { return s.pd }

// Attr returns the actual capacities from creation, even where Query is not supported.
func (s *SRQ) Attr() SRQAttr { return s.attr }

// Provider returns the provider's SRQ object.
func (s *SRQ) Provider() ProviderSRQ { return s.p }

func (s *SRQ) opError(op string, err error) error { return opError(op, s.pd.ctx.dev.Name(), err) }

// PostRecv queues receive requests in order (ibv_post_srq_recv(3)) and returns the number n that it
// queued. If n < len(wrs), the error describes what is wrong with wrs[n]; the requests before it
// are queued. It does not block and, on success, does not allocate.
func (s *SRQ) PostRecv(wrs []RecvWR) (n int, err error) {
	if !s.node.Enter() {
		return 0, s.opError("SRQ.PostRecv", ErrClosed)
	}
	good, err := checkRecv(wrs, s.attr.MaxSGE)
	if good > 0 || err == nil {
		var perr error
		if n, perr = s.p.PostRecv(wrs[:good]); perr != nil {
			err = perr
		}
	}
	s.node.Exit()
	if err != nil {
		return n, s.opError("SRQ.PostRecv", requestCause(n, err))
	}
	return n, nil
}

// Modify sets what mask selects (ibv_modify_srq(3)): the limit or, on devices that can resize the
// queue, its capacity.
func (s *SRQ) Modify(attr SRQAttr, mask SRQAttrMask) error {
	const op = "SRQ.Modify"
	if !s.node.Enter() {
		return s.opError(op, ErrClosed)
	}
	defer s.node.Exit()
	most := s.pd.ctx.attr.MaxSRQWR
	switch {
	case mask == 0 || mask&^(SRQAttrMaxWR|SRQAttrLimit) != 0:
		return s.opError(op, invalid("attribute mask %v", mask))
	case mask&SRQAttrLimit != 0 && attr.SRQLimit < 0:
		return s.opError(op, invalid("srq_limit %d", attr.SRQLimit))
	case mask&SRQAttrMaxWR != 0 && attr.MaxWR <= 0:
		return s.opError(op, invalid("max_srq_wr: %d", attr.MaxWR))
	case mask&SRQAttrMaxWR != 0 && attr.MaxWR > most:
		return s.opError(op, limit("max_srq_wr", attr.MaxWR, most))
	}
	err := s.p.Modify(attr, mask)
	if err == nil && mask&SRQAttrMaxWR != 0 {
		s.room.Store(int64(attr.MaxWR))
	}
	return s.opError(op, err)
}

// Query returns the current capacities and limit of the queue (ibv_query_srq(3)).
func (s *SRQ) Query() (SRQAttr, error) {
	if !s.node.Enter() {
		return SRQAttr{}, s.opError("SRQ.Query", ErrClosed)
	}
	defer s.node.Exit()
	attr, err := s.p.Query()
	return attr, s.opError("SRQ.Query", err)
}

// Close destroys the queue (ibv_destroy_srq(3)) and drops its receives without completions. It is
// idempotent and may be called on nil. The error Is [ErrBusy] while QPs use the queue.
func (s *SRQ) Close() error {
	if s == nil {
		return nil
	}
	first, err := s.node.BeginClose()
	if !first || err != nil {
		return s.opError("SRQ.Close", err)
	}
	s.node.Drain(0)
	err = s.p.Destroy()
	s.node.End()
	return s.opError("SRQ.Close", err)
}
