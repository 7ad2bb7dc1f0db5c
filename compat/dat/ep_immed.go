// SPDX-License-Identifier: BSD-3-Clause

package dat

import "github.com/goverbs/goverbs/verbs"

// PostSendImmed sends a message with immediate data (dat_ep_post_send_immed of the proposal). Both
// together consume one receive of the peer. The completion is a DTOSendImmed here and a
// DTOReceiveImmed at the peer.
//
// Without DTOImmedFlag, immed is not sent: the request is a PostSend and completes as one, here and
// at the peer. Without DTOImmedConfirmFlag, the request may complete before the peer has received
// the message (verbs.SendRelaxed).
func (ep *EP) PostSendImmed(iov []LMRTriplet, cookie uint64, immed uint32, dto DTOFlags, flags CompletionFlags) error {
	const call = "EP.PostSendImmed"
	wr, rec := verbs.SendWR{Opcode: verbs.WRSend}, record{cookie: cookie, op: DTOSend}
	if err := immediate(call, &wr, dto, InvalidArg6); err != nil {
		return err
	}
	if dto&DTOImmedFlag != 0 {
		wr.Opcode, wr.Imm, rec.op = verbs.WRSendWithImm, immed, DTOSendImmed
	}
	return ep.request(call, &wr, iov, rec, flags, allCompletion, InvalidArg7)
}

// PostWriteImmed writes into the peer's memory and then sends immediate data, which consumes a
// receive of the peer (dat_ep_post_write_immed of the proposal). That receive may be empty, as no
// data is placed in it. The completion is a DTORDMAWriteImmed here and a DTOReceiveRDMAImmed at the
// peer, which arrives once the data is in the peer's memory.
//
// Without DTOImmedFlag, the request is a PostRDMAWrite and completes as one: the peer gets no
// completion. Without DTOImmedConfirmFlag, the request may complete before the peer has received
// the data (verbs.SendRelaxed). The error is [LengthError] if iov is longer than remote.
func (ep *EP) PostWriteImmed(iov []LMRTriplet, cookie uint64, remote RMRTriplet, immed uint32, dto DTOFlags,
	flags CompletionFlags) error {
	const call = "EP.PostWriteImmed"
	if err := fits(call, iov, remote); err != nil {
		return err
	}
	wr := verbs.SendWR{Opcode: verbs.WRRDMAWrite, RemoteAddr: remote.VirtualAddress, RKey: remote.RMRContext}
	rec, allowed := record{cookie: cookie, op: DTORDMAWrite}, oneSided
	if err := immediate(call, &wr, dto, InvalidArg7); err != nil {
		return err
	}
	if dto&DTOImmedFlag != 0 {
		wr.Opcode, wr.Imm, rec.op, allowed = verbs.WRRDMAWriteWithImm, immed, DTORDMAWriteImmed, allCompletion
	}
	return ep.request(call, &wr, iov, rec, flags, allowed, InvalidArg8)
}

// immediate checks the DTO flags and applies the confirmation flag.
func immediate(call string, wr *verbs.SendWR, dto DTOFlags, arg Subtype) error {
	if dto&^(DTOImmedFlag|DTOImmedConfirmFlag) != 0 {
		return argument(call, arg, "DTO flags %v", dto)
	}
	if dto&DTOImmedConfirmFlag == 0 {
		wr.Flags |= verbs.SendRelaxed
	}
	return nil
}

// PostRecvImmed posts a receive for a message, with or without immediate data, or for the immediate
// data of an RDMA Write (dat_ep_post_recv_immed of the proposal). iov may be empty if only
// immediate data is expected. It completes as DTOReceive, DTOReceiveImmed or DTOReceiveRDMAImmed.
// States, errors and flags are those of [EP.PostRecv].
func (ep *EP) PostRecvImmed(iov []LMRTriplet, cookie uint64, flags CompletionFlags) error {
	return ep.receive("EP.PostRecvImmed", iov, cookie, flags)
}
