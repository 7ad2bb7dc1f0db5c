// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

// Requests that are built by the functions of a struct ibv_qp_ex rather than posted by
// ibv_post_send.

#include "fake.h"

// in_region returns the QP of a call that is allowed only between ibv_wr_start and ibv_wr_complete.
static struct qp *in_region(const char *fn, struct ibv_qp_ex *ex) {
	struct qp *q = (struct qp *)obj_get(fn, K_QP, ex);

	if (q && !q->open) {
		fault("%s: not after ibv_wr_start", fn);
		return NULL;
	}
	return q;
}

static void wr_start(struct ibv_qp_ex *ex) {
	struct qp *q;

	begin(ibv_wr_start, ex->qp_base.qp_num);
	q = (struct qp *)obj_get("ibv_wr_start", K_QP, ex);
	if (q) {
		if (q->open)
			fault("ibv_wr_start: a second time, without ibv_wr_complete");
		q->open = true;
		q->builds = 0;
	}
	end_errno(0);
}

static void wr_atomic_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr, const void *data) {
	struct qp *q;

	begin(ibv_wr_atomic_write, ex->qp_base.qp_num, rkey, remote_addr);
	q = in_region("ibv_wr_atomic_write", ex);
	if (q) {
		struct ibv_send_wr *wr;

		q->built = realloc(q->built, (q->builds + 1) * sizeof(*wr));
		wr = &q->built[q->builds++];
		memset(wr, 0, sizeof(*wr));
		wr->wr_id = ex->wr_id;
		wr->opcode = IBV_WR_ATOMIC_WRITE;
		wr->send_flags = ex->wr_flags;
		wr->wr.atomic.remote_addr = remote_addr;
		wr->wr.atomic.rkey = rkey;
		memcpy(&wr->wr.atomic.swap, data, 8);
	}
	end_errno(0);
}

static int wr_complete(struct ibv_qp_ex *ex) {
	int err = begin(ibv_wr_complete, ex->qp_base.qp_num);
	struct qp *q = in_region("ibv_wr_complete", ex);

	if (q)
		q->open = false;
	return end_errno(err ? err : q ? post_built(q) : EINVAL);
}

static void wr_abort(struct ibv_qp_ex *ex) {
	struct qp *q;

	begin(ibv_wr_abort, ex->qp_base.qp_num);
	q = in_region("ibv_wr_abort", ex);
	if (q)
		q->open = false;
	end_errno(0);
}

// extend_qp prepares a new QP for Atomic Writes.
void extend_qp(struct qp *q) {
	q->extended = true;
	q->ex.wr_start = wr_start;
	q->ex.wr_atomic_write = wr_atomic_write;
	q->ex.wr_complete = wr_complete;
	q->ex.wr_abort = wr_abort;
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp) {
	struct qp *q;

	begin(ibv_qp_to_qp_ex, P(qp));
	q = (struct qp *)obj_get("ibv_qp_to_qp_ex", K_QP, qp);
	return end_ptr(q && q->extended ? &q->ex : NULL, 0);
}
