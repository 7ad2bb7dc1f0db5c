// SPDX-License-Identifier: BSD-3-Clause

// Connections: connect, listen, accept, reject, disconnect.

#include "shim.h"

// param_of converts connection parameters. It returns an errno.
static int param_of(struct rdma_cm_id *id, struct rdma_conn_param *p, struct rnic_param *to)
{
	*to = (struct rnic_param){.responder_resources = -1, .initiator_depth = -1, .retry_count = 7, .rnr_retry_count = 7};
	if (!p)
		return 0;
	struct ibv_device_attr a;
	int err = ibv_query_device(id->verbs, &a);
	if (err)
		return err;
	if (p->responder_resources != RDMA_MAX_RESP_RES) {
		if (p->responder_resources > a.max_qp_rd_atom)
			return EINVAL;
		to->responder_resources = p->responder_resources;
	}
	if (p->initiator_depth != RDMA_MAX_INIT_DEPTH) {
		if (p->initiator_depth > a.max_qp_init_rd_atom)
			return EINVAL;
		to->initiator_depth = p->initiator_depth;
	}
	if (p->private_data_len && !p->private_data)
		return EINVAL;
	to->private_data = p->private_data;
	to->private_len = p->private_data_len;
	to->retry_count = p->retry_count;
	to->rnr_retry_count = p->rnr_retry_count;
	return 0;
}

// qp_of returns the QP to connect: the ID's own, or one that the program created separately and
// names in the parameters.
static struct qp *qp_of(struct rdma_cm_id *id, struct rdma_conn_param *p)
{
	if (id->qp)
		return (struct qp *)id->qp;
	return p ? qp_by_number(p->qp_num) : NULL;
}

PUBLIC int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *p)
{
	struct id *i = id_of(id);
	struct rnic_param param;
	if (!alive())
		return -1;
	if (!id->verbs || i->conn)
		return fail(EINVAL);
	int err = param_of(id, p, &param);
	if (err)
		return fail(err);
	struct qp *q = qp_of(id, p);
	if (!q)
		return fail(EINVAL);
	struct rnic_addr from = {0}, to = to_addr(&id->route.addr.dst_addr);
	if (i->bound)
		from = to_addr(&id->route.addr.src_addr);
	port_share(i);
	err = go.connect(i, handle_of(q->q.context), q->h, &from, &to, &param, &i->conn);
	if (err)
		return fail(err);
	return cm_complete(i);
}

PUBLIC int rdma_listen(struct rdma_cm_id *id, int backlog)
{
	struct id *i = id_of(id);
	int port = 0;
	if (!alive())
		return -1;
	if (i->listener || i->conn)
		return fail(EINVAL);
	if (!i->bound) {
		struct sockaddr_in any = {.sin_family = AF_INET};
		if (rdma_bind_addr(id, (struct sockaddr *)&any))
			return -1;
	}
	struct ibv_context *c = shared_context();
	if (!c)
		return -1;
	struct rnic_addr at = to_addr(&id->route.addr.src_addr);
	port_share(i);
	int err = go.listen(i, handle_of(c), &at, backlog, i->af_only, &i->listener, &port);
	if (err)
		return fail(err);
	port_drop(i); // the listener holds it
	return 0;
}

PUBLIC int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *p)
{
	struct id *i = id_of(id);
	struct rnic_param param;
	if (!alive())
		return -1;
	struct qp *q = qp_of(id, p);
	if (!q || !i->request)
		return fail(EINVAL);
	int err = param_of(id, p, &param);
	if (err)
		return fail(err);
	err = go.accept(i, i->request, q->h, &param, &i->conn);
	if (err)
		return fail(err);
	i->request = 0;
	return cm_complete(i);
}

PUBLIC int rdma_reject(struct rdma_cm_id *id, const void *private_data, uint8_t length)
{
	struct id *i = id_of(id);
	if (!alive())
		return -1;
	if (!i->request)
		return fail(EINVAL);
	uint32_t request = i->request;
	i->request = 0;
	return fail(go.reject(request, private_data, length));
}

PUBLIC int rdma_disconnect(struct rdma_cm_id *id)
{
	struct id *i = id_of(id);
	if (!alive())
		return -1;
	if (!i->conn)
		return fail(EINVAL);
	int err = go.disconnect(i->conn);
	return err ? fail(err) : cm_complete(i);
}

PUBLIC int rdma_establish(struct rdma_cm_id *id) { return fail(id->qp ? EINVAL : 0); } // the RNIC already did
PUBLIC int rdma_notify(UNUSED struct rdma_cm_id *id, UNUSED enum ibv_event_type event) { return fail(alive() ? 0 : ENODEV); }

// For a QP that the program created separately. Only the state needs to be set, because the RNIC
// knows the other attributes.
PUBLIC int rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *a, int *mask)
{
	if (!id->verbs)
		return fail(EINVAL);
	a->qp_access_flags = 0;
	a->port_num = id->port_num;
	*mask = IBV_QP_STATE;
	if (a->qp_state == IBV_QPS_INIT) {
		a->qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
		*mask |= IBV_QP_ACCESS_FLAGS | IBV_QP_PORT | IBV_QP_PKEY_INDEX;
		a->pkey_index = 0;
	}
	return 0;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define REFUSED(name, args) PUBLIC int name args { refused(#name); return fail(EOPNOTSUPP); }
REFUSED(rdma_join_multicast, (struct rdma_cm_id *id, struct sockaddr *addr, void *context))
REFUSED(rdma_join_multicast_ex, (struct rdma_cm_id *id, struct rdma_cm_join_mc_attr_ex *attr, void *context))
REFUSED(rdma_leave_multicast, (struct rdma_cm_id *id, struct sockaddr *addr))
REFUSED(rdma_set_local_ece, (struct rdma_cm_id *id, struct ibv_ece *ece))
REFUSED(rdma_get_remote_ece, (struct rdma_cm_id *id, struct ibv_ece *ece))
REFUSED(rdma_reject_ece, (struct rdma_cm_id *id, const void *private_data, uint8_t length))
#pragma GCC diagnostic pop
