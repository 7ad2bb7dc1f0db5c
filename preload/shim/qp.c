// SPDX-License-Identifier: BSD-3-Clause

// Queue pairs.

#include "shim.h"

static pthread_mutex_t all_mu = PTHREAD_MUTEX_INITIALIZER; // guards all
static struct qp *all;

struct qp *qp_by_number(uint32_t num)
{
	pthread_mutex_lock(&all_mu);
	struct qp *q = all;
	while (q && q->q.qp_num != num)
		q = q->next;
	pthread_mutex_unlock(&all_mu);
	return q;
}

PUBLIC struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	REAL(pd->context, ibv_create_qp, pd, a);
	if (a->qp_type != IBV_QPT_RC) {
		refused("ibv_create_qp of a type other than RC");
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (!a->send_cq || !a->recv_cq || !ours(a->send_cq->context) || !ours(a->recv_cq->context) || (a->srq && !ours(a->srq->context))) {
		errno = EINVAL;
		return NULL;
	}
	struct qp *q = calloc(1, sizeof *q);
	if (!q)
		return NULL;
	struct ibv_qp_cap cap = a->cap;
	acks_init(&q->async);
	pthread_mutex_init(&q->q.mutex, NULL);
	pthread_cond_init(&q->q.cond, NULL);
	q->q.context = pd->context;
	q->q.qp_context = a->qp_context;
	q->q.pd = pd;
	q->q.send_cq = a->send_cq;
	q->q.recv_cq = a->recv_cq;
	q->q.srq = a->srq;
	q->q.qp_type = a->qp_type;
	q->q.state = IBV_QPS_RESET;
	q->sig_all = a->sq_sig_all;
	int err = go.create_qp(pd->handle, q, ((struct cq *)a->send_cq)->h, ((struct cq *)a->recv_cq)->h,
		a->srq ? ((struct srq *)a->srq)->h : 0, &cap, a->sq_sig_all, &q->h, &q->q.qp_num);
	if (err)
		return nothing(q, err);
	a->cap = cap;
	q->q.handle = q->h;
	pthread_mutex_lock(&all_mu);
	q->next = all;
	all = q;
	pthread_mutex_unlock(&all_mu);
	return &q->q;
}

PUBLIC struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	REAL(qp->context, ibv_qp_to_qp_ex, qp);
	return NULL; // without a QP
}

PUBLIC int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask)
{
	REAL(qp->context, ibv_modify_qp, qp, a, mask);
	int err = go.modify_qp(((struct qp *)qp)->h, a, mask);
	if (!err && mask & IBV_QP_STATE)
		qp->state = a->qp_state;
	return err;
}

PUBLIC int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask, struct ibv_qp_init_attr *init)
{
	REAL(qp->context, ibv_query_qp, qp, a, mask, init);
	memset(a, 0, sizeof *a);
	int err = go.query_qp(((struct qp *)qp)->h, a);
	if (err)
		return err;
	*init = (struct ibv_qp_init_attr){.qp_context = qp->qp_context, .send_cq = qp->send_cq, .recv_cq = qp->recv_cq, .srq = qp->srq,
		.cap = a->cap, .qp_type = qp->qp_type, .sq_sig_all = ((struct qp *)qp)->sig_all};
	qp->state = a->qp_state;
	return 0;
}

PUBLIC int ibv_destroy_qp(struct ibv_qp *qp)
{
	struct qp *q = (struct qp *)qp;
	REAL(qp->context, ibv_destroy_qp, qp);
	int err = go.close(q->h);
	if (err)
		return err;
	pthread_mutex_lock(&all_mu);
	for (struct qp **p = &all; *p; p = &(*p)->next)
		if (*p == q) {
			*p = q->next;
			break;
		}
	pthread_mutex_unlock(&all_mu);
	async_forget(qp->context, q);
	acks_wait(&q->async);
	free(q);
	return 0;
}
