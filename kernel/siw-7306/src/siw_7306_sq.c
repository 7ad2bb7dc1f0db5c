// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

/* The send queue: which requests are executed, which wait, and what becomes of those that come too late. */

#include <rdma/ib_verbs.h>
#include <rdma/restrack.h>

#include "siw.h"
#include "siw_verbs.h"

/* siw_7306_compact drops the elements of length 0, whose memory siw does not look up but uses. It returns the sum of the lengths. */
static u64 siw_7306_compact(struct siw_sqe *sqe)
{
	int i, n = 0;
	u64 sum = 0;

	for (i = 0; i < sqe->num_sge; i++) {
		if (!sqe->sge[i].length)
			continue;
		sum += sqe->sge[i].length;
		sqe->sge[n++] = sqe->sge[i];
	}
	sqe->num_sge = n;
	return sum;
}

/* siw_7306_can reports whether a request of user space can be executed, and corrects what it may. */
static bool siw_7306_can(struct siw_qp *qp, struct siw_sqe *sqe)
{
	bool is_inline = sqe->flags & SIW_WQE_INLINE;

	switch (sqe->opcode) {
	case SIW_OP_SEND:
	case SIW_OP_WRITE:
		if (is_inline)
			return sqe->sge[0].length <= SIW_MAX_INLINE;
		fallthrough;
	case SIW_OP_SEND_REMOTE_INV:
		return !is_inline && sqe->num_sge <= SIW_MAX_SGE && siw_7306_compact(sqe) <= INT_MAX;
	case SIW_OP_SEND_WITH_IMM:
		sqe->num_sge = 0;
		return !is_inline && qp->x7306.contract;
	case SIW_OP_READ:
		if (!sqe->num_sge)
			memset(&sqe->sge[0], 0, sizeof(sqe->sge[0]));
		return !is_inline && sqe->num_sge <= SIW_MAX_SGE_RD && sqe->sge[0].length <= INT_MAX && qp->attrs.orq_size;
	case SIW_OP_FETCH_AND_ADD:
	case SIW_OP_COMP_AND_SWAP:
		return !is_inline && sqe->num_sge == 1 && sqe->sge[0].length == sizeof(u64) && qp->attrs.orq_size &&
		       qp->x7306.contract;
	}
	return false; /* the rest is for the kernel, or no request */
}

/*
 * siw_7306_fenced reports whether a Read or atomic must wait for the answers to all before it. siw has a fence for other requests only.
 */
static bool siw_7306_fenced(struct siw_qp *qp, struct siw_sqe *sqe)
{
	bool waits;

	if (!siw_7306_is_read(sqe->opcode) || !(sqe->flags & SIW_WQE_READ_FENCE))
		return false;
	sqe->flags &= ~SIW_WQE_READ_FENCE;
	if (!qp->attrs.orq_size)
		return false;
	spin_lock(&qp->orq_lock);
	waits = !siw_orq_empty(qp);
	if (waits)
		qp->tx_ctx.orq_fence = 1;
	spin_unlock(&qp->orq_lock);
	return waits;
}

/*
 * siw_7306_admit looks at the kernel's copy of a request, and reports whether it must wait. A request of user space that cannot be
 * executed is turned into one that fails as soon as it is its turn, with a completion of its own and the end of the connection.
 */
bool siw_7306_admit(struct siw_qp *qp, struct siw_wqe *wqe)
{
	struct siw_sqe *sqe = &wqe->sqe;

	if (siw_7306_fenced(qp, sqe))
		return siw_7306_parked(wqe, 0);
	if (rdma_is_kernel_res(&qp->base_qp.res) || siw_7306_can(qp, sqe))
		return false;
	siw_dbg_qp(qp, "refused: opcode %u, flags %#x, %u elements\n", sqe->opcode, sqe->flags, sqe->num_sge);
	sqe->opcode = SIW_OP_SEND;
	sqe->flags &= SIW_WQE_VALID | SIW_WQE_SIGNALLED;
	sqe->num_sge = SIW_MAX_SGE + 1;
	return false;
}

/*
 * siw_7306_parked leaves a request that must wait for its turn (rv 0) in the queue, so that answers to the peer can be sent meanwhile,
 * and reports whether it did.
 */
bool siw_7306_parked(struct siw_wqe *wqe, int rv)
{
	if (rv)
		return false;
	wqe->wr_status = SIW_WR_IDLE;
	return true;
}

/*
 * siw_7306_orq_done frees the oldest entry of the ORQ, whose answer has come, and starts the request that waited for it. If something
 * is being sent, the transmit path looks at the queue by itself when that is done.
 */
int siw_7306_orq_done(struct siw_qp *qp)
{
	unsigned long flags;
	bool waits;
	int rv = 0;

	spin_lock_irqsave(&qp->orq_lock, flags);
	WRITE_ONCE(orq_get_current(qp)->flags, 0);
	qp->orq_get++;
	waits = qp->tx_ctx.orq_fence;
	spin_unlock_irqrestore(&qp->orq_lock, flags);
	if (!waits)
		return 0;

	spin_lock_irqsave(&qp->sq_lock, flags);
	if (tx_wqe(qp)->wr_status == SIW_WR_IDLE) {
		qp->tx_ctx.orq_fence = 0;
		rv = siw_activate_tx(qp);
	}
	spin_unlock_irqrestore(&qp->sq_lock, flags);
	return rv > 0 ? siw_sq_start(qp) : rv;
}

/* siw_7306_lock_state read-locks a QP's state. A program waits for that, a client in the kernel must not. */
bool siw_7306_lock_state(struct siw_qp *qp)
{
	if (rdma_is_kernel_res(&qp->base_qp.res))
		return down_read_trylock(&qp->state_lock);
	down_read(&qp->state_lock);
	return true;
}

/* How many entries are completed before interrupts and other work of the processor have their turn. */
#define SIW_7306_FLUSHED_AT_ONCE 32

/* siw_7306_breathe gives the processor away for a moment, every few entries of a flush that holds lock. */
static void siw_7306_breathe(spinlock_t *lock, unsigned long *flags, u32 n)
{
	if (!n || n % SIW_7306_FLUSHED_AT_ONCE)
		return;
	spin_unlock_irqrestore(lock, *flags);
	cond_resched();
	spin_lock_irqsave(lock, *flags);
}

/*
 * siw_7306_flush_rings completes what a program has put into the rings of a QP in state ERROR. The caller holds state_lock for reading: so
 * siw's own flush does not run, and nothing is received. Two doorbells may take turns: each entry is completed once, in the ring's order.
 */
static int siw_7306_flush_rings(struct siw_qp *qp)
{
	unsigned long flags;
	u32 n;

	spin_lock_irqsave(&qp->sq_lock, flags);
	for (n = 0; n < qp->attrs.sq_size; n++) {
		struct siw_sqe *ring, sqe;

		siw_7306_breathe(&qp->sq_lock, &flags, n);
		ring = &qp->sendq[qp->sq_get % qp->attrs.sq_size];
		if (!(smp_load_acquire(&ring->flags) & SIW_WQE_VALID))
			break;
		sqe = *ring;
		if (siw_sqe_complete(qp, &sqe, 0, SIW_WC_WR_FLUSH_ERR))
			break;
		smp_store_mb(ring->flags, 0);
		qp->sq_get++;
	}
	spin_unlock_irqrestore(&qp->sq_lock, flags);

	spin_lock_irqsave(&qp->rq_lock, flags);
	for (n = 0; n < qp->attrs.rq_size; n++) {
		struct siw_rqe *ring, rqe;

		siw_7306_breathe(&qp->rq_lock, &flags, n);
		ring = &qp->recvq[qp->rq_get % qp->attrs.rq_size];
		if (!(smp_load_acquire(&ring->flags) & SIW_WQE_VALID))
			break;
		rqe = *ring;
		rqe.flags = SIW_WQE_VALID;
		if (siw_rqe_complete(qp, &rqe, 0, 0, SIW_WC_WR_FLUSH_ERR))
			break;
		smp_store_mb(ring->flags, 0);
		qp->rq_get++;
	}
	spin_unlock_irqrestore(&qp->rq_lock, flags);
	return 0;
}

/* siw_7306_flush is the doorbell of a QP in state ERROR; wr is NULL if it is a program's. It returns 1 if siw is to go on. */
int siw_7306_flush(struct siw_qp *qp, const struct ib_send_wr *wr)
{
	if (wr || rdma_is_kernel_res(&qp->base_qp.res))
		return 1;
	return siw_7306_flush_rings(qp);
}
