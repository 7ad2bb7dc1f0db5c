// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

#include "fake.h"

void wq_init(struct wq *w, int room, int max_sge) {
	w->room = room;
	w->max_sge = max_sge;
	w->wr = calloc(room > 0 ? room : 1, sizeof(*w->wr));
}

void wq_clear(struct wq *w) {
	for (; w->count > 0; w->count--) {
		free(w->wr[w->head].wr);
		w->head = (w->head + 1) % w->room;
	}
}

void wq_free(struct wq *w) {
	wq_clear(w);
	free(w->wr);
	w->wr = NULL;
	w->room = w->count = 0;
}

static bool has_num(const struct obj *o, uint32_t qpn) {
	return ((const struct qp *)o)->pub.qp_num == qpn;
}

struct qp *qp_by_num(uint32_t qpn) {
	return (struct qp *)obj_find(K_QP, has_num, qpn);
}

uint32_t fake_qp_nth(int nth) {
	uint32_t qpn = 0;
	int n = 0;

	pthread_mutex_lock(&fake_mu);
	for (struct obj *o = obj_next(K_QP, NULL); o; o = obj_next(K_QP, o))
		if (n++ == nth)
			qpn = ((struct qp *)o)->pub.qp_num;
	pthread_mutex_unlock(&fake_mu);
	return qpn;
}

static struct ibv_qp *create(const char *fn, int err, struct ibv_pd *pd, struct ibv_qp_init_attr *init, bool extended) {
	struct obj *up[4] = {obj_get(fn, K_PD, pd), obj_get(fn, K_CQ, init->send_cq), obj_get(fn, K_CQ, init->recv_cq),
		init->srq ? obj_get(fn, K_SRQ, init->srq) : NULL};
	struct ibv_device_attr *a;
	struct dev *d;
	struct qp *q;

	if (!err && (!up[0] || !up[1] || !up[2] || (init->srq && !up[3])))
		err = EINVAL;
	if (err)
		return end_ptr(NULL, err);
	d = ctx_of(pd->context)->dev;
	a = &d->attr.orig_attr;
	if (init->send_cq->context != pd->context || init->recv_cq->context != pd->context)
		err = EINVAL;
	if (init->qp_type != IBV_QPT_RC && (d->iwarp || (init->qp_type != IBV_QPT_UC && init->qp_type != IBV_QPT_UD)))
		err = EOPNOTSUPP;
	if (init->cap.max_send_wr > (uint32_t)a->max_qp_wr || init->cap.max_recv_wr > (uint32_t)a->max_qp_wr ||
		init->cap.max_send_sge > (uint32_t)a->max_sge || init->cap.max_recv_sge > (uint32_t)a->max_sge ||
		init->cap.max_inline_data > FAKE_INLINE)
		err = EINVAL;
	if (err)
		return end_ptr(NULL, err);
	q = obj_new(K_QP, sizeof(*q), offsetof(struct qp, pub), sizeof(q->ex));
	for (int i = 0; i < 4; i++)
		obj_up(&q->o, i, up[i]);
	q->dev = d;
	q->sig_all = init->sq_sig_all;
	q->ord = -1;
	if (init->cap.max_inline_data < 64)
		init->cap.max_inline_data = 64; // devices round up
	q->cap = init->cap;
	q->attr.cap = init->cap;
	wq_init(&q->sq, init->cap.max_send_wr, init->cap.max_send_sge);
	wq_init(&q->rq, init->srq ? 0 : init->cap.max_recv_wr, init->cap.max_recv_sge);
	q->pub.context = pd->context;
	q->pub.qp_context = init->qp_context;
	q->pub.pd = pd;
	q->pub.send_cq = init->send_cq;
	q->pub.recv_cq = init->recv_cq;
	q->pub.srq = init->srq;
	q->pub.handle = q->o.id;
	q->pub.qp_num = 0x100 + q->o.id;
	q->pub.qp_type = init->qp_type;
	pthread_mutex_init(&q->pub.mutex, NULL);
	pthread_cond_init(&q->pub.cond, NULL);
	((struct cq *)up[1])->hot = q;
	if (extended)
		extend_qp(q);
	return end_ptr(&q->pub, 0);
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init) {
	int err = begin(ibv_create_qp, P(pd), P(init->send_cq), P(init->recv_cq), P(init->srq), init->qp_type,
		init->cap.max_send_wr, init->cap.max_recv_wr, init->sq_sig_all);

	return create("ibv_create_qp", err, pd, init, false);
}

struct ibv_qp *fake_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *init) {
	int err = begin(ibv_create_qp_ex, P(context), init->comp_mask, init->send_ops_flags, init->qp_type);

	if (!err && (init->comp_mask != (IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) || init->pd->context != context))
		err = EINVAL;
	if (!err && (init->send_ops_flags != IBV_QP_EX_WITH_ATOMIC_WRITE || init->qp_type != IBV_QPT_RC ||
		!(ctx_of(context)->dev->attr.device_cap_flags_ex & ATOMIC_WRITE_CAP)))
		err = EOPNOTSUPP;
	return create("ibv_create_qp_ex", err, init->pd, (struct ibv_qp_init_attr *)init, true); // which it starts with
}

// may reports whether the state diagram has this transition.
static bool may(enum ibv_qp_state from, enum ibv_qp_state to) {
	if (to == IBV_QPS_RESET || to == IBV_QPS_ERR)
		return true;
	switch (from) {
	case IBV_QPS_RESET: return to == IBV_QPS_INIT;
	case IBV_QPS_INIT: return to == IBV_QPS_INIT || to == IBV_QPS_RTR;
	case IBV_QPS_RTR: return to == IBV_QPS_RTS;
	case IBV_QPS_RTS: return to == IBV_QPS_RTS || to == IBV_QPS_SQD;
	case IBV_QPS_SQD: return to == IBV_QPS_SQD || to == IBV_QPS_RTS;
	case IBV_QPS_SQE: return to == IBV_QPS_RTS;
	default: return false;
	}
}

// required returns the attributes that a transition needs in addition to the state.
static int required(enum ibv_qp_type type, enum ibv_qp_state from, enum ibv_qp_state to) {
	if (from == IBV_QPS_RESET && to == IBV_QPS_INIT)
		return IBV_QP_PKEY_INDEX | IBV_QP_PORT | (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
	if (from == IBV_QPS_INIT && to == IBV_QPS_RTR && type != IBV_QPT_UD)
		return IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			(type == IBV_QPT_RC ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0);
	if (from == IBV_QPS_RTR && to == IBV_QPS_RTS)
		return IBV_QP_SQ_PSN |
			(type == IBV_QPT_RC ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0);
	return 0;
}

static int check_modify(struct qp *q, const struct ibv_qp_attr *attr, int mask) {
	enum ibv_qp_state to = mask & IBV_QP_STATE ? attr->qp_state : q->state;

	if ((mask & IBV_QP_CUR_STATE) && attr->cur_qp_state != q->state && !q->dev->iwarp)
		return EINVAL;
	if (q->dev->iwarp) // only the connection manager brings a QP up
		return (mask & IBV_QP_STATE) && to == IBV_QPS_RTS && !q->connected ? EINVAL : 0;
	if (!may(q->state, to))
		return EINVAL;
	if ((mask & required(q->pub.qp_type, q->state, to)) != required(q->pub.qp_type, q->state, to))
		return EINVAL;
	if ((mask & IBV_QP_PORT) && (attr->port_num < 1 || attr->port_num > q->dev->attr.orig_attr.phys_port_cnt))
		return EINVAL;
	if ((mask & IBV_QP_AV) && !attr->ah_attr.is_global && q->dev->port[0].link_layer == IBV_LINK_LAYER_ETHERNET)
		return EINVAL;
	if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) && attr->max_rd_atomic > q->dev->attr.orig_attr.max_qp_init_rd_atom)
		return EINVAL;
	if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) && attr->max_dest_rd_atomic > q->dev->attr.orig_attr.max_qp_rd_atom)
		return EINVAL;
	return 0;
}

int fake_late_flush;

static void flush(struct qp *q) {
	if (fake_late_flush)
		return;
	wq_complete(q, false, q->sq.count, IBV_WC_WR_FLUSH_ERR, 0);
	if (!q->pub.srq)
		wq_complete(q, true, q->rq.count, IBV_WC_WR_FLUSH_ERR, 0);
}

// fake_flush flushes the requests kept by late flushes and returns how many there were, or -1 for
// no such QP.
int fake_flush(uint32_t qpn) {
	struct qp *q;
	int n = -1, late;

	pthread_mutex_lock(&fake_mu);
	q = qp_by_num(qpn);
	if (q) {
		n = q->sq.count + (q->pub.srq ? 0 : q->rq.count);
		late = fake_late_flush;
		fake_late_flush = 0;
		flush(q);
		fake_late_flush = late;
	}
	pthread_mutex_unlock(&fake_mu);
	return n;
}

void qp_to_error(struct qp *q) {
	bool lost = q->connected;

	if (q->running) {
		q->failed = true;
		return;
	}
	q->state = IBV_QPS_ERR;
	q->connected = false;
	flush(q);
	if (lost && q->dev->iwarp)
		cm_lost(q->pub.qp_num); // the stream is closed
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask) {
	int err = begin(ibv_modify_qp, P(qp), mask, attr->qp_state);
	struct qp *q = (struct qp *)obj_get("ibv_modify_qp", K_QP, qp);

	if (q)
		fake_note(FN_ibv_modify_qp, qp->qp_num); // tests know the number
	err = err ? err : q ? check_modify(q, attr, mask) : EINVAL;
	if (err)
		return end_errno(err);
	q->modifies++;
	q->mask |= mask;
	if (q->dev->iwarp)
		mask &= IBV_QP_STATE | IBV_QP_ACCESS_FLAGS; // siw ignores all others
#define SET(bit, field) \
	if (mask & bit) \
		q->attr.field = attr->field
	SET(IBV_QP_ACCESS_FLAGS, qp_access_flags);
	SET(IBV_QP_PKEY_INDEX, pkey_index);
	SET(IBV_QP_PORT, port_num);
	SET(IBV_QP_QKEY, qkey);
	SET(IBV_QP_AV, ah_attr);
	SET(IBV_QP_PATH_MTU, path_mtu);
	SET(IBV_QP_TIMEOUT, timeout);
	SET(IBV_QP_RETRY_CNT, retry_cnt);
	SET(IBV_QP_RNR_RETRY, rnr_retry);
	SET(IBV_QP_RQ_PSN, rq_psn);
	SET(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
	SET(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
	SET(IBV_QP_SQ_PSN, sq_psn);
	SET(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
	SET(IBV_QP_PATH_MIG_STATE, path_mig_state);
	SET(IBV_QP_DEST_QPN, dest_qp_num);
	SET(IBV_QP_EN_SQD_ASYNC_NOTIFY, en_sqd_async_notify);
#undef SET
	if (mask & IBV_QP_STATE) {
		qp->state = attr->qp_state;
		switch (attr->qp_state) {
		case IBV_QPS_ERR:
			qp_to_error(q);
			break;
		case IBV_QPS_RESET: // posted requests are dropped
			wq_clear(&q->sq);
			wq_clear(&q->rq);
			q->state = IBV_QPS_RESET;
			break;
		default:
			if (!q->dev->iwarp || !q->connected)
				q->state = attr->qp_state;
			loop_run(q);
		}
	}
	return end_errno(0);
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init) {
	int err = begin(ibv_query_qp, P(qp), mask);
	struct qp *q = (struct qp *)obj_get("ibv_query_qp", K_QP, qp);

	if (q)
		fake_note(FN_ibv_query_qp, qp->qp_num); // tests know the number
	err = err ? err : q ? 0 : EINVAL;
	if (err)
		return end_errno(err);
	*attr = q->attr;
	attr->qp_state = attr->cur_qp_state = q->dev->iwarp ? IBV_QPS_RESET : q->state; // siw does not report it
	qp->state = attr->qp_state;
	memset(init, 0, sizeof(*init));
	init->qp_context = qp->qp_context;
	init->send_cq = qp->send_cq;
	init->recv_cq = qp->recv_cq;
	init->srq = qp->srq;
	init->cap = q->cap;
	init->qp_type = qp->qp_type;
	init->sq_sig_all = q->sig_all;
	return end_errno(0);
}

static bool bound_on(const struct obj *o, uint32_t qpn) {
	return ((const struct mw *)o)->bound && ((const struct mw *)o)->qpn == qpn;
}

int ibv_destroy_qp(struct ibv_qp *qp) {
	int err = begin(ibv_destroy_qp, P(qp));
	struct qp *q = (struct qp *)obj_get("ibv_destroy_qp", K_QP, qp);

	err = err ? err : q ? obj_busy("ibv_destroy_qp", &q->o) : EINVAL;
	if (!err && q->groups > 0)
		err = EBUSY; // of ib_uverbs
	if (err)
		return end_errno(err);
	if (q->connected && q->dev->iwarp)
		cm_lost(qp->qp_num);
	if (is_rxe(q->dev) && obj_find(K_MW, bound_on, qp->qp_num))
		fault("ibv_destroy_qp: a window is bound on QP %u, for which rxe waits 50 s", qp->qp_num);
	q->o.dying = true;
	evq_drop(&ctx_of(qp->context)->async, &q->o, NULL);
	loop_recv(qp->qp_num, NULL);
	wait_acked("ibv_destroy_qp", &q->o, &qp->events_completed, &q->async_reported);
	if (OUTER(cq, qp->send_cq)->hot == q)
		OUTER(cq, qp->send_cq)->hot = NULL;
	if (q->open)
		fault("ibv_destroy_qp: between ibv_wr_start and ibv_wr_complete");
	free(q->built);
	q->built = NULL;
	wq_free(&q->sq);
	wq_free(&q->rq);
	free(q->wqe);
	q->wqe = NULL;
	obj_kill(&q->o);
	return end_errno(0);
}

bool fake_move_qp(uint32_t qpn, int state) {
	struct qp *q;

	pthread_mutex_lock(&fake_mu);
	q = qp_by_num(qpn);
	if (q && state == IBV_QPS_ERR)
		qp_to_error(q);
	else if (q)
		q->state = state;
	pthread_mutex_unlock(&fake_mu);
	return q;
}

bool fake_set_depths(uint32_t qpn, int ord, int ird) {
	struct qp *q;

	pthread_mutex_lock(&fake_mu);
	q = qp_by_num(qpn);
	if (q) {
		q->connected = true;
		q->ord = ord;
		q->attr.max_rd_atomic = q->dev->iwarp ? ird : ord; // siw swaps them in a query
		q->attr.max_dest_rd_atomic = q->dev->iwarp ? ord : ird;
	}
	pthread_mutex_unlock(&fake_mu);
	return q;
}

int fake_qp_info(uint32_t qpn, struct ibv_qp_attr *attr, struct ibv_qp_init_attr *init, int *mask, int *modifies) {
	struct qp *q;

	pthread_mutex_lock(&fake_mu);
	q = qp_by_num(qpn);
	if (q) {
		*attr = q->attr;
		attr->qp_state = q->state;
		init->cap = q->cap;
		init->qp_type = q->pub.qp_type;
		init->sq_sig_all = q->sig_all;
		*mask = q->mask;
		*modifies = q->modifies;
	}
	pthread_mutex_unlock(&fake_mu);
	return q != NULL;
}

int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid) {
	int err = begin(ibv_attach_mcast, P(qp), gid->raw[0], lid);
	struct qp *q = (struct qp *)obj_get("ibv_attach_mcast", K_QP, qp);

	if (q)
		fake_note(FN_ibv_attach_mcast, qp->qp_num); // tests know the number
	if (!err && (!q || qp->qp_type != IBV_QPT_UD || gid->raw[0] != 0xff))
		err = EINVAL;
	if (!err && q->groups == FAKE_GROUPS)
		err = ENOMEM;
	if (!err) {
		struct qp_group *g = &q->group[q->groups++];

		memcpy(g->gid, gid->raw, sizeof(g->gid));
		g->lid = lid;
	}
	return end_errno(err);
}

int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid) {
	int err = begin(ibv_detach_mcast, P(qp), gid->raw[0], lid);
	struct qp *q = (struct qp *)obj_get("ibv_detach_mcast", K_QP, qp);

	if (q)
		fake_note(FN_ibv_detach_mcast, qp->qp_num); // tests know the number
	if (err || !q)
		return end_errno(err ? err : EINVAL);
	for (int i = 0; i < q->groups; i++)
		if (!memcmp(q->group[i].gid, gid->raw, sizeof(q->group[i].gid)) && q->group[i].lid == lid) {
			q->group[i] = q->group[--q->groups];
			return end_errno(0);
		}
	return end_errno(EINVAL);
}

// Shared receive queues.

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *init) {
	int err = begin(ibv_create_srq, P(pd), init->attr.max_wr, init->attr.max_sge, init->attr.srq_limit);
	struct obj *o = obj_get("ibv_create_srq", K_PD, pd);
	struct srq *s;

	if (!err && (!o || init->attr.max_wr < 1 ||
		init->attr.max_wr > (uint32_t)ctx_of(pd->context)->dev->attr.orig_attr.max_srq_wr ||
		init->attr.max_sge > (uint32_t)ctx_of(pd->context)->dev->attr.orig_attr.max_srq_sge))
		err = EINVAL;
	if (err)
		return end_ptr(NULL, err);
	s = obj_new(K_SRQ, sizeof(*s), offsetof(struct srq, pub), sizeof(s->pub));
	obj_up(&s->o, 0, o);
	wq_init(&s->rq, init->attr.max_wr, init->attr.max_sge);
	s->attr = init->attr;
	s->pub.context = pd->context;
	s->pub.srq_context = init->srq_context;
	s->pub.pd = pd;
	s->pub.handle = s->o.id;
	pthread_mutex_init(&s->pub.mutex, NULL);
	pthread_cond_init(&s->pub.cond, NULL);
	return end_ptr(&s->pub, 0);
}

int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask) {
	int err = begin(ibv_modify_srq, P(srq), mask, attr->max_wr, attr->srq_limit);
	struct srq *s = (struct srq *)obj_get("ibv_modify_srq", K_SRQ, srq);

	if (!err && (!s || ((mask & IBV_SRQ_LIMIT) && attr->srq_limit > s->attr.max_wr)))
		err = EINVAL;
	if (!err && (mask & IBV_SRQ_MAX_WR)) {
		struct wq w = {0};

		if (ctx_of(srq->context)->dev->iwarp)
			return end_errno(EOPNOTSUPP);
		if (attr->max_wr < (uint32_t)s->rq.count || attr->max_wr < 1)
			return end_errno(EINVAL);
		wq_init(&w, attr->max_wr, s->rq.max_sge);
		for (; w.count < s->rq.count; w.count++)
			w.wr[w.count] = s->rq.wr[(s->rq.head + w.count) % s->rq.room];
		s->rq.count = 0; // the waiting ones have moved
		wq_free(&s->rq);
		s->rq = w;
		s->attr.max_wr = attr->max_wr;
	}
	if (!err && (mask & IBV_SRQ_LIMIT))
		s->attr.srq_limit = attr->srq_limit;
	return end_errno(err);
}

int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr) {
	int err = begin(ibv_query_srq, P(srq));
	struct srq *s = (struct srq *)obj_get("ibv_query_srq", K_SRQ, srq);

	err = err ? err : s ? 0 : EINVAL;
	if (!err)
		*attr = s->attr;
	return end_errno(err);
}

int ibv_destroy_srq(struct ibv_srq *srq) {
	int err = begin(ibv_destroy_srq, P(srq));
	struct srq *s = (struct srq *)obj_get("ibv_destroy_srq", K_SRQ, srq);

	err = err ? err : s ? obj_busy("ibv_destroy_srq", &s->o) : EINVAL;
	if (err)
		return end_errno(err);
	s->o.dying = true;
	evq_drop(&ctx_of(srq->context)->async, &s->o, NULL);
	wait_acked("ibv_destroy_srq", &s->o, &srq->events_completed, &s->async_reported);
	wq_free(&s->rq);
	obj_kill(&s->o);
	return end_errno(0);
}
