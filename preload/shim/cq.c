// SPDX-License-Identifier: BSD-3-Clause

// Completion channels and completion queues.

#include "shim.h"

struct arrival {
	struct node node;
	struct cq *cq;
};

PUBLIC struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *c)
{
	REAL(c, ibv_create_comp_channel, c);
	struct channel *ch = calloc(1, sizeof *ch);
	if (!ch)
		return NULL;
	if (!queue_init(&ch->events))
		return nothing(ch, errno);
	int err = go.create_channel(handle_of(c), &ch->h);
	if (err) {
		queue_free(&ch->events);
		return nothing(ch, err);
	}
	ch->c.context = c;
	ch->c.fd = ch->events.fd;
	return &ch->c;
}

PUBLIC int ibv_destroy_comp_channel(struct ibv_comp_channel *c)
{
	struct channel *ch = (struct channel *)c;
	REAL(c->context, ibv_destroy_comp_channel, c);
	int err = go.close(ch->h);
	if (err)
		return err;
	queue_free(&ch->events); // there are no events: the CQs are destroyed
	free(ch);
	return 0;
}

void cq_event(void *owner)
{
	struct cq *q = owner;
	struct arrival *a = calloc(1, sizeof *a);
	if (!a)
		return;
	a->cq = q;
	acks_give(&q->comp); // under the lock: the CQ must not be freed between the read and the return
	queue_push(&((struct channel *)q->c.channel)->events, &a->node);
}

PUBLIC int ibv_get_cq_event(struct ibv_comp_channel *c, struct ibv_cq **cq, void **context)
{
	REAL(c->context, ibv_get_cq_event, c, cq, context);
	struct arrival *a = (struct arrival *)queue_pull(&((struct channel *)c)->events);
	if (!a)
		return -1;
	*cq = &a->cq->c;
	*context = a->cq->c.cq_context;
	free(a);
	return 0;
}

PUBLIC void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n)
{
	REAL(cq->context, ibv_ack_cq_events, cq, n);
	acks_ack(&((struct cq *)cq)->comp, n);
}

PUBLIC struct ibv_cq *ibv_create_cq(struct ibv_context *c, int cqe, void *cq_context, struct ibv_comp_channel *ch, int vector)
{
	REAL(c, ibv_create_cq, c, cqe, cq_context, ch, vector);
	if (ch && !ours(ch->context)) {
		errno = EINVAL;
		return NULL;
	}
	struct cq *q = calloc(1, sizeof *q);
	if (!q)
		return NULL;
	q->c.context = c;
	q->c.channel = ch;
	q->c.cq_context = cq_context;
	pthread_mutex_init(&q->c.mutex, NULL);
	pthread_cond_init(&q->c.cond, NULL);
	acks_init(&q->comp);
	acks_init(&q->async);
	int err = go.create_cq(handle_of(c), q, cqe, ch ? ((struct channel *)ch)->h : 0, vector, &q->h, &q->c.cqe);
	if (err)
		return nothing(q, err);
	q->c.handle = q->h;
	return &q->c;
}

PUBLIC int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
	REAL(cq->context, ibv_resize_cq, cq, cqe);
	return go.resize_cq(((struct cq *)cq)->h, cqe, &cq->cqe);
}

static bool of_cq(struct node *n, void *cq) { return ((struct arrival *)n)->cq == cq; }

PUBLIC int ibv_destroy_cq(struct ibv_cq *cq)
{
	struct cq *q = (struct cq *)cq;
	REAL(cq->context, ibv_destroy_cq, cq);
	int err = go.close(q->h);
	if (err)
		return err;
	struct node *n;
	while (cq->channel && (n = queue_take(&((struct channel *)cq->channel)->events, of_cq, q))) {
		free(n);
		acks_ack(&q->comp, 1);
	}
	async_forget(cq->context, q);
	acks_wait(&q->comp);
	acks_wait(&q->async);
	free(q);
	return 0;
}
