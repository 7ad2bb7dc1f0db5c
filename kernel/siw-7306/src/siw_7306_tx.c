// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

/* The messages of RFC 7306 that are sent. All are headers without payload. */

#include "siw.h"

static void siw_7306_ddp(struct siw_iwarp_tx *c_tx, u8 opcode, u32 qn, u32 msn)
{
	struct iwarp_7306_ddp *ddp = &c_tx->pkt.hdr.x7306.ddp;

	memcpy(&c_tx->pkt.ctrl, &iwarp_pktinfo[opcode].ctrl, sizeof(struct iwarp_ctrl));
	ddp->rsvd = 0;
	ddp->qn = cpu_to_be32(qn);
	ddp->msn = cpu_to_be32(msn);
	ddp->mo = 0;
	c_tx->ctrl_len = iwarp_pktinfo[opcode].hdr_len;
}

/*
 * siw_7306_build builds the message of the active request if it is one of RFC 7306, sets *crc to where its CRC goes, and returns
 * whether it is. The operands of an atomic are at sge[1]: what to add or swap in, its mask, what to compare with, its mask.
 */
bool siw_7306_build(struct siw_iwarp_tx *c_tx, char **crc)
{
	union iwarp_7306 *pkt = &c_tx->pkt.hdr.x7306;
	struct siw_sqe *sqe = &c_tx->wqe_active.sqe;
	struct siw_7306 *x = &tx_qp(c_tx)->x7306;
	u64 operand[4];
	__be64 imm;

	switch (sqe->opcode) {
	case SIW_OP_FETCH_AND_ADD:
	case SIW_OP_COMP_AND_SWAP:
		memcpy(operand, &sqe->sge[1], sizeof(operand));
		siw_7306_ddp(c_tx, SIW_7306_ATOMIC_REQ, RDMAP_UNTAGGED_QN_RDMA_READ,
			     ++c_tx->ddp_msn[RDMAP_UNTAGGED_QN_RDMA_READ]);
		pkt->req.op = cpu_to_be32(SIW_7306_CMP_SWAP);
		if (sqe->opcode == SIW_OP_FETCH_AND_ADD) {
			pkt->req.op = cpu_to_be32(SIW_7306_FETCH_ADD);
			operand[2] = 0;
			operand[3] = ~0ULL;
		}
		pkt->req.id = cpu_to_be32(++x->req_sent);
		pkt->req.stag = cpu_to_be32(sqe->rkey);
		pkt->req.to = cpu_to_be64(sqe->raddr);
		pkt->req.data = cpu_to_be64(operand[0]);
		pkt->req.mask = cpu_to_be64(operand[1]);
		pkt->req.cmp = cpu_to_be64(operand[2]);
		pkt->req.cmp_mask = cpu_to_be64(operand[3]);
		*crc = (char *)&pkt->req.crc;
		return true;
	case SIW_OP_SEND_WITH_IMM:
		siw_7306_ddp(c_tx, sqe->flags & SIW_WQE_SOLICITED ? SIW_7306_IMM_SE : SIW_7306_IMM, RDMAP_UNTAGGED_QN_SEND,
			     ++c_tx->ddp_msn[RDMAP_UNTAGGED_QN_SEND]);
		imm = cpu_to_be64(sqe->raddr);
		memcpy(pkt->imm.data, &imm, sizeof(imm));
		*crc = (char *)&pkt->imm.crc;
		return true;
	case SIW_OP_READ_RESPONSE:
		if (sqe->sge[1].lkey != SIW_7306_ANSWER)
			return false;
		siw_7306_ddp(c_tx, SIW_7306_ATOMIC_RESP, SIW_7306_QN_RESP, ++x->resp_sent);
		pkt->resp.id = cpu_to_be32(sqe->rkey);
		pkt->resp.value = cpu_to_be64(sqe->raddr);
		*crc = (char *)&pkt->resp.crc;
		return true;
	}
	return false;
}

/*
 * siw_7306_process runs the transmit path for the doorbell or for the transmit thread, one of them at a time. Both hold state_lock for
 * reading. Neither waits for the other, as the thread has other QPs to serve: who finds that somebody sends leaves it to him, and he has the
 * thread look again when he is done. A thread that was woken for a message that the doorbell has completed meanwhile must not complete it
 * again.
 */
int siw_7306_process(struct siw_qp *qp)
{
	struct siw_7306 *x = &qp->x7306;
	int rv = 0;

	if (atomic_inc_return(&x->sender) > 1)
		return 0;
	if (tx_wqe(qp)->wr_status != SIW_WR_IDLE)
		rv = siw_qp_sq_process(qp);
	if (atomic_xchg(&x->sender, 0) > 1 && !rv)
		rv = siw_sq_start(qp);
	return rv;
}

/*
 * siw_7306_is_queued reports whether the transmit thread is going to look at a QP, and notes that from now on it is. A QP that was put into
 * the thread's list twice would take others out of it.
 */
bool siw_7306_is_queued(struct siw_qp *qp)
{
	return atomic_xchg(&qp->x7306.queued, 1);
}

/* siw_7306_unqueue is called before the thread looks at a QP that it has taken out of its list. */
void siw_7306_unqueue(struct siw_qp *qp)
{
	atomic_xchg(&qp->x7306.queued, 0); /* a barrier, too: what is queued from now on has to be seen */
}

/* siw_7306_modified has the transmit thread look at a QP that it could not look at while state_lock was held for a modify. */
void siw_7306_modified(struct siw_qp *qp)
{
	siw_sq_start(qp);
}
