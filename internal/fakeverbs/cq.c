// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

#include "fake.h"

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context) {
	int err = begin(ibv_create_comp_channel, P(context));
	struct obj *o = obj_get("ibv_create_comp_channel", K_CONTEXT, context);
	struct channel *h;

	err = err ? err : o ? 0 : EINVAL;
	if (err)
		return end_ptr(NULL, err);
	h = obj_new(K_CHANNEL, sizeof(*h), offsetof(struct channel, pub), sizeof(h->pub));
	obj_up(&h->o, 0, o);
	evq_open(&h->q);
	h->pub.context = context;
	h->pub.fd = h->q.fd;
	return end_ptr(&h->pub, 0);
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel) {
	int err = begin(ibv_destroy_comp_channel, P(channel));
	struct obj *o = obj_get("ibv_destroy_comp_channel", K_CHANNEL, channel);

	err = err ? err : o ? obj_busy("ibv_destroy_comp_channel", o) : EINVAL;
	if (!err) {
		evq_close(&((struct channel *)o)->q);
		obj_kill(o);
	}
	return end_errno(err);
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context, struct ibv_comp_channel *channel,
	int vector) {
	int err = begin(ibv_create_cq, P(context), cqe, P(cq_context), P(channel), vector);
	struct ctx *c = (struct ctx *)obj_get("ibv_create_cq", K_CONTEXT, context);
	struct obj *h = channel ? obj_get("ibv_create_cq", K_CHANNEL, channel) : NULL;
	struct cq *q;

	if (!err && (!c || (channel && !h) || cqe < 1 || cqe > c->dev->attr.orig_attr.max_cqe || vector < 0 ||
		vector >= context->num_comp_vectors))
		err = EINVAL;
	if (err)
		return end_ptr(NULL, err);
	q = obj_new(K_CQ, sizeof(*q), offsetof(struct cq, pub), sizeof(q->pub));
	obj_up(&q->o, 0, &c->o);
	if (h) {
		obj_up(&q->o, 1, h);
		channel->refcnt++;
	}
	for (q->room = 1; q->room < cqe; q->room *= 2)
		;
	q->wc = calloc(q->room, sizeof(*q->wc));
	q->pub.context = context;
	q->pub.channel = channel;
	q->pub.cq_context = cq_context;
	q->pub.handle = q->o.id;
	q->pub.cqe = q->room;
	pthread_mutex_init(&q->pub.mutex, NULL);
	pthread_cond_init(&q->pub.cond, NULL);
	return end_ptr(&q->pub, 0);
}

int ibv_resize_cq(struct ibv_cq *cq, int cqe) {
	int err = begin(ibv_resize_cq, P(cq), cqe), room;
	struct cq *q = (struct cq *)obj_get("ibv_resize_cq", K_CQ, cq);
	struct fake_wc *wc;

	err = err ? err : q ? 0 : EINVAL;
	if (!err && ctx_of(cq->context)->dev->iwarp)
		err = EOPNOTSUPP;
	if (!err && (cqe < 1 || cqe < q->count || cqe > ctx_of(cq->context)->dev->attr.orig_attr.max_cqe))
		err = EINVAL;
	if (err)
		return end_errno(err);
	for (room = 1; room < cqe; room *= 2)
		;
	wc = calloc(room, sizeof(*wc));
	for (int i = 0; i < q->count; i++)
		wc[i] = q->wc[(q->head + i) % q->room];
	free(q->wc);
	q->wc = wc;
	q->head = 0;
	q->pub.cqe = q->room = room;
	return end_errno(0);
}

int fake_modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr) {
	int err = begin(ibv_modify_cq, P(cq), attr->attr_mask, attr->moderate.cq_count, attr->moderate.cq_period);

	err = err ? err : obj_get("ibv_modify_cq", K_CQ, cq) ? 0 : EINVAL;
	return end_errno(err);
}

// The order of the kernel and libibverbs: the CQ is destroyed first, with its unread events; then
// the call waits until those already read are acknowledged.
int ibv_destroy_cq(struct ibv_cq *cq) {
	int err = begin(ibv_destroy_cq, P(cq));
	struct cq *q = (struct cq *)obj_get("ibv_destroy_cq", K_CQ, cq);

	err = err ? err : q ? obj_busy("ibv_destroy_cq", &q->o) : EINVAL;
	if (err)
		return end_errno(err);
	q->o.dying = true;
	if (cq->channel)
		evq_drop(&OUTER(channel, cq->channel)->q, &q->o, NULL);
	evq_drop(&ctx_of(cq->context)->async, &q->o, NULL);
	wait_acked("ibv_destroy_cq", &q->o, &cq->comp_events_completed, &q->comp_reported);
	wait_acked("ibv_destroy_cq", &q->o, &cq->async_events_completed, &q->async_reported);
	if (cq->channel)
		cq->channel->refcnt--;
	free(q->wc);
	obj_kill(&q->o);
	return end_errno(0);
}

static void notify(struct cq *q) {
	struct ev *e;

	q->armed = 0;
	if (!q->pub.channel)
		return;
	e = calloc(1, sizeof(*e));
	e->about = &q->o;
	evq_push(&OUTER(channel, q->pub.channel)->q, e);
}

void cq_add(struct cq *q, const struct fake_wc *wc) {
	if (q->count == q->room) {
		struct ibv_async_event ev = {.event_type = IBV_EVENT_CQ_ERR, .element.cq = &q->pub};

		if (!q->overrun)
			async_push(ctx_of(q->pub.context), &q->o, ev);
		q->overrun = true;
		return;
	}
	q->wc[(q->head + q->count++) % q->room] = *wc;
	if (q->armed == 1 || (q->armed == 2 && (wc->solicited || wc->status != IBV_WC_SUCCESS)))
		notify(q);
}

int fake_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc) {
	int err = begin(ibv_poll_cq, P(cq), n), i = 0;
	struct cq *q = (struct cq *)obj_get("ibv_poll_cq", K_CQ, cq);

	if (err || !q) {
		end_errno(0);
		return -(err ? err : EINVAL);
	}
	for (; i < n && q->count > 0; i++) {
		const struct fake_wc *w = &q->wc[q->head];
		bool ok = w->status == IBV_WC_SUCCESS;

		// On failure only wr_id, status, vendor_err and qp_num are defined; poison the rest.
		memset(&wc[i], ok ? 0 : 0xdb, sizeof(wc[i]));
		wc[i].wr_id = w->wr_id;
		wc[i].status = w->status;
		wc[i].vendor_err = w->vendor_err;
		wc[i].qp_num = w->qp_num;
		if (ok) {
			wc[i].opcode = w->opcode;
			wc[i].byte_len = w->byte_len;
			wc[i].imm_data = w->imm;
			wc[i].src_qp = w->src_qp;
			wc[i].wc_flags = w->flags | UNKNOWN_BIT;
			wc[i].pkey_index = w->pkey_index;
			wc[i].slid = w->slid;
			wc[i].sl = w->sl;
			wc[i].dlid_path_bits = w->path_bits;
		}
		q->head = (q->head + 1) % q->room;
		q->count--;
	}
	return end_errno(i);
}

int fake_req_notify_cq(struct ibv_cq *cq, int solicited_only) {
	int err = begin(ibv_req_notify_cq, P(cq), solicited_only);
	struct cq *q = (struct cq *)obj_get("ibv_req_notify_cq", K_CQ, cq);

	err = err ? err : q ? 0 : EINVAL;
	if (!err && q->armed != 1) // arming for any completion outlasts arming for solicited ones
		q->armed = solicited_only ? 2 : 1;
	return end_errno(err);
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context) {
	int err = begin(ibv_get_cq_event, P(channel));
	struct channel *h = (struct channel *)obj_get("ibv_get_cq_event", K_CHANNEL, channel);
	struct cq *q;
	struct ev *e;

	err = err ? err : h ? 0 : EINVAL;
	if (err)
		return end_rc(err);
	e = evq_get("ibv_get_cq_event", &h->q, &h->o);
	if (!e)
		return end_rc(errno);
	q = (struct cq *)e->about;
	free(e);
	q->comp_reported++;
	*cq = &q->pub;
	*cq_context = q->pub.cq_context;
	return end_rc(0);
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n) {
	struct cq *q;

	begin(ibv_ack_cq_events, P(cq), n);
	q = (struct cq *)obj_get_dying("ibv_ack_cq_events", K_CQ, cq);
	if (q) {
		cq->comp_events_completed += n;
		if (cq->comp_events_completed > q->comp_reported)
			fault("ibv_ack_cq_events: CQ %u has %u events acknowledged and %u reported", q->o.id,
				cq->comp_events_completed, q->comp_reported);
		acked();
	}
	end_errno(0);
}

// Asynchronous events.

struct async {
	struct ev e;
	struct ibv_async_event event;
};

void async_push(struct ctx *c, struct obj *about, struct ibv_async_event event) {
	struct async *a = calloc(1, sizeof(*a));

	a->e.about = about;
	a->event = event;
	evq_push(&c->async, &a->e);
}

static unsigned *reported(struct obj *o) {
	switch (o->kind) {
	case K_CQ: return &((struct cq *)o)->async_reported;
	case K_QP: return &((struct qp *)o)->async_reported;
	case K_SRQ: return &((struct srq *)o)->async_reported;
	default: return NULL;
	}
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event) {
	int err = begin(ibv_get_async_event, P(context));
	struct ctx *c = (struct ctx *)obj_get("ibv_get_async_event", K_CONTEXT, context);
	struct ev *e;

	err = err ? err : c ? 0 : EINVAL;
	if (err)
		return end_rc(err);
	e = evq_get("ibv_get_async_event", &c->async, &c->o);
	if (!e)
		return end_rc(errno);
	*event = ((struct async *)e)->event;
	if (e->about)
		(*reported(e->about))++;
	free(e);
	return end_rc(0);
}

// element returns the object of an event, judged only by its type, as libibverbs does.
static struct obj *element(const struct ibv_async_event *ev, uint32_t **completed) {
	struct obj *o;

	switch (ev->event_type) {
	case IBV_EVENT_CQ_ERR:
		o = obj_get_dying("ibv_ack_async_event", K_CQ, ev->element.cq);
		if (o)
			*completed = &ev->element.cq->async_events_completed;
		return o;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		o = obj_get_dying("ibv_ack_async_event", K_QP, ev->element.qp);
		if (o)
			*completed = &ev->element.qp->events_completed;
		return o;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		o = obj_get_dying("ibv_ack_async_event", K_SRQ, ev->element.srq);
		if (o)
			*completed = &ev->element.srq->events_completed;
		return o;
	default:
		return NULL;
	}
}

void ibv_ack_async_event(struct ibv_async_event *event) {
	uint32_t *completed;
	struct obj *o;

	begin(ibv_ack_async_event, event->event_type);
	o = element(event, &completed);
	if (o) {
		++*completed;
		if (*completed > *reported(o))
			fault("ibv_ack_async_event: %s %u has %u events acknowledged and %u reported", kind_name(o->kind), o->id,
				*completed, *reported(o));
		acked();
	}
	end_errno(0);
}

// fake_inject_async queues an event about the object with that number (a QP number, otherwise the
// creation number of its kind), or about the port with that number, on every context of the device
// that it concerns.
int fake_inject_async(int dev, uint32_t type, uint32_t id) {
	struct ibv_async_event ev = {.event_type = type};
	struct ibv_context *context = NULL;
	struct obj *o = NULL;
	int n = 0;

	pthread_mutex_lock(&fake_mu);
	switch (type) {
	case IBV_EVENT_CQ_ERR:
		if ((o = obj_by_id(K_CQ, id))) {
			ev.element.cq = o->pub;
			context = ev.element.cq->context;
		}
		break;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		if ((o = obj_by_id(K_SRQ, id))) {
			ev.element.srq = o->pub;
			context = ev.element.srq->context;
		}
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED: {
		struct qp *q = qp_by_num(id);

		if (q) {
			o = &q->o;
			ev.element.qp = &q->pub;
			context = q->pub.context;
		}
		break;
	}
	default: // of the device or a port, as the library also treats unknown types
		ev.element.port_num = id;
		for (struct obj *c = obj_next(K_CONTEXT, NULL); c; c = obj_next(K_CONTEXT, c)) {
			if (((struct ctx *)c)->dev != &fake_dev[dev] || c->own)
				continue;
			async_push((struct ctx *)c, NULL, ev);
			n++;
		}
	}
	if (o) {
		async_push(ctx_of(context), o, ev);
		n++;
	}
	pthread_mutex_unlock(&fake_mu);
	return n;
}
