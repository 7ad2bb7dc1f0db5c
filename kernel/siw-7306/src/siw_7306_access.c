// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

/* What a peer may do: the rights of QPs and the bounds of memory. */

#include "siw.h"
#include "siw_mem.h"

/* No memory has this right. */
#define SIW_7306_NOBODY BIT(30)

/*
 * siw_7306_set_access takes over rights that a program gives to a QP. rdma_cm gives none to a QP that is not connected yet if it is to
 * connect, and iw_cm REMOTE_READ and REMOTE_WRITE to the others, whatever the program wants: the first says nothing at all, the second
 * nothing of atomics, so they do not refuse them. Any other value means what it says.
 */
void siw_7306_set_access(struct siw_qp *qp, int flags)
{
	if (!flags && qp->attrs.state < SIW_QP_STATE_RTS)
		return;
	if (flags == (IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_WRITE))
		flags |= IB_ACCESS_REMOTE_ATOMIC;
	WRITE_ONCE(qp->x7306.access, flags & ~SIW_7306_NOBODY);
}

/* siw_7306_get_access is what query_qp says. */
int siw_7306_get_access(struct siw_qp *qp)
{
	u32 access = READ_ONCE(qp->x7306.access);

	if (access == SIW_7306_ACCESS_ALL)
		access = IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_ATOMIC;
	return qp->x7306.contract ? access : access & ~IB_ACCESS_REMOTE_ATOMIC;
}

/* siw_7306_right returns the right that a memory must give for a peer's access, or one that none gives if the QP refuses it. */
int siw_7306_right(struct siw_qp *qp, int right)
{
	return READ_ONCE(qp->x7306.access) & right ? right : SIW_7306_NOBODY;
}

/* siw_7306_outside reports whether len bytes at addr are not all in mem. No sum can wrap. */
bool siw_7306_outside(struct siw_mem *mem, u64 addr, u32 len)
{
	return addr < mem->va || addr - mem->va > mem->len || len > mem->len - (addr - mem->va);
}

/* siw_7306_ib_state is a QP's state in the words of verbs. */
int siw_7306_ib_state(struct siw_qp *qp)
{
	switch (qp->attrs.state) {
	case SIW_QP_STATE_IDLE:
		return IB_QPS_INIT;
	case SIW_QP_STATE_RTR:
		return IB_QPS_RTR;
	case SIW_QP_STATE_RTS:
		return IB_QPS_RTS;
	case SIW_QP_STATE_CLOSING:
		return IB_QPS_SQD;
	case SIW_QP_STATE_TERMINATE:
		return IB_QPS_SQE;
	default:
		return IB_QPS_ERR;
	}
}
