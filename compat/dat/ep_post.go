// SPDX-License-Identifier: BSD-3-Clause

package dat

import (
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/verbs"
)

// idRecv is set in the IDs of receives. The bits above it contain the index of the record, the
// upper 32 bits the number of the EP.
const idRecv = 1

// maxMessage is the largest message and the largest RDMA, in bytes.
const maxMessage = 1 << 31

// PostSend sends a message (dat_ep_post_send). The peer needs a receive that is large enough. Post
// functions do not retain the slice; the memory belongs to the device until the DTO completes. They
// neither block nor allocate.
//
// Requests can be posted in the states CONNECTED and DISCONNECTED; in the latter they are flushed.
// In other states the error is [InvalidState]; it is [InsufficientResources] if MaxRequestDTOs are
// outstanding. All completion flags but CompletionEVDThreshold are allowed; CompletionUnsignalled
// only on EPs whose attributes include it, and not together with CompletionSuppress.
func (ep *EP) PostSend(iov []LMRTriplet, cookie uint64, flags CompletionFlags) error {
	wr := verbs.SendWR{Opcode: verbs.WRSend}
	return ep.request("EP.PostSend", &wr, iov, record{cookie: cookie, op: DTOSend}, flags, allCompletion, InvalidArg5)
}

// PostRDMAWrite writes into the peer's memory (dat_ep_post_rdma_write). The error is [LengthError]
// if iov is longer than remote. CompletionSolicitedWait is refused because the peer gets no
// completion.
func (ep *EP) PostRDMAWrite(iov []LMRTriplet, cookie uint64, remote RMRTriplet, flags CompletionFlags) error {
	const call = "EP.PostRDMAWrite"
	if err := fits(call, iov, remote); err != nil {
		return err
	}
	wr := verbs.SendWR{Opcode: verbs.WRRDMAWrite, RemoteAddr: remote.VirtualAddress, RKey: remote.RMRContext}
	return ep.request(call, &wr, iov, record{cookie: cookie, op: DTORDMAWrite}, flags, oneSided, InvalidArg6)
}

// PostRDMARead reads all of remote into iov, which may be longer (dat_ep_post_rdma_read). The error
// is [LengthError] if iov is shorter. CompletionSolicitedWait is refused.
func (ep *EP) PostRDMARead(iov []LMRTriplet, cookie uint64, remote RMRTriplet, flags CompletionFlags) error {
	const call = "EP.PostRDMARead"
	if n := total(iov); n < uint64(remote.SegmentLength) {
		return fault(call, LengthError, NoSubtype, fmt.Errorf("%d bytes of the peer into %d", remote.SegmentLength, n))
	}
	wr := verbs.SendWR{Opcode: verbs.WRRDMARead, RemoteAddr: remote.VirtualAddress, RKey: remote.RMRContext}
	return ep.request(call, &wr, iov, record{cookie: cookie, op: DTORDMARead, length: remote.SegmentLength}, flags,
		oneSided, InvalidArg6)
}

// oneSided are the completion flags of requests that do not notify the peer's program.
const oneSided = allCompletion &^ CompletionSolicitedWait

// request posts a request. allowed are the flags it may have; arg is the subtype for a wrong one.
func (ep *EP) request(call string, wr *verbs.SendWR, iov []LMRTriplet, rec record, flags, allowed CompletionFlags,
	arg Subtype) error {
	if err := ep.enter(call); err != nil {
		return err
	}
	defer ep.node.Exit()
	switch state := ep.State(); {
	case flags&^allowed != 0 || flags&CompletionUnsignalled != 0 &&
		(flags&CompletionSuppress != 0 || ep.attr.RequestCompletionFlags&CompletionUnsignalled == 0):
		return argument(call, arg, "completion flags %v", flags)
	case state != EPConnected && state != EPDisconnected:
		return inState(call, state)
	}
	rec.quiet, rec.suppress = flags&CompletionUnsignalled != 0, flags&CompletionSuppress != 0
	if !rec.suppress {
		wr.Flags |= verbs.SendSignaled
	}
	if flags&CompletionSolicitedWait != 0 {
		wr.Flags |= verbs.SendSolicited
	}
	if flags&CompletionBarrierFence != 0 {
		wr.Flags |= verbs.SendFence
	}
	q := &ep.requests
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.full() {
		return fault(call, InsufficientResources, ResourceTEP, nil)
	}
	want := uint64(maxMessage)
	if rec.op == DTORDMARead {
		want = uint64(rec.length)
	}
	length, err := q.elements(call, iov, want, rec.op == DTORDMARead)
	if err != nil {
		return err
	}
	rec.length = length
	return ep.postRequest(call, wr, rec)
}

// postRequest posts a request with the elements in sgl. The caller holds requests.mu.
func (ep *EP) postRequest(call string, wr *verbs.SendWR, rec record) error {
	q := &ep.requests
	wr.ID = uint64(ep.number.Load())<<32 | uint64(q.next())<<1
	wr.SGL = q.sgl
	q.sends[0] = *wr
	if _, err := ep.qp.PostSend(q.sends[:]); err != nil {
		return ep.refused(call, err)
	}
	q.push(rec)
	return nil
}

// refused returns the error of a post that the device refused.
func (ep *EP) refused(call string, err error) error {
	if errors.Is(err, verbs.ErrState) {
		return fault(call, InvalidState, ep.State().subtype(), err)
	}
	return below(call, ResourceTEP, err)
}

// elements converts segments to SGEs in sgl. It omits empty segments, because their other fields
// are arbitrary, and with cut everything beyond want bytes. It returns the number of bytes. The
// caller holds mu.
func (r *records) elements(call string, iov []LMRTriplet, want uint64, cut bool) (uint32, error) {
	r.sgl = r.sgl[:0]
	var n uint64
	for _, s := range iov {
		if cut {
			s.SegmentLength = uint32(min(uint64(s.SegmentLength), want-n))
		}
		if s.SegmentLength == 0 {
			continue
		}
		if len(r.sgl) == cap(r.sgl) {
			return 0, argument(call, InvalidArg2, "%d segments, of %d", len(iov), cap(r.sgl))
		}
		r.sgl = append(r.sgl, verbs.SGE{Addr: s.VirtualAddress, Length: s.SegmentLength, LKey: s.LMRContext})
		n += uint64(s.SegmentLength)
	}
	if n > want {
		return 0, fault(call, LengthError, NoSubtype, fmt.Errorf("%d bytes, of %d", n, want))
	}
	return uint32(n), nil
}

func total(iov []LMRTriplet) (n uint64) {
	for _, s := range iov {
		n += uint64(s.SegmentLength)
	}
	return n
}

// fits returns an error if iov is longer than remote.
func fits(call string, iov []LMRTriplet, remote RMRTriplet) error {
	if n := total(iov); n > uint64(remote.SegmentLength) {
		return fault(call, LengthError, NoSubtype, fmt.Errorf("%d bytes into %d of the peer", n, remote.SegmentLength))
	}
	return nil
}

// PostRecv posts a receive for a message (dat_ep_post_recv), in any state. In DISCONNECTED it is
// flushed. The error is [InsufficientResources] if MaxRecvDTOs are outstanding. The only completion
// flag is CompletionUnsignalled, on EPs whose attributes include it. If immediate data arrives, the
// completion reports it too, as for [EP.PostRecvImmed].
func (ep *EP) PostRecv(iov []LMRTriplet, cookie uint64, flags CompletionFlags) error {
	return ep.receive("EP.PostRecv", iov, cookie, flags)
}

func (ep *EP) receive(call string, iov []LMRTriplet, cookie uint64, flags CompletionFlags) error {
	if err := ep.enter(call); err != nil {
		return err
	}
	defer ep.node.Exit()
	if flags&^(CompletionUnsignalled&ep.attr.RecvCompletionFlags) != 0 {
		return argument(call, InvalidArg5, "completion flags %v", flags)
	}
	q := &ep.receives
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.full() {
		return fault(call, InsufficientResources, ResourceTEP, nil)
	}
	if _, err := q.elements(call, iov, maxMessage, false); err != nil {
		return err
	}
	q.recvs[0] = verbs.RecvWR{ID: uint64(ep.number.Load())<<32 | uint64(q.next())<<1 | idRecv, SGL: q.sgl}
	if _, err := ep.qp.PostRecv(q.recvs[:]); err != nil {
		return ep.refused(call, err)
	}
	q.push(record{cookie: cookie, op: DTOReceive, quiet: flags&CompletionUnsignalled != 0})
	return nil
}
