// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

/* The module and the QP as a whole. */

#include <linux/module.h>

#include "siw.h"

MODULE_INFO(rfc7306, "masked FetchAdd, masked CmpSwap, Immediate Data; contract 0x73060001; siw with the repairs of goverbs");

/* siw_7306_message enters an opcode into siw's table. */
static void siw_7306_message(u8 opcode, int len)
{
	struct iwarp_msg_info *info = &iwarp_pktinfo[opcode];

	info->hdr_len = len;
	info->ctrl.mpa_len = cpu_to_be16(len - MPA_HDR_SIZE);
	info->ctrl.ddp_rdmap_ctrl = DDP_FLAG_LAST | cpu_to_be16(DDP_VERSION << 8) | cpu_to_be16(RDMAP_VERSION << 6) |
				    cpu_to_be16(opcode);
	info->rx_data = siw_7306_rx;
}

/* siw_7306_init is called before the module does anything else. */
void siw_7306_init(void)
{
	BUILD_BUG_ON(SIW_7306_CONTRACT != 0x73060001); /* as modinfo says */
	BUILD_BUG_ON(SIW_7306_LEN(imm) != 28);
	BUILD_BUG_ON(SIW_7306_LEN(atomic_req) != 72);
	BUILD_BUG_ON(SIW_7306_LEN(atomic_resp) != 32);
	BUILD_BUG_ON(sizeof(iwarp_pktinfo) / sizeof(iwarp_pktinfo[0]) != SIW_7306_OPCODES);

	siw_7306_message(SIW_7306_IMM, SIW_7306_LEN(imm));
	siw_7306_message(SIW_7306_IMM_SE, SIW_7306_LEN(imm));
	siw_7306_message(SIW_7306_ATOMIC_REQ, SIW_7306_LEN(atomic_req));
	siw_7306_message(SIW_7306_ATOMIC_RESP, SIW_7306_LEN(atomic_resp));
	iwarp_pktinfo[RDMAP_TERMINATE].rx_data = siw_7306_rx_terminate;
	iwarp_pktinfo[RDMAP_RDMA_WRITE].rx_data = siw_7306_rx_write;
	pr_info("siw: with RFC 7306, contract 0x%08x\n", SIW_7306_CONTRACT);
}

/* siw_7306_start prepares a QP that becomes connected, which happens once. The other numbers are 0 since it was made. */
void siw_7306_start(struct siw_qp *qp)
{
	qp->x7306.resp_next = 1;
}

/* siw_7306_is_read reports whether a request gets an answer, and so has an entry in the ORQ. */
bool siw_7306_is_read(int opcode)
{
	return opcode == SIW_OP_READ || opcode == SIW_OP_READ_LOCAL_INV || opcode == SIW_OP_FETCH_AND_ADD ||
	       opcode == SIW_OP_COMP_AND_SWAP;
}

/* siw_7306_class returns the opcode of siw's whose case labels also fit a new one. */
int siw_7306_class(int opcode)
{
	switch (opcode) {
	case SIW_OP_FETCH_AND_ADD:
	case SIW_OP_COMP_AND_SWAP:
		return SIW_OP_READ;
	case SIW_OP_SEND_WITH_IMM:
		return SIW_OP_SEND;
	}
	return opcode;
}
