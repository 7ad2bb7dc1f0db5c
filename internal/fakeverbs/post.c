// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

#include "fake.h"

// Posted requests, for tests to read: the last RECORDS of them.
#define RECORDS 8192
static struct fake_wr *records;
static uint64_t recorded, posts;

void fake_reset_posted(void) {
	recorded = posts = 0;
}

static struct fake_wr *record(void) {
	struct fake_wr *r;

	if (!records)
		records = calloc(RECORDS, sizeof(*records));
	r = &records[recorded++ % RECORDS];
	memset(r, 0, offsetof(struct fake_wr, sge));
	r->inline_len = 0;
	r->call = posts;
	return r;
}

int fake_posted(uint64_t from, struct fake_wr *out, int n, uint64_t *total) {
	int i = 0;

	pthread_mutex_lock(&fake_mu);
	if (recorded > RECORDS && from < recorded - RECORDS)
		from = recorded - RECORDS;
	for (; i < n && from + i < recorded; i++)
		out[i] = records[(from + i) % RECORDS];
	*total = recorded;
	pthread_mutex_unlock(&fake_mu);
	return i;
}

static bool has_imm(uint32_t opcode) {
	return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static uint64_t sges(struct fake_wr *r, const struct ibv_sge *sge, int n) {
	uint64_t bytes = 0;

	r->num_sge = n;
	for (int i = 0; i < n; i++) {
		if (i < FAKE_SGES)
			r->sge[i] = sge[i];
		bytes += sge[i].length;
	}
	return bytes;
}

static void copy_inline(struct fake_wr *r, const struct ibv_sge *sge, int n) {
	for (int i = 0; i < n; i++) {
		uint32_t room = FAKE_INLINE - r->inline_len, len = sge[i].length < room ? sge[i].length : room;

		memcpy(r->data + r->inline_len, (const void *)(uintptr_t)sge[i].addr, len);
		r->inline_len += len;
	}
}

static void record_send(struct qp *q, const struct ibv_send_wr *wr) {
	struct fake_wr *r = record();
	bool ud = q->pub.qp_type == IBV_QPT_UD;
	struct obj *o;

	r->qpn = q->pub.qp_num;
	r->wr_id = wr->wr_id;
	r->opcode = wr->opcode;
	r->flags = wr->send_flags;
	if (has_imm(wr->opcode) || wr->opcode == IBV_WR_SEND_WITH_INV || wr->opcode == IBV_WR_LOCAL_INV)
		r->imm = wr->imm_data;
	sges(r, wr->sg_list, wr->num_sge);
	if (wr->send_flags & IBV_SEND_INLINE)
		copy_inline(r, wr->sg_list, wr->num_sge);
	switch ((int)wr->opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_RDMA_READ:
		r->remote_addr = wr->wr.rdma.remote_addr;
		r->rkey = wr->wr.rdma.rkey;
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		r->remote_addr = wr->wr.atomic.remote_addr;
		r->rkey = wr->wr.atomic.rkey;
		r->compare_add = wr->wr.atomic.compare_add;
		r->swap = wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ? wr->wr.atomic.swap : 0;
		break;
	case IBV_WR_ATOMIC_WRITE:
		r->remote_addr = wr->wr.atomic.remote_addr;
		r->rkey = wr->wr.atomic.rkey;
		r->swap = wr->wr.atomic.swap;
		break;
	case IBV_WR_BIND_MW:
		o = obj_get("ibv_post_send", K_MW, wr->bind_mw.mw);
		if (o) {
			struct mw *w = (struct mw *)o;

			r->mw = o->id;
			if (w->pub.rkey != w->key) // drivers identify the window by it and check nothing else
				fault("ibv_post_send: a bind of window %u, whose key is %#x, names it by %#x", o->id, w->key, w->pub.rkey);
			w->key = wr->bind_mw.rkey; // immediately, although the window is bound later
		}
		r->bind_rkey = wr->bind_mw.rkey;
		if (wr->bind_mw.bind_info.mr && obj_get("ibv_post_send", K_MR, wr->bind_mw.bind_info.mr))
			r->bind_lkey = wr->bind_mw.bind_info.mr->lkey;
		r->bind_addr = wr->bind_mw.bind_info.addr;
		r->bind_length = wr->bind_mw.bind_info.length;
		r->bind_access = wr->bind_mw.bind_info.mw_access_flags;
		break;
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_SEND_WITH_INV:
		if (!ud)
			break;
		o = obj_get("ibv_post_send", K_AH, wr->wr.ud.ah);
		if (o)
			r->ah = o->id;
		r->remote_qpn = wr->wr.ud.remote_qpn;
		r->remote_qkey = wr->wr.ud.remote_qkey;
		break;
	}
}

static int opcode_ok(struct qp *q, uint32_t opcode) {
	if (opcode == 12 || opcode == 13)
		fault("ibv_post_send: opcode %u, which indexes libsiw's table of 12", opcode);
	if (q->dev->iwarp)
		return opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_SEND || opcode == IBV_WR_RDMA_READ ||
			opcode == IBV_WR_SEND_WITH_INV;
	switch (q->pub.qp_type) {
	case IBV_QPT_UD: return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM;
	case IBV_QPT_UC:
		return opcode <= IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_LOCAL_INV || opcode == IBV_WR_BIND_MW ||
			opcode == IBV_WR_SEND_WITH_INV;
	default: return opcode <= IBV_WR_SEND_WITH_INV || (opcode == IBV_WR_ATOMIC_WRITE && q->extended);
	}
}

// across: siw copies up to 32 bytes of one element with code that fails across a page boundary.
static int across(uint64_t addr, uint32_t n) {
	return n <= 32 && addr % 4096 + n > 4096;
}

static int unanswered(const struct qp *q) {
	int reads = 0;

	for (int i = 0; i < q->sq.count; i++)
		reads += q->sq.wr[(q->sq.head + i) % q->sq.room].opcode == IBV_WR_RDMA_READ;
	return reads;
}

// siw_traps records requests for which the kernel's siw does something other than what was asked.
static void siw_traps(struct qp *q, const struct ibv_send_wr *wr) {
	if (wr->opcode != IBV_WR_RDMA_READ) {
		if ((wr->send_flags & IBV_SEND_FENCE) && unanswered(q) > 0)
			fault("ibv_post_send: a fenced request behind a Read on siw: until it is answered no Read of the peer's is");
		if (wr->num_sge == 1 && !(wr->send_flags & IBV_SEND_INLINE) && across(wr->sg_list[0].addr, wr->sg_list[0].length))
			fault("ibv_post_send: %u bytes from one SGE that crosses a page on siw: it sends others", wr->sg_list[0].length);
		return;
	}
	if (wr->num_sge == 0)
		fault("ibv_post_send: a Read without an SGE on siw: it reads as much as the request before it");
	if (wr->num_sge > 1)
		fault("ibv_post_send: a Read with %d SGEs on siw", wr->num_sge);
	if (wr->num_sge == 1 && across(wr->wr.rdma.remote_addr, wr->sg_list[0].length))
		fault("ibv_post_send: a Read of %u bytes across a page of a siw: it answers with others", wr->sg_list[0].length);
	if (wr->num_sge == 1 && wr->sg_list[0].length == 0 && unanswered(q) > 0)
		fault("ibv_post_send: a Read of 0 bytes behind another to a siw: it answers with others");
	if (wr->send_flags & IBV_SEND_FENCE)
		fault("ibv_post_send: a fenced Read on siw: its queue jams");
	if (q->connected && q->ord == 0)
		fault("ibv_post_send: a Read at ORD 0 on siw: its queue jams");
	else if (q->connected && q->ord > 0 && unanswered(q) >= q->ord)
		fault("ibv_post_send: a Read beyond ORD %d on siw: until one is answered no Read of the peer's is", q->ord);
}

static int check_send(struct qp *q, const struct ibv_send_wr *wr) {
	uint64_t bytes = 0;

	if (!opcode_ok(q, wr->opcode))
		return EINVAL;
	if (q->sq.count == q->sq.room)
		return ENOMEM;
	if (wr->num_sge < 0 || wr->num_sge > q->sq.max_sge)
		return EINVAL;
	for (int i = 0; i < wr->num_sge; i++)
		bytes += wr->sg_list[i].length;
	if ((wr->send_flags & IBV_SEND_INLINE) && bytes > q->cap.max_inline_data)
		return EINVAL;
	return 0;
}

// pend queues the request recorded last.
static void pend(struct wq *w, struct pending p) {
	if (fake_loop) {
		p.wr = malloc(sizeof(*p.wr));
		*p.wr = records[(recorded - 1) % RECORDS];
	}
	w->wr[(w->head + w->count++) % w->room] = p;
}

static int take_send(struct qp *q, const struct ibv_send_wr *wr) {
	struct pending p = {.wr_id = wr->wr_id, .opcode = wr->opcode, .flags = wr->send_flags};

	if (q->dev->iwarp)
		siw_traps(q, wr);
	p.sig = q->sig_all || (wr->send_flags & IBV_SEND_SIGNALED);
	for (int i = 0; i < wr->num_sge; i++)
		p.bytes += wr->sg_list[i].length;
	record_send(q, wr);
	pend(&q->sq, p);
	if (q->state == IBV_QPS_ERR && !q->dev->iwarp && !fake_late_flush)
		wq_complete(q, false, 1, IBV_WC_WR_FLUSH_ERR, 0);
	else if (fake_auto && q->state == IBV_QPS_RTS)
		wq_complete(q, false, 1, IBV_WC_SUCCESS, p.bytes);
	else if (fake_loop)
		loop_run(q);
	return 0;
}

int fake_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad) {
	int err = begin(ibv_post_send, qp->qp_num, wr->opcode), sign;
	struct post_fail f = fake_post_fail(FN_ibv_post_send);
	struct qp *q = (struct qp *)obj_get("ibv_post_send", K_QP, qp);

	posts++;
	sign = q && q->dev->iwarp ? -1 : 1; // libsiw returns negative numbers
	if (!err && (!q || (!q->dev->iwarp && q->state < IBV_QPS_RTS)))
		err = EINVAL;
	if (q && q->open)
		fault("ibv_post_send: between ibv_wr_start and ibv_wr_complete");
	for (int i = 0; !err && wr; i++) {
		if (f.on && i == f.index) {
			if (!f.no_bad)
				*bad = wr;
			return end_errno(f.result);
		}
		if ((int)wr->opcode == IBV_WR_ATOMIC_WRITE)
			fault("ibv_post_send: an Atomic Write, whose data only ibv_wr_atomic_write has");
		if (!(err = check_send(q, wr))) {
			take_send(q, wr);
			wr = wr->next;
		}
	}
	if (f.on && !err && !f.no_bad)
		*bad = wr;
	if (err)
		*bad = wr;
	return end_errno(f.on && !err ? f.result : sign * err);
}

// post_built posts the requests built since ibv_wr_start.
int post_built(struct qp *q) {
	int err = q->state < IBV_QPS_RTS ? EINVAL : q->sq.count + q->builds > q->sq.room ? ENOSPC : 0; // as librxe reports it

	posts++;
	for (int i = 0; !err && i < q->builds; i++)
		take_send(q, &q->built[i]);
	return err;
}

static int take_recv(struct wq *w, uint32_t qpn, uint32_t srq, const struct ibv_recv_wr *wr) {
	struct pending p = {.wr_id = wr->wr_id, .sig = true};
	struct fake_wr *r;

	if (w->count == w->room)
		return ENOMEM;
	if (wr->num_sge < 0 || wr->num_sge > w->max_sge)
		return EINVAL;
	r = record();
	r->recv = 1;
	r->qpn = qpn;
	r->srq = srq;
	r->wr_id = wr->wr_id;
	p.bytes = sges(r, wr->sg_list, wr->num_sge);
	pend(w, p);
	return 0;
}

int fake_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
	int err = begin(ibv_post_recv, qp->qp_num), sign;
	struct post_fail f = fake_post_fail(FN_ibv_post_recv);
	struct qp *q = (struct qp *)obj_get("ibv_post_recv", K_QP, qp);

	posts++;
	sign = q && q->dev->iwarp ? -1 : 1;
	if (!err && (!q || qp->srq || (!q->dev->iwarp && q->state == IBV_QPS_RESET)))
		err = EINVAL;
	for (int i = 0; !err && wr; i++) {
		if (f.on && i == f.index) {
			if (!f.no_bad)
				*bad = wr;
			return end_errno(f.result);
		}
		if (!err && q->dev->iwarp && wr->num_sge == 0)
			err = EINVAL; // libsiw requires one
		if (!err && !(err = take_recv(&q->rq, qp->qp_num, 0, wr))) {
			wr = wr->next;
			if (q->state == IBV_QPS_ERR && !q->dev->iwarp && !fake_late_flush)
				wq_complete(q, true, 1, IBV_WC_WR_FLUSH_ERR, 0);
		}
	}
	if (q && fake_loop)
		loop_recv(qp->qp_num, NULL);
	if (f.on && !err && !f.no_bad)
		*bad = wr;
	if (err)
		*bad = wr;
	return end_errno(f.on && !err ? f.result : sign * err);
}

int fake_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
	int err = begin(ibv_post_srq_recv, P(srq));
	struct post_fail f = fake_post_fail(FN_ibv_post_srq_recv);
	struct srq *s = (struct srq *)obj_get("ibv_post_srq_recv", K_SRQ, srq);
	int sign = s && ctx_of(srq->context)->dev->iwarp ? -1 : 1;

	posts++;
	err = err ? err : s ? 0 : EINVAL;
	for (int i = 0; !err && wr; i++) {
		if (f.on && i == f.index) {
			if (!f.no_bad)
				*bad = wr;
			return end_errno(f.result);
		}
		if (!(err = take_recv(&s->rq, 0, s->o.id, wr)))
			wr = wr->next;
	}
	if (s && fake_loop)
		loop_recv(0, srq);
	if (f.on && !err && !f.no_bad)
		*bad = wr;
	if (err)
		*bad = wr;
	return end_errno(f.on && !err ? f.result : sign * err);
}

int fake_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind) {
	int err = begin(ibv_bind_mw, qp->qp_num, P(mw), bind->bind_info.addr, bind->bind_info.length,
		bind->bind_info.mw_access_flags, bind->send_flags, bind->wr_id);
	struct qp *q = (struct qp *)obj_get("ibv_bind_mw", K_QP, qp);
	struct obj *w = obj_get("ibv_bind_mw", K_MW, mw);

	if (!err && (!q || !w || q->state != IBV_QPS_RTS))
		err = EINVAL;
	if (!err && q->sq.count == q->sq.room)
		err = ENOMEM;
	if (!err) {
		struct ibv_send_wr wr = {.wr_id = bind->wr_id, .opcode = IBV_WR_BIND_MW, .send_flags = bind->send_flags};

		wr.bind_mw.mw = mw;
		wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
		wr.bind_mw.bind_info = bind->bind_info;
		posts++;
		take_send(q, &wr);
		mw->rkey = wr.bind_mw.rkey; // which drivers do for this call only
	}
	return end_errno(err);
}

// Completions.

static uint32_t wc_opcode(uint32_t opcode) {
	switch (opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM: return IBV_WC_RDMA_WRITE;
	case IBV_WR_RDMA_READ: return IBV_WC_RDMA_READ;
	case IBV_WR_ATOMIC_CMP_AND_SWP: return IBV_WC_COMP_SWAP;
	case IBV_WR_ATOMIC_FETCH_AND_ADD: return IBV_WC_FETCH_ADD;
	case IBV_WR_LOCAL_INV: return IBV_WC_LOCAL_INV;
	case IBV_WR_BIND_MW: return IBV_WC_BIND_MW;
	case IBV_WR_ATOMIC_WRITE: return IBV_WC_ATOMIC_WRITE;
	default: return IBV_WC_SEND;
	}
}

// wq_take removes the oldest waiting request.
bool wq_take(struct qp *q, bool recv, struct pending *p) {
	struct srq *s = recv && q->pub.srq ? OUTER(srq, q->pub.srq) : NULL;
	struct wq *w = s ? &s->rq : recv ? &q->rq : &q->sq;

	if (w->count == 0)
		return false;
	*p = w->wr[w->head];
	w->head = (w->head + 1) % w->room;
	w->count--;
	if (s && s->attr.srq_limit > 0 && (uint32_t)w->count < s->attr.srq_limit) {
		struct ibv_async_event ev = {.event_type = IBV_EVENT_SRQ_LIMIT_REACHED, .element.srq = &s->pub};

		s->attr.srq_limit = 0;
		async_push(ctx_of(s->pub.context), &s->o, ev);
	}
	return true;
}

int wq_complete(struct qp *q, bool recv, int n, uint32_t status, uint32_t bytes) {
	int done = 0;

	for (struct pending p; done < n && wq_take(q, recv, &p); done++) {
		struct fake_wc wc = {.wr_id = p.wr_id, .status = status, .qp_num = q->pub.qp_num};

		wc.opcode = recv ? IBV_WC_RECV : wc_opcode(p.opcode);
		wc.byte_len = bytes;
		free(p.wr);
		if (recv || p.sig || status != IBV_WC_SUCCESS)
			cq_add(OUTER(cq, recv ? q->pub.recv_cq : q->pub.send_cq), &wc);
	}
	return done;
}

int fake_complete(uint32_t qpn, int recv, int n, uint32_t status, uint32_t bytes) {
	struct qp *q;
	int done = -1;

	pthread_mutex_lock(&fake_mu);
	q = qp_by_num(qpn);
	if (q)
		done = wq_complete(q, recv, n, status, bytes);
	pthread_mutex_unlock(&fake_mu);
	return done;
}

// fake_inject_wc adds an arbitrary completion to the QP's send or receive CQ. For a receive, recv 2
// uses the wr_id of the oldest waiting request.
int fake_inject_wc(uint32_t qpn, int recv, const struct fake_wc *wc) {
	struct fake_wc w = *wc;
	struct pending p;
	struct qp *q;
	int ok;

	pthread_mutex_lock(&fake_mu);
	q = qp_by_num(qpn);
	ok = q != NULL;
	if (ok && recv == 2 && (ok = wq_take(q, true, &p))) {
		w.wr_id = p.wr_id;
		free(p.wr);
	}
	if (ok)
		cq_add(OUTER(cq, recv ? q->pub.recv_cq : q->pub.send_cq), &w);
	pthread_mutex_unlock(&fake_mu);
	return ok;
}
