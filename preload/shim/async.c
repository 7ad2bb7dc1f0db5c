// SPDX-License-Identifier: BSD-3-Clause

// Asynchronous events of a context.

#include "shim.h"

struct async {
	struct node node;
	struct ibv_async_event e;
};

// acks_of returns the counters of the object that an event is about, or NULL for events of the
// device and of ports.
static struct acks *acks_of(const struct ibv_async_event *e)
{
	switch (e->event_type) {
	case IBV_EVENT_CQ_ERR:
		return &((struct cq *)e->element.cq)->async;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return &((struct qp *)e->element.qp)->async;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return &((struct srq *)e->element.srq)->async;
	default:
		return NULL;
	}
}

void async_event(void *owner, int type, void *element, int port)
{
	struct context *c = owner;
	struct async *a = calloc(1, sizeof *a);
	if (!a)
		return;
	a->e.event_type = type;
	if (element)
		a->e.element.qp = element; // every member of the union is a pointer
	else
		a->e.element.port_num = port;
	struct acks *acks = acks_of(&a->e);
	if (acks)
		acks_give(acks); // under the lock: the object must not be freed between the read and the return
	queue_push(&c->async, &a->node);
}

static bool about(struct node *n, void *element)
{
	struct async *a = (struct async *)n;
	return !element || (acks_of(&a->e) && a->e.element.qp == element);
}

void async_forget(struct ibv_context *c, void *element)
{
	struct node *n;
	while ((n = queue_take(&context_of(c)->async, about, element))) {
		struct acks *acks = element ? acks_of(&((struct async *)n)->e) : NULL;
		if (acks)
			acks_ack(acks, 1);
		free(n);
	}
}

PUBLIC int ibv_get_async_event(struct ibv_context *c, struct ibv_async_event *event)
{
	REAL(c, ibv_get_async_event, c, event);
	struct async *a = (struct async *)queue_pull(&context_of(c)->async);
	if (!a)
		return -1;
	*event = a->e;
	free(a);
	return 0;
}

PUBLIC void ibv_ack_async_event(struct ibv_async_event *event)
{
	struct acks *acks = acks_of(event);
	if (acks && ours(event->element.qp->context)) // CQs and SRQs also start with their context
		acks_ack(acks, 1);
	else if (acks || event->event_type == IBV_EVENT_WQ_FATAL)
		real()->ibv_ack_async_event(event);
}
