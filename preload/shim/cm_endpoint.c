// SPDX-License-Identifier: BSD-3-Clause

// Endpoints: IDs with a QP whose calls block until they complete.

#include "shim.h"

PUBLIC int rdma_create_ep(struct rdma_cm_id **to, struct rdma_addrinfo *r, struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	struct rdma_cm_id *id;
	if (rdma_create_id(NULL, &id, NULL, r->ai_port_space))
		return -1;
	int err = 0;
	if (r->ai_flags & RAI_PASSIVE) {
		if (rdma_bind_addr(id, r->ai_src_addr))
			err = errno;
		else if (a) {
			id_of(id)->ep = malloc(sizeof *a);
			if (id_of(id)->ep) {
				*id_of(id)->ep = *a;
				id_of(id)->ep->qp_type = r->ai_qp_type;
				id_of(id)->ep_pd = pd;
			} else {
				err = ENOMEM;
			}
		}
	} else {
		if (rdma_resolve_addr(id, r->ai_src_addr, r->ai_dst_addr, 2000) || rdma_resolve_route(id, 2000))
			err = errno;
		else if (a) {
			a->qp_type = r->ai_qp_type;
			if (rdma_create_qp(id, pd, a))
				err = errno;
		}
	}
	if (err) {
		rdma_destroy_id(id);
		return fail(err);
	}
	*to = id;
	return 0;
}

PUBLIC void rdma_destroy_ep(struct rdma_cm_id *id)
{
	rdma_destroy_qp(id);
	rdma_destroy_srq(id);
	rdma_destroy_id(id);
}

PUBLIC int rdma_get_request(struct rdma_cm_id *listen, struct rdma_cm_id **to)
{
	struct id *l = id_of(listen);
	struct rdma_cm_event *e;
	if (!l->sync)
		return fail(EINVAL);
	if (listen->event) {
		rdma_ack_cm_event(listen->event);
		listen->event = NULL;
	}
	if (rdma_get_cm_event(listen->channel, &e))
		return -1;
	if (e->status || e->event != RDMA_CM_EVENT_CONNECT_REQUEST) {
		int err = e->status ? abs(e->status) : EINVAL;
		rdma_ack_cm_event(e);
		return fail(err);
	}
	struct rdma_cm_id *id = e->id;
	int err = 0;
	struct rdma_event_channel *own = rdma_create_event_channel();
	if (!own) {
		err = errno;
		rdma_ack_cm_event(e);
		rdma_destroy_id(id);
		return fail(err);
	}
	pthread_mutex_lock(&id_of(id)->mu);
	id->channel = own;
	id_of(id)->sync = true;
	pthread_mutex_unlock(&id_of(id)->mu);
	id->event = e; // the program reads its private data; the next call acknowledges it
	if (l->ep) {
		struct ibv_qp_init_attr a = *l->ep;
		if (rdma_create_qp(id, l->ep_pd, &a)) {
			err = errno;
			rdma_destroy_id(id);
			return fail(err);
		}
	}
	*to = id;
	return 0;
}
