// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

/* Atomic Requests and Responses that are received (RFC 7306 section 5). */

#include <linux/highmem.h>

#include "siw.h"
#include "siw_verbs.h"
#include "siw_mem.h"

#ifndef CONFIG_64BIT
#error "atomics need a processor of 64 bits"
#endif

/* siw_7306_sum adds field by field: a bit of mask is the highest of a field, whose carry is dropped (section 5.1.1). */
static u64 siw_7306_sum(u64 old, u64 add, u64 mask)
{
	return ((old & ~mask) + (add & ~mask)) ^ ((old ^ add) & mask);
}

/* How often another may change a word between reading it and writing it. The others, unlike this, can go on for ever. */
#define SIW_7306_ATTEMPTS 10000

/*
 * siw_7306_modify executes the request on a word, and returns whether it has and the value that it had. It is atomic against everybody:
 * other QPs, other devices and processors. Nobody can hold up what a processor has an instruction for; where there are masks, a program
 * that changes the word all the time might, and this runs where interrupts wait for it.
 */
static bool siw_7306_modify(u64 *word, struct iwarp_7306_atomic_req *req, u32 op, u64 *old)
{
	u64 data = be64_to_cpu(req->data), mask = be64_to_cpu(req->mask), cmp = be64_to_cpu(req->cmp),
	    cmp_mask = be64_to_cpu(req->cmp_mask);
	u64 new, now;
	int n;

	if (op == SIW_7306_FETCH_ADD && !(mask << 1)) { /* nothing is carried out of the highest bit anyway */
		*old = atomic64_fetch_add(data, (atomic64_t *)word);
		return true;
	}
	if (op == SIW_7306_CMP_SWAP && !~(mask & cmp_mask)) {
		*old = cmpxchg64(word, cmp, data);
		return true;
	}
	*old = READ_ONCE(*word);
	for (n = 0; n < SIW_7306_ATTEMPTS; n++) {
		if (op == SIW_7306_FETCH_ADD)
			new = siw_7306_sum(*old, data, mask);
		else if ((*old ^ cmp) & cmp_mask)
			new = *old;
		else
			new = (*old & ~mask) | (data & mask);
		now = cmpxchg64(word, *old, new); /* a full barrier, even where it changes nothing */
		if (now == *old)
			return true;
		*old = now;
	}
	return false;
}

/* A piece of a memory that lies in one piece in the kernel, too. */
struct siw_7306_piece {
	void *at;
	u32 len;
	bool mapped;
};

/* siw_7306_map returns the longest piece that begins at addr, NULL in at if there is none. siw_7306_unmap follows. */
static struct siw_7306_piece siw_7306_map(struct siw_mem *mem, u64 addr, u32 len)
{
	struct siw_7306_piece p = { .len = len };

	if (!mem->mem_obj) {
		p.at = (void *)(uintptr_t)addr;
	} else if (mem->is_pbl) {
		int left = 0;

		p.at = (void *)(uintptr_t)siw_pbl_get_buffer(mem->pbl, addr - mem->va, &left, NULL);
		p.len = min_t(u32, len, left);
	} else {
		struct page *page = siw_get_upage(mem->umem, addr);

		if (page) {
			p.at = kmap_local_page(page) + offset_in_page(addr);
			p.len = min_t(u32, len, PAGE_SIZE - offset_in_page(addr));
			p.mapped = true;
		}
	}
	return p;
}

static void siw_7306_unmap(struct siw_7306_piece *p)
{
	if (p->mapped)
		kunmap_local((void *)((unsigned long)p->at & PAGE_MASK));
}

/* siw_7306_target checks an access of a peer's atomic. It returns the memory, referenced, or NULL and the code of the error. */
static struct siw_mem *siw_7306_target(struct siw_qp *qp, u32 stag, u64 to, enum rdmap_ecode *ecode)
{
	struct siw_mem *mem;

	*ecode = RDMAP_ECODE_ACCESS_RIGHTS;
	if (siw_7306_right(qp, IB_ACCESS_REMOTE_ATOMIC) != IB_ACCESS_REMOTE_ATOMIC)
		return NULL;
	*ecode = RDMAP_ECODE_INVALID_STAG;
	mem = siw_mem_id2obj(qp->sdev, stag >> 8);
	if (!mem)
		return NULL;
	if (READ_ONCE(mem->stag) != stag || !READ_ONCE(mem->stag_valid))
		*ecode = RDMAP_ECODE_INVALID_STAG;
	else if (mem->pd != qp->pd)
		*ecode = RDMAP_ECODE_STAG_NOT_ASSOC;
	else if (!(mem->perms & IB_ACCESS_REMOTE_ATOMIC))
		*ecode = RDMAP_ECODE_ACCESS_RIGHTS;
	else if (to + sizeof(u64) < to)
		*ecode = RDMAP_ECODE_TO_WRAP;
	else if (siw_7306_outside(mem, to, sizeof(u64)))
		*ecode = RDMAP_ECODE_BASE_BOUNDS;
	else
		return mem;
	siw_mem_put(mem);
	return NULL;
}

/* siw_7306_room reports whether an answer can be queued. What it finds stays: only the receive path takes room. */
static bool siw_7306_room(struct siw_qp *qp)
{
	unsigned long flags;
	bool room;

	spin_lock_irqsave(&qp->sq_lock, flags);
	room = qp->attrs.irq_size && (tx_wqe(qp)->wr_status == SIW_WR_IDLE ||
				      !READ_ONCE(qp->irq[qp->irq_put % qp->attrs.irq_size].flags));
	spin_unlock_irqrestore(&qp->sq_lock, flags);
	return room;
}

/* siw_7306_answer queues the answer behind those to earlier Reads and atomics, as siw_init_rresp does for a Read. */
static int siw_7306_answer(struct siw_qp *qp, u32 id, u64 value)
{
	struct siw_wqe *wqe = tx_wqe(qp);
	struct siw_sqe *resp;
	unsigned long flags;
	bool run = false;

	spin_lock_irqsave(&qp->sq_lock, flags);
	if (wqe->wr_status == SIW_WR_IDLE) {
		wqe->processed = 0;
		wqe->mem[0] = NULL;
		wqe->wr_status = SIW_WR_QUEUED;
		resp = &wqe->sqe;
		run = true;
	} else {
		resp = irq_alloc_free(qp);
	}
	if (resp) {
		resp->opcode = SIW_OP_READ_RESPONSE;
		resp->num_sge = 1;
		memset(&resp->sge[0], 0, sizeof(resp->sge[0]));
		resp->sge[1].length = qp->rx_stream.ddp_msn[RDMAP_UNTAGGED_QN_RDMA_READ];
		resp->sge[1].lkey = SIW_7306_ANSWER;
		resp->rkey = id;
		resp->raddr = value;
		smp_store_mb(resp->flags, SIW_WQE_VALID);
	}
	spin_unlock_irqrestore(&qp->sq_lock, flags);
	if (WARN_ON_ONCE(!resp))
		return -EPROTO;
	return run ? siw_sq_start(qp) : 0;
}

/* siw_7306_atomic_req executes an Atomic Request and queues its answer. The memory is touched only if nothing is wrong. */
int siw_7306_atomic_req(struct siw_qp *qp)
{
	struct iwarp_7306_atomic_req *req = &qp->rx_stream.hdr.x7306.req;
	u32 op = be32_to_cpu(req->op) & 0xf, stag = be32_to_cpu(req->stag);
	u64 to = be64_to_cpu(req->to), old;
	struct siw_7306_piece p;
	struct siw_mem *mem;
	enum rdmap_ecode ecode;
	bool aligned, done = false;

	if (!siw_7306_room(qp)) {
		siw_init_terminate(qp, TERM_ERROR_LAYER_DDP, DDP_ETYPE_UNTAGGED_BUF, DDP_ECODE_UT_INVALID_MSN_NOBUF, 0);
		return -EPROTO;
	}
	if (op != SIW_7306_FETCH_ADD && op != SIW_7306_CMP_SWAP) {
		siw_init_terminate(qp, TERM_ERROR_LAYER_RDMAP, RDMAP_ETYPE_REMOTE_OPERATION, RDMAP_ECODE_OPCODE, 0);
		return -EPROTO;
	}
	mem = siw_7306_target(qp, stag, to, &ecode);
	if (!mem) {
		siw_init_terminate(qp, TERM_ERROR_LAYER_RDMAP, RDMAP_ETYPE_REMOTE_PROTECTION, ecode, 0);
		siw_qp_event(qp, IB_EVENT_QP_ACCESS_ERR);
		return -EINVAL;
	}
	p = siw_7306_map(mem, to, sizeof(u64));
	/* An aligned word is in one page; buffers of a fast registration may be of any length. */
	aligned = p.at && p.len == sizeof(u64) && IS_ALIGNED((unsigned long)p.at, sizeof(u64));
	if (aligned)
		done = siw_7306_modify(p.at, req, op, &old);
	siw_7306_unmap(&p);
	siw_mem_put(mem);
	if (!aligned) {
		siw_init_terminate(qp, TERM_ERROR_LAYER_RDMAP, RDMAP_ETYPE_REMOTE_OPERATION,
				   RDMAP_ECODE_CATASTROPHIC_STREAM, 0);
		return -EPROTO;
	}
	if (!done) {
		siw_init_terminate(qp, TERM_ERROR_LAYER_RDMAP, RDMAP_ETYPE_CATASTROPHIC, 0, 0);
		return -EBUSY;
	}
	qp->rx_stream.ddp_msn[RDMAP_UNTAGGED_QN_RDMA_READ]++;
	return siw_7306_answer(qp, be32_to_cpu(req->id), old);
}

/* siw_7306_place puts an answer where the request wants it, in the order of this processor's bytes. */
static int siw_7306_place(struct siw_qp *qp, struct siw_sge *sink, u64 value)
{
	struct siw_mem *mem = NULL;
	const void *from = &value;
	u64 addr = sink->laddr;
	u32 left = sizeof(value);
	int rv;

	rv = siw_check_sge(qp->pd, sink, &mem, IB_ACCESS_LOCAL_WRITE, 0, left);
	if (rv)
		return rv;
	while (left) {
		struct siw_7306_piece p = siw_7306_map(mem, addr, left);

		if (!p.at || !p.len) {
			rv = -EFAULT;
			break;
		}
		memcpy(p.at, from, p.len);
		siw_7306_unmap(&p);
		from += p.len;
		addr += p.len;
		left -= p.len;
	}
	siw_mem_put(mem);
	return rv;
}

/* siw_7306_atomic_resp completes the oldest request, which must be an atomic with this identifier. */
int siw_7306_atomic_resp(struct siw_qp *qp)
{
	struct iwarp_7306_atomic_resp *resp = &qp->rx_stream.hdr.x7306.resp;
	struct siw_sqe *orqe = NULL, sqe;
	int rv = 0;

	if (qp->attrs.orq_size) {
		smp_mb(); /* the request may just have been sent by another processor */
		orqe = orq_get_current(qp);
	}
	if (!orqe || !(READ_ONCE(orqe->flags) & SIW_WQE_VALID) ||
	    (orqe->opcode != SIW_OP_FETCH_AND_ADD && orqe->opcode != SIW_OP_COMP_AND_SWAP)) {
		siw_init_terminate(qp, TERM_ERROR_LAYER_DDP, DDP_ETYPE_UNTAGGED_BUF, DDP_ECODE_UT_INVALID_MSN_NOBUF, 0);
		return -EPROTO;
	}
	/* Requests are numbered as the answers to them are. */
	if (be32_to_cpu(resp->id) != qp->x7306.resp_next) {
		siw_init_terminate(qp, TERM_ERROR_LAYER_RDMAP, RDMAP_ETYPE_REMOTE_OPERATION,
				   RDMAP_ECODE_CATASTROPHIC_STREAM, 0);
		return -EPROTO;
	}
	/* A copy: completing clears the flags, and siw_7306_orq_done is to free the entry. */
	sqe = *orqe;
	if (siw_7306_place(qp, &sqe.sge[0], be64_to_cpu(resp->value))) {
		siw_init_terminate(qp, TERM_ERROR_LAYER_DDP, DDP_ETYPE_CATASTROPHIC, DDP_ECODE_CATASTROPHIC, 0);
		siw_qp_event(qp, IB_EVENT_QP_ACCESS_ERR);
		siw_sqe_complete(qp, &sqe, 0, SIW_WC_LOC_PROT_ERR);
		siw_7306_orq_done(qp);
		return -EINVAL;
	}
	qp->x7306.resp_next++;
	if (sqe.flags & SIW_WQE_SIGNALLED)
		rv = siw_sqe_complete(qp, &sqe, sizeof(u64), SIW_WC_SUCCESS);
	return siw_7306_orq_done(qp) ?: rv;
}
