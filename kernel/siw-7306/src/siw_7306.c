// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

/* The module and the QP as a whole. */

#include <linux/module.h>
#include <rdma/ib_verbs.h>

#include "siw.h"

MODULE_INFO(rfc7306, "masked FetchAdd, masked CmpSwap, Immediate Data; contract 0x73060002; siw with the repairs of goverbs");

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

/* siw_7306_init is called before the module does anything else, and siw_7306_exit after all, unless that has failed. */
int siw_7306_init(void)
{
	int rv = siw_7306_mem_init();

	if (rv)
		return rv;
	BUILD_BUG_ON(SIW_7306_CONTRACT != 0x73060002); /* as modinfo says */
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
	return 0;
}

void siw_7306_exit(void)
{
	siw_7306_mem_exit();
}

/*
 * siw_7306_asked returns the contract that a program has asked for when it makes a QP, which is the only one or none (0). libsiw and clients
 * in the kernel ask for nothing: their peers must not complete receives by messages that they know nothing of.
 */
u32 siw_7306_asked(struct ib_udata *udata)
{
	u32 contract;

	if (!udata || udata->inlen < sizeof(contract) || ib_copy_from_udata(&contract, udata, sizeof(contract)) ||
	    contract != SIW_7306_CONTRACT)
		return 0;
	return contract;
}

/* siw_7306_opcodes returns how many opcodes the peer of a QP may use. The others are unknown, as they are to siw. */
u8 siw_7306_opcodes(struct siw_qp *qp)
{
	return qp->x7306.contract ? SIW_7306_OPCODES : RDMAP_TERMINATE + 1;
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
