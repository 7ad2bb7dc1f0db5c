// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

/*
 * Terminate messages in the layout of RFC 5040 section 4.8. siw lays the control word out by bit fields, which differ from it on every
 * little-endian machine.
 */

#include <linux/net.h>
#include <linux/socket.h>

#include "siw.h"
#include "siw_cm.h"

/* The bytes of the control word. */
enum { TERM_LAYER_TYPE, TERM_CODE, TERM_HEADERS, TERM_ZERO };

/* Bits of TERM_HEADERS: the segment's length is valid, its DDP header follows, then its RDMAP header. */
#define TERM_M 0x80
#define TERM_D 0x40
#define TERM_R 0x20

/* A Terminate as an FPDU. What it quotes begins with the segment's length, in the place of an FPDU's; the CRC follows. */
struct siw_7306_term {
	struct iwarp_7306_ddp ddp;
	u8 control[4];
	u8 quote[sizeof(struct iwarp_rdma_rreq) + MPA_CRC_SIZE];
};

#ifdef SIW_7306_CRC_ENABLED
#define siw_7306_has_crc(ctx) ((ctx)->mpa_crc_enabled)
#else
#define siw_7306_has_crc(ctx) ((ctx)->mpa_crc_hd)
#endif

/* siw_7306_rebuild makes the Read Request again that could not be answered; it is the active request of the transmit path. */
static void siw_7306_rebuild(struct siw_qp *qp, struct iwarp_rdma_rreq *rreq)
{
	struct siw_wqe *wqe = tx_wqe(qp);
	struct siw_sge *source = &wqe->sqe.sge[0];

	memset(rreq, 0, sizeof(*rreq));
	rreq->ctrl = iwarp_pktinfo[RDMAP_RDMA_READ_REQ].ctrl;
	rreq->ddp_qn = cpu_to_be32(RDMAP_UNTAGGED_QN_RDMA_READ);
	rreq->ddp_msn = cpu_to_be32(wqe->sqe.sge[1].length); /* where siw_init_rresp keeps it */
	rreq->sink_stag = cpu_to_be32(wqe->sqe.rkey);
	rreq->sink_to = cpu_to_be64(wqe->sqe.raddr + wqe->processed);
	rreq->read_size = cpu_to_be32(source->length - wqe->processed);
	rreq->source_stag = cpu_to_be32(source->lkey);
	rreq->source_to = cpu_to_be64(source->laddr + wqe->processed);
}

/* siw_7306_quote puts what a Terminate quotes into quote, sets *headers, and returns the length (RFC 5040 figure 10). */
static int siw_7306_quote(struct siw_qp *qp, void *quote, u8 *headers)
{
	struct siw_rx_stream *srx = &qp->rx_stream;
	bool tagged = srx->hdr.ctrl.ddp_rdmap_ctrl & DDP_FLAG_TAGGED;
	int len = tagged ? sizeof(struct iwarp_ctrl_tagged) : sizeof(struct iwarp_ctrl_untagged);
	u8 etype = qp->term_info.etype, ecode = qp->term_info.ecode;

	*headers = 0;
	switch (qp->term_info.layer) {
	case TERM_ERROR_LAYER_RDMAP:
		if (etype == RDMAP_ETYPE_CATASTROPHIC ||
		    (etype == RDMAP_ETYPE_REMOTE_OPERATION && ecode == RDMAP_ECODE_VERSION))
			return 0;
		break;
	case TERM_ERROR_LAYER_DDP:
		if ((etype == DDP_ETYPE_TAGGED_BUF && ecode == DDP_ECODE_T_VERSION) ||
		    (etype == DDP_ETYPE_UNTAGGED_BUF && ecode == DDP_ECODE_UT_VERSION))
			return 0;
		break;
	default:
		return 0;
	}
	if (qp->term_info.in_tx) {
		if (etype != RDMAP_ETYPE_REMOTE_PROTECTION)
			return 0;
		siw_7306_rebuild(qp, quote);
		*headers = TERM_M | TERM_D | TERM_R;
		return sizeof(struct iwarp_rdma_rreq);
	}
	/* A header of which a part has not been received is not quoted. */
	if (srx->state == SIW_GET_HDR && srx->fpdu_part_rcvd && srx->fpdu_part_rcvd < len)
		return 0;
	memcpy(quote, &srx->hdr, len);
	*headers = TERM_M | TERM_D;
	return len;
}

/* siw_7306_send_terminate sends the Terminate that siw_init_terminate has noted, if the stream is not within an FPDU. */
void siw_7306_send_terminate(struct siw_qp *qp)
{
	struct siw_7306_term term = {};
	struct msghdr msg = { .msg_flags = MSG_DONTWAIT | MSG_EOR };
	struct socket *s = qp->attrs.sk;
	struct kvec iov;
	__le32 crc = 0;
	int len, rv;

	if (!qp->term_info.valid)
		return;
	qp->term_info.valid = 0;
	if (!s && qp->cep)
		s = qp->cep->sock; /* during set-up */
	if (!s || tx_wqe(qp)->wr_status == SIW_WR_INPROGRESS) {
		siw_dbg_qp(qp, "no Terminate: %s\n", s ? "a message is being sent" : "not connected");
		return;
	}
	memcpy(&term.ddp, &iwarp_pktinfo[RDMAP_TERMINATE].ctrl, sizeof(struct iwarp_ctrl));
	term.ddp.qn = cpu_to_be32(RDMAP_UNTAGGED_QN_TERMINATE);
	term.ddp.msn = cpu_to_be32(1);
	term.control[TERM_LAYER_TYPE] = qp->term_info.layer << 4 | qp->term_info.etype;
	term.control[TERM_CODE] = qp->term_info.ecode;
	len = offsetof(struct siw_7306_term, quote) + siw_7306_quote(qp, term.quote, &term.control[TERM_HEADERS]);
	term.ddp.mpa_len = cpu_to_be16(len - MPA_HDR_SIZE); /* with its quote, always a multiple of 4 */
	if (siw_7306_has_crc(&qp->tx_ctx))
		crc = cpu_to_le32(~crc32c(~0, &term, len));
	memcpy((u8 *)&term + len, &crc, sizeof(crc));
	len += sizeof(crc);

	iov.iov_base = &term;
	iov.iov_len = len;
	rv = kernel_sendmsg(s, &msg, &iov, 1, len);
	siw_dbg_qp(qp, "Terminate %u/%u/%#x: %d of %d bytes sent\n", qp->term_info.layer, qp->term_info.etype,
		   qp->term_info.ecode, rv, len);
}

/*
 * siw_7306_rx_terminate reports a peer's Terminate to the log, and ends the connection. A siw without repair of this swaps layer and
 * type, and has M, D and R at the other end of their byte; if it quotes nothing that cannot be told.
 */
int siw_7306_rx_terminate(struct siw_qp *qp)
{
	u8 *control = (u8 *)&qp->rx_stream.hdr.terminate + offsetof(struct siw_7306_term, control);
	u8 layer = control[TERM_LAYER_TYPE] >> 4, etype = control[TERM_LAYER_TYPE] & 0xf;
	bool swapped = !(control[TERM_HEADERS] & (TERM_M | TERM_D | TERM_R)) && control[TERM_HEADERS];

	if (swapped)
		swap(layer, etype);
	pr_warn_ratelimited("siw: [QP %u]: got Terminate %u/%u/%#x%s\n", qp_id(qp), layer, etype, control[TERM_CODE],
			    swapped ? " (in siw's layout)" : "");
	return -ECONNRESET;
}
