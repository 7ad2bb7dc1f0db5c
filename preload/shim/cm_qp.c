// SPDX-License-Identifier: BSD-3-Clause

// Objects that an ID creates for the program: QP, CQs, SRQ.

#include "shim.h"

static void destroy_cqs(struct rdma_cm_id *id)
{
	if (id->recv_cq) {
		ibv_destroy_cq(id->recv_cq);
		if (id->recv_cq_channel)
			ibv_destroy_comp_channel(id->recv_cq_channel);
	}
	if (id->send_cq && id->send_cq != id->recv_cq) {
		ibv_destroy_cq(id->send_cq);
		if (id->send_cq_channel)
			ibv_destroy_comp_channel(id->send_cq_channel);
	}
	id->recv_cq = id->send_cq = NULL;
	id->recv_cq_channel = id->send_cq_channel = NULL;
}

static int create_cq(struct rdma_cm_id *id, uint32_t size, struct ibv_comp_channel **ch, struct ibv_cq **cq)
{
	*ch = ibv_create_comp_channel(id->verbs);
	if (!*ch)
		return -1;
	*cq = ibv_create_cq(id->verbs, size ? size : 1, id, *ch, 0);
	if (*cq)
		return 0;
	int err = errno;
	ibv_destroy_comp_channel(*ch);
	*ch = NULL;
	return fail(err);
}

// create_cqs creates the CQs that the attributes lack.
static int create_cqs(struct rdma_cm_id *id, struct ibv_qp_init_attr *a)
{
	if (!a->recv_cq && create_cq(id, a->cap.max_recv_wr, &id->recv_cq_channel, &id->recv_cq))
		return -1;
	if (!a->recv_cq)
		a->recv_cq = id->recv_cq;
	if (!a->send_cq && create_cq(id, a->cap.max_send_wr, &id->send_cq_channel, &id->send_cq)) {
		int err = errno;
		destroy_cqs(id);
		return fail(err);
	}
	if (!a->send_cq)
		a->send_cq = id->send_cq;
	return 0;
}

PUBLIC int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	if (!pd)
		pd = id->pd;
	if (id->qp || !pd || !id->verbs)
		return fail(EINVAL);
	if (pd->context != id->verbs)
		return fail(EINVAL);
	if (create_cqs(id, a))
		return -1;
	if (!a->srq)
		a->srq = id->srq;
	struct ibv_qp *qp = ibv_create_qp(pd, a);
	int err = qp ? go.init_qp(((struct qp *)qp)->h) : errno;
	if (err) {
		if (qp)
			ibv_destroy_qp(qp);
		destroy_cqs(id);
		return fail(err);
	}
	qp->state = IBV_QPS_INIT;
	id->pd = pd;
	id->qp = qp;
	return 0;
}

PUBLIC int rdma_create_qp_ex(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *a)
{
	if (a->comp_mask & ~(uint32_t)IBV_QP_INIT_ATTR_PD) {
		refused("rdma_create_qp_ex with more than a domain");
		return fail(EOPNOTSUPP);
	}
	return rdma_create_qp(id, a->comp_mask & IBV_QP_INIT_ATTR_PD ? a->pd : NULL, (struct ibv_qp_init_attr *)a); // starts with the same fields
}

PUBLIC void rdma_destroy_qp(struct rdma_cm_id *id)
{
	if (!id->qp)
		return;
	ibv_destroy_qp(id->qp);
	id->qp = NULL;
	destroy_cqs(id);
}

PUBLIC int rdma_create_srq(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_srq_init_attr *a)
{
	if (!pd)
		pd = id->pd;
	if (id->srq || !pd || !ours(pd->context))
		return fail(EINVAL);
	id->srq = ibv_create_srq(pd, a);
	if (!id->srq)
		return -1;
	id->pd = pd;
	return 0;
}

PUBLIC int rdma_create_srq_ex(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *a)
{
	if ((a->comp_mask & IBV_SRQ_INIT_ATTR_TYPE && a->srq_type != IBV_SRQT_BASIC) || a->comp_mask & ~(uint32_t)(IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD)) {
		refused("rdma_create_srq_ex of another kind");
		return fail(EOPNOTSUPP);
	}
	return rdma_create_srq(id, a->comp_mask & IBV_SRQ_INIT_ATTR_PD ? a->pd : NULL, (struct ibv_srq_init_attr *)a);
}

PUBLIC void rdma_destroy_srq(struct rdma_cm_id *id)
{
	if (id->srq)
		ibv_destroy_srq(id->srq);
	id->srq = NULL;
}
