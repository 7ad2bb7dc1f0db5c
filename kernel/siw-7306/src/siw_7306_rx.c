// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

/* The headers that are received, and Immediate Data. */

#include "siw.h"

static bool siw_7306_is_tagged(struct siw_rx_stream *srx)
{
	return srx->hdr.ctrl.ddp_rdmap_ctrl & DDP_FLAG_TAGGED;
}

/* siw_7306_fpdu_len is the length of the FPDU that is being received, without padding and CRC. */
static int siw_7306_fpdu_len(struct siw_rx_stream *srx)
{
	return be16_to_cpu(srx->hdr.ctrl.mpa_len) + MPA_HDR_SIZE;
}

/*
 * siw_7306_header looks at the first 16 bytes of an FPDU whose opcode is known. It refuses one that is shorter than its header, so
 * that nobody waits for the rest, and one whose opcode does not belong to its T bit.
 */
int siw_7306_header(struct siw_rx_stream *srx, u8 opcode)
{
	bool tagged = siw_7306_is_tagged(srx);
	int least = tagged ? sizeof(struct iwarp_ctrl_tagged) : sizeof(struct iwarp_ctrl_untagged);

	if (siw_7306_fpdu_len(srx) >= least) {
		if (tagged != (opcode == RDMAP_RDMA_WRITE || opcode == RDMAP_RDMA_READ_RESP)) {
			siw_init_terminate(rx_qp(srx), TERM_ERROR_LAYER_RDMAP, RDMAP_ETYPE_REMOTE_OPERATION,
					   RDMAP_ECODE_OPCODE, 0);
			return -EINVAL;
		}
		if (siw_7306_fpdu_len(srx) >= siw_7306_hdr_len(srx, opcode))
			return 0;
	}
	siw_init_terminate(rx_qp(srx), TERM_ERROR_LAYER_LLP, LLP_ETYPE_MPA, LLP_ECODE_FPDU_START, 0);
	return -EINVAL;
}

/*
 * siw_7306_hdr_len returns the length of the header of an FPDU that siw_7306_header has let pass. Messages of RFC 7306 may be too
 * short: what there is of them is read, and the length refused in its turn.
 */
int siw_7306_hdr_len(struct siw_rx_stream *srx, u8 opcode)
{
	int len = iwarp_pktinfo[opcode].hdr_len;

	if (opcode >= SIW_7306_IMM)
		len = min(len, max(siw_7306_fpdu_len(srx), (int)sizeof(struct iwarp_ctrl_untagged)));
	return len;
}

/* siw_7306_expected returns the MSN that comes next on a queue. */
static u32 siw_7306_expected(struct siw_qp *qp, u32 qn)
{
	return qn == SIW_7306_QN_RESP ? qp->x7306.resp_next : qp->rx_stream.ddp_msn[qn];
}

/* siw_7306_check checks the segment of a message of RFC 7306 (README.md has the order). */
static int siw_7306_check(struct siw_qp *qp, u8 opcode)
{
	struct siw_rx_stream *srx = &qp->rx_stream;
	struct iwarp_7306_ddp *ddp = &srx->hdr.x7306.ddp;
	u32 qn = be32_to_cpu(ddp->qn), queue = RDMAP_UNTAGGED_QN_SEND;
	u8 layer = TERM_ERROR_LAYER_DDP, etype = DDP_ETYPE_UNTAGGED_BUF, ecode;
	int more = siw_7306_fpdu_len(srx) - iwarp_pktinfo[opcode].hdr_len;

	if (opcode == SIW_7306_ATOMIC_REQ)
		queue = RDMAP_UNTAGGED_QN_RDMA_READ;
	else if (opcode == SIW_7306_ATOMIC_RESP)
		queue = SIW_7306_QN_RESP;

	if (qn > SIW_7306_QN_RESP) {
		ecode = DDP_ECODE_UT_INVALID_QN;
	} else if (be32_to_cpu(ddp->msn) != siw_7306_expected(qp, qn)) {
		ecode = DDP_ECODE_UT_INVALID_MSN_RANGE;
	} else if (qn != queue) {
		layer = TERM_ERROR_LAYER_RDMAP;
		etype = RDMAP_ETYPE_REMOTE_OPERATION;
		ecode = RDMAP_ECODE_OPCODE;
	} else if (ddp->mo || !(srx->hdr.ctrl.ddp_rdmap_ctrl & DDP_FLAG_LAST)) {
		ecode = DDP_ECODE_UT_INVALID_MO;
	} else if (more > 0) {
		ecode = DDP_ECODE_UT_MSG_TOOLONG;
	} else if (more < 0) {
		layer = TERM_ERROR_LAYER_RDMAP;
		etype = RDMAP_ETYPE_REMOTE_OPERATION;
		ecode = RDMAP_ECODE_CATASTROPHIC_STREAM;
	} else {
		return 0;
	}
	siw_init_terminate(qp, layer, etype, ecode, 0);
	return -EPROTO;
}

/*
 * siw_7306_rx is called when the header is complete. Everything is left to siw_7306_completes, which is called when the CRC has been
 * checked. Only what would never come to that is refused here: a message that is not one segment of the right length.
 */
int siw_7306_rx(struct siw_qp *qp)
{
	struct siw_rx_stream *srx = &qp->rx_stream;
	u8 opcode = srx->rdmap_op;

	if (siw_7306_fpdu_len(srx) == iwarp_pktinfo[opcode].hdr_len && srx->hdr.ctrl.ddp_rdmap_ctrl & DDP_FLAG_LAST)
		return 0;
	return siw_7306_check(qp, opcode);
}

/* siw_7306_nudge: the empty Writes that open a connection, or wake a peer, have no key. They do not stand between other messages. */
static bool siw_7306_nudge(struct siw_rx_stream *srx)
{
	return siw_7306_fpdu_len(srx) == iwarp_pktinfo[RDMAP_RDMA_WRITE].hdr_len && !(be32_to_cpu(srx->hdr.rwrite.sink_stag) >> 8);
}

/* siw_7306_rx_write is siw_proc_write, and counts the bytes of the message. */
int siw_7306_rx_write(struct siw_qp *qp)
{
	struct siw_rx_stream *srx = &qp->rx_stream;

	if (srx->state == SIW_GET_DATA_START && !siw_7306_nudge(srx)) {
		if (qp->rx_tagged.first_ddp_seg)
			qp->x7306.written = 0;
		qp->x7306.written += srx->fpdu_part_rem;
	}
	return siw_proc_write(qp);
}

/* siw_7306_immediate completes a receive with 8 bytes of Immediate Data (RFC 7306 section 6). */
static int siw_7306_immediate(struct siw_qp *qp, u8 opcode)
{
	struct iwarp_7306_imm *imm = &qp->rx_stream.hdr.x7306.imm;
	struct siw_wqe *wqe = siw_rqe_get(qp);
	u32 bytes = sizeof(imm->data);
	__be64 data;
	int rv;

	if (!wqe) {
		siw_init_terminate(qp, TERM_ERROR_LAYER_DDP, DDP_ETYPE_UNTAGGED_BUF, DDP_ECODE_UT_INVALID_MSN_NOBUF, 0);
		return -ENOENT;
	}
	memcpy(&data, imm->data, sizeof(data));
	wqe->rqe.sge[0].laddr = be64_to_cpu(data);
	wqe->rqe.flags = SIW_7306_WITH_IMM;
	if (opcode == SIW_7306_IMM_SE)
		wqe->rqe.flags |= SIW_WQE_SOLICITED;
	if (qp->x7306.wrote) {
		wqe->rqe.flags |= SIW_7306_BEHIND_WRITE;
		bytes = qp->x7306.written;
	}
	qp->rx_stream.ddp_msn[RDMAP_UNTAGGED_QN_SEND]++;
	rv = siw_rqe_complete(qp, &wqe->rqe, bytes, 0, SIW_WC_SUCCESS);
	wqe->wr_status = SIW_WR_IDLE;
	return rv;
}

/*
 * siw_7306_completes handles a whole message of RFC 7306 that was received without (error 0) or with an error, sets *rv, and returns
 * true. Of other messages it only notes whether they are RDMA Writes.
 */
bool siw_7306_completes(struct siw_qp *qp, u8 opcode, int error, int *rv)
{
	struct siw_rx_stream *srx = &qp->rx_stream;

	if (opcode < SIW_7306_IMM) {
		if (opcode != RDMAP_RDMA_WRITE || !siw_7306_nudge(srx))
			qp->x7306.wrote = opcode == RDMAP_RDMA_WRITE;
		return false;
	}
	*rv = 0;
	if (error)
		return true;
	*rv = siw_7306_check(qp, opcode);
	if (!*rv) {
		if (opcode == SIW_7306_ATOMIC_REQ)
			*rv = siw_7306_atomic_req(qp);
		else if (opcode == SIW_7306_ATOMIC_RESP)
			*rv = siw_7306_atomic_resp(qp);
		else
			*rv = siw_7306_immediate(qp, opcode);
	}
	qp->x7306.wrote = false;
	return true;
}

/* siw_7306_imm returns the immediate of a receive, 0 if it has none, and sets the flags that tell. */
u64 siw_7306_imm(struct siw_rqe *rqe, u8 *cqe_flags)
{
	u16 flags = READ_ONCE(rqe->flags);

	if (!(flags & SIW_7306_WITH_IMM))
		return 0;
	*cqe_flags |= flags & (SIW_7306_WITH_IMM | SIW_7306_BEHIND_WRITE);
	return rqe->sge[0].laddr;
}

/* siw_7306_solicited returns the flag SOLICITED if a completion must wake a CQ that is armed for those only. */
u32 siw_7306_solicited(u32 flags, int status)
{
	return status == SIW_WC_SUCCESS ? flags & SIW_WQE_SOLICITED : SIW_WQE_SOLICITED;
}

/* siw_7306_trailer_seen is how much of padding and CRC has been received before. */
u32 siw_7306_trailer_seen(struct siw_rx_stream *srx)
{
	return srx->pad + MPA_CRC_SIZE - srx->fpdu_part_rem;
}
