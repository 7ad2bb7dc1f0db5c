// SPDX-License-Identifier: BSD-3-Clause

// IDs of the connection manager: lifetime and options.

#include "shim.h"

#include <stdio.h>

struct id *id_new(struct rdma_event_channel *ch, void *context, enum rdma_port_space ps)
{
	struct id *id = calloc(1, sizeof *id);
	if (!id)
		return NULL;
	pthread_mutex_init(&id->mu, NULL);
	acks_init(&id->events);
	id->port = -1;
	id->id.channel = ch;
	id->id.context = context;
	id->id.ps = ps;
	id->id.qp_type = IBV_QPT_RC;
	return id;
}

// id_bind_device is called once the address that selects the device is known: there is only one
// device.
void id_bind_device(struct id *id)
{
	static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
	static struct ibv_pd *pd; // the library's own, for IDs whose program passes none
	id->id.verbs = shared_context();
	id->id.port_num = 1;
	pthread_mutex_lock(&mu);
	if (!pd && id->id.verbs)
		pd = ibv_alloc_pd(id->id.verbs);
	if (!id->id.pd)
		id->id.pd = pd;
	pthread_mutex_unlock(&mu);
}

PUBLIC int rdma_create_id(struct rdma_event_channel *ch, struct rdma_cm_id **id, void *context, enum rdma_port_space ps)
{
	if (!ready())
		return -1;
	if (ps != RDMA_PS_TCP && ps != RDMA_PS_IB) {
		refused("rdma_create_id of a port space other than TCP and IB");
		return fail(EPROTONOSUPPORT);
	}
	struct rdma_event_channel *own = NULL;
	if (!ch && !(ch = own = rdma_create_event_channel()))
		return -1;
	struct id *i = id_new(ch, context, ps);
	if (!i) {
		if (own)
			rdma_destroy_event_channel(own);
		return fail(ENOMEM);
	}
	i->sync = own != NULL;
	*id = &i->id;
	return 0;
}

static bool of_id(struct node *n, void *id)
{
	struct rdma_cm_event *e = &((struct event *)n)->e;
	return e->id == id || e->listen_id == id;
}

PUBLIC int rdma_destroy_id(struct rdma_cm_id *id)
{
	struct id *i = id_of(id);
	if (!alive())
		return -1;
	// From here on Go delivers no event for it.
	if (i->listener)
		go.close(i->listener);
	if (i->conn)
		go.close(i->conn);
	if (i->request)
		go.reject(i->request, NULL, 0);
	port_drop(i);
	if (id->event)
		rdma_ack_cm_event(id->event);
	struct node *n;
	while ((n = queue_take(&((struct event_channel *)id->channel)->events, of_id, id))) {
		struct event *e = (struct event *)n;
		bool request = e->e.listen_id == id;
		struct rdma_cm_id *child = e->e.id;
		free(e);
		acks_ack(&i->events, 1);
		if (request)
			rdma_destroy_id(child); // the program does not know of it
	}
	acks_wait(&i->events);
	if (i->sync)
		rdma_destroy_event_channel(id->channel);
	free(i->ep);
	free(i);
	return 0;
}

PUBLIC int rdma_migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *ch)
{
	struct id *i = id_of(id);
	bool sync = !ch;
	if (!ch && !(ch = rdma_create_event_channel()))
		return -1;
	pthread_mutex_lock(&i->mu);
	struct rdma_event_channel *old = id->channel;
	id->channel = ch;
	struct node *n;
	while ((n = queue_take(&((struct event_channel *)old)->events, of_id, id)))
		queue_push(&((struct event_channel *)ch)->events, n);
	pthread_mutex_unlock(&i->mu);
	if (i->sync) {
		if (id->event) {
			rdma_ack_cm_event(id->event);
			id->event = NULL;
		}
		rdma_destroy_event_channel(old);
	}
	i->sync = sync;
	return 0;
}

PUBLIC int rdma_set_option(struct rdma_cm_id *id, int level, int option, void *value, size_t size)
{
	struct id *i = id_of(id);
	if (level != RDMA_OPTION_ID)
		return fail(level == RDMA_OPTION_IB ? EOPNOTSUPP : ENOSYS);
	switch (option) {
	case RDMA_OPTION_ID_TOS:
	case RDMA_OPTION_ID_ACK_TIMEOUT:
		return fail(size == sizeof(uint8_t) ? 0 : EINVAL); // accepted and ignored, as with the kernel's siw
	case RDMA_OPTION_ID_REUSEADDR:
	case RDMA_OPTION_ID_AFONLY:
		if (size != sizeof(int))
			return fail(EINVAL);
		if (i->bound)
			return fail(EINVAL);
		if (option == RDMA_OPTION_ID_AFONLY)
			i->af_only = *(int *)value != 0;
		else
			i->reuse = *(int *)value != 0;
		return 0;
	default:
		return fail(ENOSYS);
	}
}

PUBLIC __be16 rdma_get_src_port(struct rdma_cm_id *id) { return id->route.addr.src_sin.sin_port; } // at the same offset for IPv6
PUBLIC __be16 rdma_get_dst_port(struct rdma_cm_id *id) { return id->route.addr.dst_sin.sin_port; }

PUBLIC struct ibv_context **rdma_get_devices(int *num)
{
	if (num)
		*num = 0;
	if (!shared_context())
		return NULL;
	struct ibv_context **list = calloc(2, sizeof *list);
	if (!list)
		return NULL;
	list[0] = shared_context();
	if (num)
		*num = 1;
	return list;
}

PUBLIC void rdma_free_devices(struct ibv_context **list) { free(list); }
