// SPDX-License-Identifier: BSD-3-Clause

// Event channels of the connection manager, and their events.

#include "shim.h"

#include <unistd.h>

PUBLIC struct rdma_event_channel *rdma_create_event_channel(void)
{
	if (!ready())
		return NULL;
	struct event_channel *c = calloc(1, sizeof *c);
	if (!c)
		return NULL;
	if (!queue_init(&c->events))
		return nothing(c, errno);
	c->c.fd = c->events.fd;
	return &c->c;
}

PUBLIC void rdma_destroy_event_channel(struct rdma_event_channel *ch)
{
	struct event_channel *c = (struct event_channel *)ch;
	queue_free(&c->events); // the IDs are destroyed, and their events with them
	free(c);
}

void cm_push(struct id *id, struct event *e)
{
	acks_give(&id->events); // under the lock: the ID must not be freed between the read and the return
	pthread_mutex_lock(&id->mu);
	queue_push(&((struct event_channel *)id->id.channel)->events, &e->node);
	pthread_mutex_unlock(&id->mu);
}

void cm_tell(struct id *id, int event, int status)
{
	struct event *e = calloc(1, sizeof *e);
	if (!e)
		return;
	e->e.id = &id->id;
	e->e.event = event;
	e->e.status = status;
	cm_push(id, e);
}

// cm_event is called by Go. The owner of a connection request is its listener.
void cm_event(void *owner, const struct rnic_cm_event *got)
{
	struct id *id = owner;
	struct event *e = calloc(1, sizeof *e);
	if (!e)
		return;
	e->e.event = got->event;
	e->e.status = got->status;
	struct id *about = id;
	if (got->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
		about = id_new(id->id.channel, id->id.context, id->id.ps);
		if (!about) {
			go.reject(got->request, NULL, 0);
			free(e);
			return;
		}
		about->request = got->request;
		id_bind_device(about);
		e->e.listen_id = &id->id;
	}
	e->e.id = &about->id;
	from_addr(&got->local, &about->id.route.addr.src_storage);
	from_addr(&got->remote, &about->id.route.addr.dst_storage);
	memcpy(e->private_data, got->private_data, got->private_len);
	e->e.param.conn.private_data = got->private_len ? e->private_data : NULL;
	e->e.param.conn.private_data_len = got->private_len > UINT8_MAX ? UINT8_MAX : got->private_len;
	e->e.param.conn.responder_resources = got->responder_resources;
	e->e.param.conn.initiator_depth = got->initiator_depth;
	if (about->id.qp && got->event == RDMA_CM_EVENT_ESTABLISHED)
		about->id.qp->state = IBV_QPS_RTS;
	cm_push(id, e);
}

PUBLIC int rdma_get_cm_event(struct rdma_event_channel *ch, struct rdma_cm_event **event)
{
	if (!event)
		return fail(EINVAL);
	struct event *e = (struct event *)queue_pull(&((struct event_channel *)ch)->events);
	if (!e)
		return -1;
	*event = &e->e;
	return 0;
}

PUBLIC int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	if (!event)
		return fail(EINVAL);
	struct rdma_cm_id *id = event->listen_id ? event->listen_id : event->id;
	free((char *)event - offsetof(struct event, e));
	acks_ack(&id_of(id)->events, 1);
	return 0;
}

int cm_complete(struct id *id)
{
	struct rdma_cm_id *i = &id->id;
	if (!id->sync)
		return 0;
	if (i->event) {
		rdma_ack_cm_event(i->event);
		i->event = NULL;
	}
	if (rdma_get_cm_event(i->channel, &i->event))
		return -1;
	if (!i->event->status)
		return 0;
	if (i->event->event == RDMA_CM_EVENT_REJECTED)
		return fail(i->event->status == 28 ? ECONNREFUSED : abs(i->event->status)); // 28: rejected by the program (IBTA 12.6.7.2)
	return fail(abs(i->event->status));
}
