// SPDX-License-Identifier: BSD-3-Clause

// Shared receive queues.

#include "shim.h"

PUBLIC struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *a)
{
	REAL(pd->context, ibv_create_srq, pd, a);
	struct srq *s = calloc(1, sizeof *s);
	if (!s)
		return NULL;
	acks_init(&s->async);
	pthread_mutex_init(&s->s.mutex, NULL);
	pthread_cond_init(&s->s.cond, NULL);
	s->s.context = pd->context;
	s->s.srq_context = a->srq_context;
	s->s.pd = pd;
	int err = go.create_srq(pd->handle, s, &a->attr, &s->h);
	if (err)
		return nothing(s, err);
	s->s.handle = s->h;
	return &s->s;
}

PUBLIC int ibv_modify_srq(struct ibv_srq *s, struct ibv_srq_attr *a, int mask)
{
	REAL(s->context, ibv_modify_srq, s, a, mask);
	return go.modify_srq(((struct srq *)s)->h, a, mask);
}

PUBLIC int ibv_query_srq(struct ibv_srq *s, struct ibv_srq_attr *a)
{
	REAL(s->context, ibv_query_srq, s, a);
	return go.query_srq(((struct srq *)s)->h, a);
}

PUBLIC int ibv_destroy_srq(struct ibv_srq *srq)
{
	struct srq *s = (struct srq *)srq;
	REAL(srq->context, ibv_destroy_srq, srq);
	int err = go.close(s->h);
	if (err)
		return err;
	async_forget(srq->context, s);
	acks_wait(&s->async);
	free(s);
	return 0;
}
