// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

// A connection manager within the process: ids connect to listeners of the same process, on fake0
// with the exchange of InfiniBand's CM, on fake1 with iWARP's.

#include "fake.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>

enum state { IDLE, BOUND, ADDR_RESOLVED, ROUTE_RESOLVED, LISTENING, REQUESTED, CONNECTING, RESPONDED, ACCEPTED, CONNECTED,
	LEFT, ENDED };

struct cm_ev {
	struct ev e; // about: the id that counts it, for a request the listener
	struct cmid *id;
	bool request;
	struct fake_cm_event ev;
};

struct echannel {
	struct obj o;
	struct evq q;
	struct rdma_event_channel pub;
};

// Membership of an id in a multicast group, from rdma_join_multicast to rdma_leave_multicast.
// librdmacm identifies it by the whole address.
struct group {
	struct group *next;
	struct sockaddr_storage addr;
	void *context;
	uint8_t mgid[16];
};

struct cmid {
	struct obj o;
	struct group *groups; // newest first
	enum state state;
	struct dev *dev;
	struct cmid *peer; // alive, or NULL
	struct cmid *listener;
	int backlog, waiting;
	unsigned reported;
	uint32_t completed;
	struct fake_cm_id info;
	struct fake_cm_event req; // of a connection request: what the peer sent
	struct rdma_cm_id pub;
};

struct event {
	struct obj o;
	struct cmid *counts; // the id that waits for the acknowledgement
	void *data;
	struct rdma_cm_event pub;
};

static struct cmid *id_get(const char *fn, struct rdma_cm_id *id) {
	return (struct cmid *)obj_get(fn, K_ID, id);
}

// Outcomes set by tests: the next call of fn ends with this event instead of the actual one; event
// -1 = none.
static struct next {
	struct next *next;
	int fn;
	struct fake_cm_event ev;
} *nexts;

int fake_cm_next(int fn, const struct fake_cm_event *ev) {
	struct next *n = calloc(1, sizeof(*n)), **at = &nexts;

	n->fn = fn;
	n->ev = *ev;
	pthread_mutex_lock(&fake_mu);
	while (*at)
		at = &(*at)->next;
	*at = n;
	pthread_mutex_unlock(&fake_mu);
	return 0;
}

void fake_reset_cm(void) {
	pthread_mutex_lock(&fake_mu);
	while (nexts) {
		struct next *n = nexts;

		nexts = n->next;
		free(n);
	}
	pthread_mutex_unlock(&fake_mu);
}

static void push(struct cmid *to, struct cmid *id, bool request, const struct fake_cm_event *ev) {
	struct cm_ev *e = calloc(1, sizeof(*e));

	if (fake_newer && ev->event != UNKNOWN_EVENT)
		push(to, to, false, &(struct fake_cm_event){.event = UNKNOWN_EVENT});
	e->e.about = &to->o;
	e->id = id;
	e->request = request;
	e->ev = *ev;
	evq_push(&OUTER(echannel, to->pub.channel)->q, &e->e);
}

static void simple(struct cmid *id, enum rdma_cm_event_type type, int status) {
	struct fake_cm_event ev = {.event = type, .status = status};

	push(id, id, false, &ev);
}

// instead queues the outcome set by a test for this call, and reports whether there is one.
static bool instead(enum fake_fn fn, struct cmid *id) {
	for (struct next **at = &nexts; *at; at = &(*at)->next) {
		struct next *n = *at;

		if (n->fn != (int)fn)
			continue;
		*at = n->next;
		if ((int)n->ev.event >= 0)
			push(id, id, false, &n->ev);
		free(n);
		return true;
	}
	return false;
}

struct rdma_event_channel *rdma_create_event_channel(void) {
	int err = begin(rdma_create_event_channel, 0);
	struct echannel *h;

	if (err)
		return end_ptr(NULL, err);
	h = obj_new(K_EVENT_CHANNEL, sizeof(*h), offsetof(struct echannel, pub), sizeof(h->pub));
	evq_open(&h->q);
	h->pub.fd = h->q.fd;
	return end_ptr(&h->pub, 0);
}

void rdma_destroy_event_channel(struct rdma_event_channel *channel) {
	struct obj *o;

	begin(rdma_destroy_event_channel, P(channel));
	o = obj_get("rdma_destroy_event_channel", K_EVENT_CHANNEL, channel);
	if (o) {
		obj_busy("rdma_destroy_event_channel", o); // librdmacm does not check
		evq_close(&((struct echannel *)o)->q);
		obj_kill(o);
	}
	end_errno(0);
}

static struct cmid *id_new(struct rdma_event_channel *channel, void *context, enum rdma_port_space ps) {
	struct cmid *d = obj_new(K_ID, sizeof(*d), offsetof(struct cmid, pub), sizeof(d->pub));

	obj_up(&d->o, 0, &OUTER(echannel, channel)->o);
	d->pub.channel = channel;
	d->pub.context = context;
	d->pub.ps = ps;
	d->pub.qp_type = ps == RDMA_PS_UDP || ps == RDMA_PS_IPOIB ? IBV_QPT_UD : IBV_QPT_RC;
	return d;
}

int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context, enum rdma_port_space ps) {
	int err = begin(rdma_create_id, P(channel), P(context), ps);

	if (!err && !obj_get("rdma_create_id", K_EVENT_CHANNEL, channel))
		err = EINVAL;
	if (!err && ps != RDMA_PS_TCP && ps != RDMA_PS_UDP && ps != RDMA_PS_IB && ps != RDMA_PS_IPOIB)
		err = EPROTONOSUPPORT;
	if (!err)
		*id = &id_new(channel, context, ps)->pub;
	return end_rc(err);
}

static struct ibv_context *cma_context(struct dev *d) {
	if (!d->cma)
		d->cma = ctx_open(d, true);
	return d->cma;
}

static void set_dev(struct cmid *d, struct dev *dev) {
	d->dev = dev;
	d->pub.verbs = cma_context(dev);
	d->pub.port_num = 1;
	d->info.device = dev - fake_dev + 1;
}

// The networks: fake0 serves 192.0.2.0/24, 2001:db8::/64 and loopback, fake1 198.51.100.0/24 and
// 2001:db8:1::/64. Their own addresses end in 1. They also serve the link-local addresses of
// network interfaces 1 and 2, on those interfaces only. Multicast groups are on fake0.
static struct dev *owner(const struct sockaddr *a, bool *any) {
	static const uint8_t db8[4] = {0x20, 0x01, 0x0d, 0xb8};
	int dev = -1;

	*any = false;
	if (a->sa_family == AF_INET) {
		uint32_t ip = ntohl(((const struct sockaddr_in *)a)->sin_addr.s_addr);

		*any = ip == 0;
		dev = ip >> 8 == 0xc00002 || ip >> 24 == 127 || ip >> 28 == 0xe ? 0 : ip >> 8 == 0xc63364 ? 1 : -1;
	} else if (a->sa_family == AF_INET6) {
		const struct in6_addr *ip = &((const struct sockaddr_in6 *)a)->sin6_addr;

		*any = IN6_IS_ADDR_UNSPECIFIED(ip);
		if (IN6_IS_ADDR_LOOPBACK(ip) || IN6_IS_ADDR_MULTICAST(ip))
			dev = 0;
		else if (!memcmp(ip, db8, 4) && ip->s6_addr[4] == 0 && ip->s6_addr[5] < 2)
			dev = ip->s6_addr[5];
		else if (IN6_IS_ADDR_LINKLOCAL(ip))
			dev = (int)((const struct sockaddr_in6 *)a)->sin6_scope_id - 1;
		if (dev > 1)
			dev = -1;
	}
	return dev < 0 || fake_dev[dev].hidden ? NULL : &fake_dev[dev];
}

static void source(struct dev *d, const struct sockaddr *dst, struct sockaddr *src) {
	if (dst->sa_family == AF_INET) {
		struct sockaddr_in *in = (struct sockaddr_in *)src;

		in->sin_family = AF_INET;
		in->sin_addr.s_addr = ntohl(((const struct sockaddr_in *)dst)->sin_addr.s_addr) >> 24 == 127
			? htonl(INADDR_LOOPBACK)
			: htonl(d == &fake_dev[0] ? 0xc0000201 : 0xc6336401);
	} else {
		struct sockaddr_in6 *in = (struct sockaddr_in6 *)src;

		in->sin6_family = AF_INET6;
		inet_pton(AF_INET6, d == &fake_dev[0] ? "2001:db8::1" : "2001:db8:1::1", &in->sin6_addr);
		if (IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)dst)->sin6_addr))
			in->sin6_addr = in6addr_loopback;
		if (IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)dst)->sin6_addr)) {
			inet_pton(AF_INET6, "fe80::1", &in->sin6_addr);
			in->sin6_scope_id = ((const struct sockaddr_in6 *)dst)->sin6_scope_id;
		}
	}
}

static uint16_t *port_of(struct sockaddr *a) {
	return a->sa_family == AF_INET6 ? &((struct sockaddr_in6 *)a)->sin6_port : &((struct sockaddr_in *)a)->sin_port;
}

static size_t addr_len(const struct sockaddr *a) {
	return a->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

static bool same_addr(const struct sockaddr *a, const struct sockaddr *b) {
	if (a->sa_family != b->sa_family)
		return false;
	if (a->sa_family == AF_INET)
		return ((struct sockaddr_in *)a)->sin_addr.s_addr == ((struct sockaddr_in *)b)->sin_addr.s_addr;
	return ((struct sockaddr_in6 *)a)->sin6_scope_id == ((struct sockaddr_in6 *)b)->sin6_scope_id &&
		!memcmp(&((struct sockaddr_in6 *)a)->sin6_addr, &((struct sockaddr_in6 *)b)->sin6_addr, 16);
}

static uint16_t next_port = 40000;

static struct cmid *next_id(struct cmid *after) {
	return (struct cmid *)obj_next(K_ID, after ? &after->o : NULL);
}

// A port is taken once, except by ids restricted to different address families.
static bool port_taken(struct cmid *self, int family, uint16_t port) {
	for (struct cmid *d = next_id(NULL); d; d = next_id(d))
		if (d != self && d->pub.ps == self->pub.ps && !d->listener && d->state != IDLE &&
			(!d->info.reuseaddr || !self->info.reuseaddr) && ntohs(*port_of(&d->pub.route.addr.src_addr)) == port &&
			!(d->info.afonly && self->info.afonly && d->pub.route.addr.src_addr.sa_family != family))
			return true;
	return false;
}

static int bind_id(struct cmid *d, struct sockaddr *addr) {
	struct sockaddr *src = &d->pub.route.addr.src_addr;
	struct dev *dev;
	uint16_t *port;
	bool any;

	if (addr->sa_family != AF_INET && addr->sa_family != AF_INET6)
		return EAFNOSUPPORT;
	dev = owner(addr, &any);
	if (!dev && !any)
		return EADDRNOTAVAIL;
	if (dev) {
		struct sockaddr_storage mine = {0};

		source(dev, addr, (struct sockaddr *)&mine);
		if (!same_addr((struct sockaddr *)&mine, addr))
			return EADDRNOTAVAIL;
	}
	port = port_of(addr);
	if (*port && port_taken(d, addr->sa_family, ntohs(*port)))
		return EADDRINUSE;
	memcpy(src, addr, addr_len(addr));
	if (!*port) {
		do {
			if (++next_port == 0)
				next_port = 40000;
		} while (port_taken(d, addr->sa_family, next_port));
		*port_of(src) = htons(next_port);
	}
	if (dev)
		set_dev(d, dev);
	d->state = BOUND;
	return 0;
}

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr) {
	int err = begin(rdma_bind_addr, P(id), addr->sa_family);
	struct cmid *d = id_get("rdma_bind_addr", id);

	if (!err && (!d || d->state != IDLE))
		err = EINVAL;
	err = err ? err : bind_id(d, addr);
	return end_rc(err);
}

int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src, struct sockaddr *dst, int timeout_ms) {
	int err = begin(rdma_resolve_addr, P(id), P(src), dst->sa_family, timeout_ms);
	struct cmid *d = id_get("rdma_resolve_addr", id);
	struct sockaddr_storage from = {0};
	struct dev *dev;
	bool any;

	if (!err && (!d || (d->state != IDLE && d->state != BOUND)))
		err = EINVAL;
	if (!err && dst->sa_family != AF_INET && dst->sa_family != AF_INET6)
		err = EAFNOSUPPORT;
	if (!err && src && src->sa_family != dst->sa_family)
		err = EINVAL;
	if (err)
		return end_rc(err);
	if (instead(FN_rdma_resolve_addr, d))
		return end_rc(0);
	dev = owner(dst, &any);
	if (!dev)
		return end_rc(any ? EINVAL : ENETUNREACH);
	source(dev, dst, (struct sockaddr *)&from);
	if (src) {
		bool src_any;

		owner(src, &src_any);
		if (!src_any && !same_addr(src, (struct sockaddr *)&from))
			return end_rc(EADDRNOTAVAIL);
		*port_of((struct sockaddr *)&from) = *port_of(src);
	}
	if (d->state == IDLE && (err = bind_id(d, (struct sockaddr *)&from)))
		return end_rc(err);
	set_dev(d, dev);
	*port_of((struct sockaddr *)&from) = *port_of(&id->route.addr.src_addr);
	memcpy(&id->route.addr.src_addr, &from, addr_len(dst));
	memcpy(&id->route.addr.dst_addr, dst, addr_len(dst));
	d->state = ADDR_RESOLVED;
	simple(d, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	return end_rc(0);
}

int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms) {
	int err = begin(rdma_resolve_route, P(id), timeout_ms);
	struct cmid *d = id_get("rdma_resolve_route", id);

	if (!err && (!d || d->state != ADDR_RESOLVED))
		err = EINVAL;
	if (err || instead(FN_rdma_resolve_route, d))
		return end_rc(err);
	d->state = ROUTE_RESOLVED;
	simple(d, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	return end_rc(0);
}

int rdma_listen(struct rdma_cm_id *id, int backlog) {
	int err = begin(rdma_listen, P(id), backlog);
	struct cmid *d = id_get("rdma_listen", id);
	struct sockaddr_in6 any = {.sin6_family = AF_INET6};

	if (!err && (!d || (d->state != IDLE && d->state != BOUND)))
		err = EINVAL;
	if (!err && d->state == IDLE)
		err = bind_id(d, (struct sockaddr *)&any);
	if (err)
		return end_rc(err);
	d->state = LISTENING;
	d->backlog = backlog > 0 ? backlog : 1024;
	d->info.backlog = backlog;
	return end_rc(0);
}

static struct cmid *listener_for(struct cmid *from) {
	struct sockaddr *dst = &from->pub.route.addr.dst_addr;

	for (struct cmid *d = next_id(NULL); d; d = next_id(d)) {
		struct sockaddr *at = &d->pub.route.addr.src_addr;
		bool any;

		if (d->state != LISTENING || d->pub.ps != from->pub.ps || *port_of(at) != *port_of(dst) || d->o.dying)
			continue;
		owner(at, &any);
		if (any && (at->sa_family == dst->sa_family || (at->sa_family == AF_INET6 && !d->info.afonly)))
			return d;
		if (same_addr(at, dst))
			return d;
	}
	return NULL;
}

static int keep_param(struct cmid *d, const struct rdma_conn_param *p, int max) {
	struct fake_cm_event *k = &d->info.param;

	memset(k, 0, sizeof(*k));
	if (!p)
		return 0;
	if (p->private_data_len > max || (p->private_data_len > 0 && !p->private_data))
		return EINVAL;
	k->responder_resources = p->responder_resources;
	k->initiator_depth = p->initiator_depth;
	k->flow_control = p->flow_control;
	k->retry_count = p->retry_count;
	k->rnr_retry_count = p->rnr_retry_count;
	k->srq = p->srq;
	k->qp_num = p->qp_num;
	k->len = p->private_data_len;
	memcpy(k->data, p->private_data, k->len);
	return 0;
}

// The peer's view: depths are swapped, and InfiniBand's messages have private data of fixed length.
static struct fake_cm_event mirrored(struct cmid *from, enum rdma_cm_event_type type, int padded) {
	struct fake_cm_event ev = from->info.param;

	ev.event = type;
	ev.responder_resources = from->info.param.initiator_depth;
	ev.initiator_depth = from->info.param.responder_resources;
	ev.retry_count = type == RDMA_CM_EVENT_CONNECT_REQUEST ? ev.retry_count : 0;
	if (from->dev->iwarp) {
		ev.qp_num = 0;
		ev.rnr_retry_count = ev.retry_count = ev.flow_control = ev.srq = 0;
	} else if (ev.len < padded) {
		ev.len = padded; // the rest is zero
	}
	if (from->pub.ps == RDMA_PS_UDP) {
		ev.ud = 1;
		ev.qkey = RDMA_UDP_QKEY;
	}
	return ev;
}

static int max_data(struct cmid *d, int ib) {
	return d->dev->iwarp ? 255 : ib;
}

int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *param) {
	int err = begin(rdma_connect, P(id)), max;
	struct cmid *d = id_get("rdma_connect", id), *l, *c;
	struct qp *q;

	if (!err && (!d || d->state != ROUTE_RESOLVED))
		err = EINVAL;
	if (err)
		return end_rc(err);
	max = id->ps == RDMA_PS_UDP ? 180 : 56;
	if ((err = keep_param(d, param, max_data(d, max))))
		return end_rc(err);
	q = qp_by_num(d->info.param.qp_num);
	if (d->dev->iwarp && !q)
		return end_rc(EINVAL); // siw looks the QP up by number
	d->state = CONNECTING;
	if (instead(FN_rdma_connect, d))
		return end_rc(0);
	l = listener_for(d);
	if (!l) {
		d->state = ENDED;
		simple(d, RDMA_CM_EVENT_REJECTED, d->dev->iwarp ? -ECONNREFUSED : 8); // 8: invalid service id
		return end_rc(0);
	}
	if (l->waiting >= l->backlog) {
		d->state = ENDED;
		simple(d, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
		return end_rc(0);
	}
	c = id_new(l->pub.channel, l->pub.context, l->pub.ps);
	c->o.own = true; // until the program has seen it
	set_dev(c, d->dev);
	c->listener = l;
	l->waiting++;
	memcpy(&c->pub.route.addr.src_storage, &id->route.addr.dst_storage, sizeof(id->route.addr.dst_storage));
	memcpy(&c->pub.route.addr.dst_storage, &id->route.addr.src_storage, sizeof(id->route.addr.src_storage));
	c->state = REQUESTED;
	c->peer = d;
	d->peer = c;
	c->req = mirrored(d, RDMA_CM_EVENT_CONNECT_REQUEST, max);
	push(l, c, true, &c->req);
	return end_rc(0);
}

static void attach(struct cmid *d) {
	struct qp *q = qp_by_num(d->info.param.qp_num);

	if (!q || !d->dev->iwarp)
		return;
	q->peer = d->peer ? d->peer->info.param.qp_num : 0;
	q->state = IBV_QPS_RTS;
	q->connected = true;
	q->ord = d->info.param.initiator_depth;
	if (d->peer && d->peer->info.param.responder_resources < q->ord)
		q->ord = d->peer->info.param.responder_resources;
	// siw's query returns them swapped.
	q->attr.max_rd_atomic = d->info.param.responder_resources;
	q->attr.max_dest_rd_atomic = q->ord;
}

static void detach(struct cmid *d) {
	struct qp *q = qp_by_num(d->info.param.qp_num);

	if (!q || !d->dev->iwarp)
		return;
	q->connected = false;
	qp_to_error(q);
}

static bool of_qp(const struct obj *o, uint32_t qpn) {
	const struct cmid *d = (const struct cmid *)o;

	return d->state == CONNECTED && d->info.param.qp_num == qpn;
}

// cm_lost closes the connection of an iWARP QP whose stream was closed by its device.
void cm_lost(uint32_t qpn) {
	struct cmid *d = (struct cmid *)obj_find(K_ID, of_qp, qpn), *p;

	if (!d)
		return;
	d->state = LEFT;
	simple(d, RDMA_CM_EVENT_DISCONNECTED, 0);
	p = d->peer;
	if (p && p->state == CONNECTED) {
		p->state = LEFT;
		detach(p);
		simple(p, RDMA_CM_EVENT_DISCONNECTED, 0);
	}
}

static bool left_of(const struct obj *o, uint32_t qpn) {
	const struct cmid *d = (const struct cmid *)o;

	return d->state == LEFT && d->info.param.qp_num == qpn;
}

// cm_left reports whether the connection of a QP was disconnected by either side.
bool cm_left(uint32_t qpn) { return obj_find(K_ID, left_of, qpn); }

// agree negotiates the depths like siw's relaxed mode (siw_accept, siw_proc_mpareply): the
// accepting side requests no more than the peer serves, and serves as many as the peer requests;
// the connecting side then uses as many as are served.
static void agree(struct cmid *d) {
	struct fake_cm_event *own = &d->info.param, *peer = &d->peer->info.param;

	if (own->initiator_depth > peer->responder_resources)
		own->initiator_depth = peer->responder_resources;
	if (own->responder_resources < peer->initiator_depth)
		own->responder_resources = peer->initiator_depth;
	peer->initiator_depth = own->responder_resources;
	peer->responder_resources = own->initiator_depth;
}

// own_depths: where InfiniBand reports the peer's depths, siw reports its own (siw_cm_upcall).
static void own_depths(struct cmid *d, struct fake_cm_event *ev) {
	ev->initiator_depth = d->info.param.responder_resources;
	ev->responder_resources = d->info.param.initiator_depth;
}

int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *param) {
	int err = begin(rdma_accept, P(id));
	struct cmid *d = id_get("rdma_accept", id);
	struct fake_cm_event ev;

	if (!err && (!d || d->state != REQUESTED))
		err = EINVAL;
	if (err)
		return end_rc(err);
	if (!param)
		return end_rc(EINVAL); // only for ids with a QP of their own
	if ((err = keep_param(d, param, max_data(d, id->ps == RDMA_PS_UDP ? 136 : 196))))
		return end_rc(err);
	if (d->dev->iwarp && !qp_by_num(d->info.param.qp_num))
		return end_rc(EINVAL);
	if (!d->peer)
		return end_rc(EINVAL); // the peer is gone
	if (instead(FN_rdma_accept, d))
		return end_rc(0);
	if (d->dev->iwarp) {
		agree(d);
		attach(d);
		attach(d->peer);
		d->state = d->peer->state = CONNECTED;
		ev = mirrored(d, RDMA_CM_EVENT_ESTABLISHED, 0);
		own_depths(d->peer, &ev);
		push(d->peer, d->peer, false, &ev);
		ev = (struct fake_cm_event){.event = RDMA_CM_EVENT_ESTABLISHED};
		own_depths(d, &ev);
		push(d, d, false, &ev);
	} else if (id->ps == RDMA_PS_UDP) {
		d->state = d->peer->state = CONNECTED;
		ev = mirrored(d, RDMA_CM_EVENT_ESTABLISHED, 136);
		push(d->peer, d->peer, false, &ev);
	} else {
		d->state = ACCEPTED;
		d->peer->state = RESPONDED;
		ev = mirrored(d, RDMA_CM_EVENT_CONNECT_RESPONSE, 196);
		push(d->peer, d->peer, false, &ev);
	}
	return end_rc(0);
}

int rdma_establish(struct rdma_cm_id *id) {
	int err = begin(rdma_establish, P(id));
	struct cmid *d = id_get("rdma_establish", id);

	if (!err && (!d || id->qp || d->state != RESPONDED))
		err = EINVAL;
	if (err)
		return end_rc(err);
	d->info.established++;
	d->state = CONNECTED;
	if (d->peer && d->peer->state == ACCEPTED) {
		d->peer->state = CONNECTED;
		simple(d->peer, RDMA_CM_EVENT_ESTABLISHED, 0);
	}
	return end_rc(0);
}

static void reject(struct cmid *d, const void *data, int len) {
	struct fake_cm_event ev = {.event = RDMA_CM_EVENT_REJECTED, .len = len};
	bool ud = d->pub.ps == RDMA_PS_UDP;

	d->state = ENDED;
	if (!d->peer)
		return;
	memcpy(ev.data, data, len);
	ev.status = d->dev->iwarp ? -ECONNREFUSED : 28; // 28: the consumer's own reason
	if (ud) {
		ev.event = RDMA_CM_EVENT_UNREACHABLE;
		ev.status = 2; // rejected by the service provider
		ev.ud = 1;
	}
	if (!d->dev->iwarp && ev.len < (ud ? 136 : 148))
		ev.len = ud ? 136 : 148;
	d->peer->state = ENDED;
	push(d->peer, d->peer, false, &ev);
	d->peer->peer = NULL;
	d->peer = NULL;
}

int rdma_reject(struct rdma_cm_id *id, const void *data, uint8_t len) {
	int err = begin(rdma_reject, P(id), len);
	struct cmid *d = id_get("rdma_reject", id);

	if (!err && (!d || d->state != REQUESTED || len > max_data(d, id->ps == RDMA_PS_UDP ? 136 : 148)))
		err = EINVAL;
	if (err)
		return end_rc(err);
	d->info.param = (struct fake_cm_event){.len = len};
	memcpy(d->info.param.data, data, len);
	reject(d, data, len);
	return end_rc(0);
}

// InfiniBand: the first side to disconnect gets an event once the other has answered, then both are
// notified of the end of TIME_WAIT.
int rdma_disconnect(struct rdma_cm_id *id) {
	int err = begin(rdma_disconnect, P(id));
	struct cmid *d = id_get("rdma_disconnect", id), *p;

	if (!err && (!d || (d->state != CONNECTED && d->state != ACCEPTED && d->state != RESPONDED && d->state != LEFT)))
		err = EINVAL;
	if (err)
		return end_rc(err);
	d->info.disconnects++;
	if (instead(FN_rdma_disconnect, d))
		return end_rc(0);
	p = d->peer;
	if (d->dev->iwarp) {
		if (d->state == LEFT)
			return end_rc(0);
		d->state = LEFT;
		detach(d);
		simple(d, RDMA_CM_EVENT_DISCONNECTED, 0);
		if (p && p->state == CONNECTED) {
			p->state = LEFT;
			detach(p);
			simple(p, RDMA_CM_EVENT_DISCONNECTED, 0);
		}
		return end_rc(0);
	}
	if (d->state == LEFT) {
		d->state = ENDED;
		if (p && p->state == LEFT) {
			p->state = ENDED;
			simple(p, RDMA_CM_EVENT_DISCONNECTED, 0);
			simple(p, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0);
		}
		simple(d, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0);
		return end_rc(0);
	}
	d->state = LEFT;
	if (p && (p->state == CONNECTED || p->state == ACCEPTED || p->state == RESPONDED)) {
		p->state = LEFT;
		simple(p, RDMA_CM_EVENT_DISCONNECTED, 0);
	}
	return end_rc(0);
}

static void drop_event(struct cmid *d);

static void group_free(struct group **at) {
	struct group *g = *at;

	*at = g->next;
	free(g);
}

// Destroying an id drops its unread events, answers its peer, and waits until the events already
// read are acknowledged.
int rdma_destroy_id(struct rdma_cm_id *id) {
	int err = begin(rdma_destroy_id, P(id));
	struct cmid *d = id_get("rdma_destroy_id", id), *p;

	err = err ? err : d ? 0 : EINVAL;
	if (err)
		return end_rc(err);
	if (id->qp)
		fault("rdma_destroy_id: id %u still has a QP", d->o.id);
	if (d->groups)
		fault("rdma_destroy_id: id %u is still in a multicast group, which librdmacm then never frees", d->o.id);
	while (d->groups)
		group_free(&d->groups);
	d->o.dying = true;
	p = d->peer;
	switch (d->state) {
	case REQUESTED:
		reject(d, "", 0);
		break;
	case CONNECTED:
	case ACCEPTED:
	case RESPONDED:
	case LEFT:
		detach(d);
		if (!p)
			break;
		if (p->state == CONNECTED || p->state == ACCEPTED || p->state == RESPONDED ||
			(p->state == LEFT && d->state == LEFT && !d->dev->iwarp)) {
			p->state = d->state == LEFT || d->dev->iwarp ? ENDED : LEFT;
			detach(p);
			simple(p, RDMA_CM_EVENT_DISCONNECTED, 0);
		}
		break;
	case CONNECTING: // its request is withdrawn
		if (p)
			p->state = ENDED;
		break;
	default:
		break;
	}
	if (d->peer)
		d->peer->peer = NULL;
	d->peer = NULL;
	if (d->state == LISTENING) {
		// Unread requests are rejected.
		for (struct cmid *c = next_id(NULL); c; c = next_id(c)) {
			if (c->listener != d)
				continue;
			c->listener = NULL;
			if (c->o.own) {
				reject(c, "", 0);
				obj_kill(&c->o);
			}
		}
	}
	drop_event(d);
	wait_acked("rdma_destroy_id", &d->o, &d->completed, &d->reported);
	obj_kill(&d->o);
	return end_rc(0);
}

static void drop_event(struct cmid *d) {
	evq_drop(&OUTER(echannel, d->pub.channel)->q, &d->o, NULL);
}

int rdma_migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *channel) {
	int err = begin(rdma_migrate_id, P(id), P(channel));
	struct cmid *d = id_get("rdma_migrate_id", id);
	struct obj *o = obj_get("rdma_migrate_id", K_EVENT_CHANNEL, channel);

	err = err ? err : d && o ? 0 : EINVAL;
	if (err)
		return end_rc(err);
	wait_acked("rdma_migrate_id", &d->o, &d->completed, &d->reported);
	evq_drop(&OUTER(echannel, id->channel)->q, &d->o, &((struct echannel *)o)->q);
	obj_up(&d->o, 0, o);
	id->channel = channel;
	return end_rc(0);
}

int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event) {
	int err = begin(rdma_get_cm_event, P(channel));
	struct echannel *h = (struct echannel *)obj_get("rdma_get_cm_event", K_EVENT_CHANNEL, channel);
	struct event *v;
	struct cm_ev *e;

	err = err ? err : h ? 0 : EINVAL;
	if (err)
		return end_rc(err);
	e = (struct cm_ev *)evq_get("rdma_get_cm_event", &h->q, &h->o);
	if (!e)
		return end_rc(errno);
	v = obj_new(K_EVENT, sizeof(*v), offsetof(struct event, pub), sizeof(v->pub));
	v->counts = (struct cmid *)e->e.about;
	v->counts->reported++;
	v->pub.id = &e->id->pub;
	v->pub.event = e->ev.event;
	v->pub.status = e->ev.status;
	err = e->ev.err;
	if (e->request) {
		v->pub.listen_id = &v->counts->pub;
		e->id->o.own = false;
		v->counts->waiting--;
	}
	v->data = malloc(e->ev.len);
	memcpy(v->data, e->ev.data, e->ev.len);
	if (e->ev.ud) {
		v->pub.param.ud.private_data = e->ev.len ? v->data : NULL;
		v->pub.param.ud.private_data_len = e->ev.len;
		v->pub.param.ud.qp_num = e->ev.qp_num;
		v->pub.param.ud.qkey = e->ev.qkey;
		v->pub.param.ud.ah_attr.is_global = 1;
		v->pub.param.ud.ah_attr.port_num = 1;
		v->pub.param.ud.ah_attr.grh.hop_limit = 64;
		v->pub.param.ud.ah_attr.grh.sgid_index = 3;
		memcpy(v->pub.param.ud.ah_attr.grh.dgid.raw, fake_dev[0].gid[3].raw, 16);
	} else {
		v->pub.param.conn.private_data = e->ev.len ? v->data : NULL;
		v->pub.param.conn.private_data_len = e->ev.len;
		v->pub.param.conn.responder_resources = e->ev.responder_resources;
		v->pub.param.conn.initiator_depth = e->ev.initiator_depth;
		v->pub.param.conn.flow_control = e->ev.flow_control;
		v->pub.param.conn.retry_count = e->ev.retry_count;
		v->pub.param.conn.rnr_retry_count = e->ev.rnr_retry_count;
		v->pub.param.conn.srq = e->ev.srq;
		v->pub.param.conn.qp_num = e->ev.qp_num;
	}
	if ((v->pub.event == RDMA_CM_EVENT_MULTICAST_JOIN || v->pub.event == RDMA_CM_EVENT_MULTICAST_ERROR) && v->counts->groups) {
		v->pub.param.ud.private_data = v->counts->groups->context; // the length is no indication
		memcpy(v->pub.param.ud.ah_attr.grh.dgid.raw, v->counts->groups->mgid, 16);
	}
	free(e);
	*event = &v->pub;
	end_rc(0);
	errno = err; // of librdmacm's own handling of the event
	return 0;
}

int rdma_ack_cm_event(struct rdma_cm_event *event) {
	int err = begin(rdma_ack_cm_event, P(event));
	struct event *v = (struct event *)obj_get("rdma_ack_cm_event", K_EVENT, event);

	err = err ? err : v ? 0 : EINVAL;
	if (err)
		return end_rc(err);
	v->counts->completed++;
	acked();
	free(v->data);
	memset(&v->pub, 0xdb, sizeof(v->pub)); // poison it for later accesses
	obj_kill(&v->o);
	return end_rc(0);
}

int rdma_notify(struct rdma_cm_id *id, enum ibv_event_type event) {
	int err = begin(rdma_notify, P(id), event);
	struct cmid *d = id_get("rdma_notify", id);

	if (!err && (!d || !d->dev))
		err = EINVAL;
	if (!err && event == IBV_EVENT_COMM_EST && d->state == ACCEPTED) {
		d->state = CONNECTED;
		simple(d, RDMA_CM_EVENT_ESTABLISHED, 0);
	}
	return end_rc(err);
}

int rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *attr, int *mask) {
	int err = begin(rdma_init_qp_attr, P(id), attr->qp_state);
	struct cmid *d = id_get("rdma_init_qp_attr", id);
	enum ibv_qp_state to = attr->qp_state;
	const struct fake_cm_event *mine;

	if (!err && (!d || !d->dev || to < IBV_QPS_INIT || to > IBV_QPS_RTS))
		err = EINVAL;
	if (!err && to != IBV_QPS_INIT && !d->dev->iwarp && d->state < REQUESTED)
		err = EINVAL;
	if (err)
		return end_rc(err);
	memset(attr, 0, sizeof(*attr));
	attr->qp_state = to;
	attr->port_num = 1;
	attr->qp_access_flags = d->dev->iwarp ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ
					      : IBV_ACCESS_REMOTE_WRITE;
	attr->qp_access_flags |= UNKNOWN_ACCESS | UNKNOWN_BIT;
	*mask = UNKNOWN_BIT;
	mine = &d->info.param;
	if (d->dev->iwarp) {
		*mask |= to == IBV_QPS_RTS ? 0 : IBV_QP_STATE | IBV_QP_ACCESS_FLAGS;
		return end_rc(0);
	}
	if (id->ps == RDMA_PS_UDP) {
		attr->qkey = RDMA_UDP_QKEY;
		*mask |= IBV_QP_STATE;
		if (to == IBV_QPS_INIT)
			*mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
		else if (to == IBV_QPS_RTS)
			*mask |= IBV_QP_SQ_PSN;
		return end_rc(0);
	}
	switch (to) {
	case IBV_QPS_INIT:
		*mask |= IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
		break;
	case IBV_QPS_RTR:
		*mask |= IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
		attr->ah_attr.is_global = 1;
		attr->ah_attr.port_num = 1;
		attr->ah_attr.grh.hop_limit = 64;
		attr->ah_attr.grh.sgid_index = 3;
		memcpy(attr->ah_attr.grh.dgid.raw, d->dev->gid[3].raw, 16);
		attr->path_mtu = d->dev->port[0].active_mtu;
		attr->dest_qp_num = d->peer ? d->peer->info.param.qp_num : 0;
		attr->rq_psn = d->peer ? d->peer->o.id : 0;
		attr->max_dest_rd_atomic = mine->responder_resources;
		if (d->listener && !mine->qp_num) // read before rdma_accept: what the peer offers
			attr->max_dest_rd_atomic = d->req.responder_resources;
		break;
	default:
		*mask |= IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC;
		attr->sq_psn = d->o.id;
		attr->timeout = d->info.ack_timeout ? d->info.ack_timeout : 18;
		attr->retry_cnt = d->listener ? d->req.retry_count : mine->retry_count;
		attr->rnr_retry = d->peer ? d->peer->info.param.rnr_retry_count : mine->rnr_retry_count;
		attr->max_rd_atomic = mine->initiator_depth;
		if (d->listener && !mine->qp_num)
			attr->max_rd_atomic = d->req.initiator_depth;
	}
	return end_rc(0);
}

int rdma_set_option(struct rdma_cm_id *id, int level, int name, void *value, size_t len) {
	int err = begin(rdma_set_option, P(id), level, name, len);
	struct cmid *d = id_get("rdma_set_option", id);
	uint32_t v = 0;

	if (!err && (!d || level != RDMA_OPTION_ID))
		err = d ? ENOSYS : EINVAL;
	if (!err && len != (name == RDMA_OPTION_ID_TOS || name == RDMA_OPTION_ID_ACK_TIMEOUT ? 1u : 4u))
		err = EINVAL;
	if (err)
		return end_rc(err);
	memcpy(&v, value, len);
	switch (name) {
	case RDMA_OPTION_ID_TOS:
		d->info.tos = v;
		d->info.tos_set = 1;
		break;
	case RDMA_OPTION_ID_REUSEADDR: d->info.reuseaddr = v != 0; break;
	case RDMA_OPTION_ID_AFONLY:
		d->info.afonly = v != 0;
		d->info.afonly_set = 1;
		break;
	case RDMA_OPTION_ID_ACK_TIMEOUT: d->info.ack_timeout = v; break;
	default: err = ENOSYS;
	}
	return end_rc(err);
}

__be16 rdma_get_src_port(struct rdma_cm_id *id) {
	struct cmid *d;
	uint16_t port;

	begin(rdma_get_src_port, P(id));
	d = id_get("rdma_get_src_port", id);
	port = d ? *port_of(&id->route.addr.src_addr) : 0;
	end_errno(0);
	return port;
}

__be16 rdma_get_dst_port(struct rdma_cm_id *id) {
	struct cmid *d;
	uint16_t port;

	begin(rdma_get_dst_port, P(id));
	d = id_get("rdma_get_dst_port", id);
	port = d ? *port_of(&id->route.addr.dst_addr) : 0;
	end_errno(0);
	return port;
}

struct ibv_context **rdma_get_devices(int *num_devices) {
	int err = begin(rdma_get_devices, 0), n = 0;
	struct ibv_context **list = NULL;

	if (!err) {
		list = calloc(3, sizeof(*list));
		for (int i = 0; i < 2; i++)
			if (!fake_dev[i].hidden)
				list[n++] = cma_context(&fake_dev[i]);
	}
	if (num_devices)
		*num_devices = n;
	return end_ptr(list, err);
}

void rdma_free_devices(struct ibv_context **list) {
	begin(rdma_free_devices, P(list));
	free(list);
	end_errno(0);
}

static int join(const char *fn, int err, struct rdma_cm_id *id, struct sockaddr *addr, void *context) {
	struct cmid *d = id_get(fn, id);
	struct fake_cm_event ev = {.event = RDMA_CM_EVENT_MULTICAST_JOIN, .ud = 1, .qp_num = 0xffffff};

	if (!err && (!d || !d->dev || id->ps != RDMA_PS_UDP || d->dev->iwarp))
		err = EINVAL;
	if (!err) {
		struct group *g = calloc(1, sizeof(*g));

		g->next = d->groups;
		d->groups = g;
		g->context = context;
		memcpy(&g->addr, addr, addr_len(addr));
		if (addr->sa_family == AF_INET6) {
			memcpy(g->mgid, &((const struct sockaddr_in6 *)addr)->sin6_addr, 16);
		} else {
			memset(g->mgid + 10, 0xff, 2);
			memcpy(g->mgid + 12, &((const struct sockaddr_in *)addr)->sin_addr, 4);
			g->mgid[0] = 0xff; // as the kernel forms them for RoCE version 1
			g->mgid[1] = 0x0e;
		}
	}
	if (err || instead(FN_rdma_join_multicast, d))
		return end_rc(err);
	ev.qkey = RDMA_UDP_QKEY;
	push(d, d, false, &ev);
	return end_rc(0);
}

int rdma_join_multicast(struct rdma_cm_id *id, struct sockaddr *addr, void *context) {
	int err = begin(rdma_join_multicast, P(id), P(context));

	return join("rdma_join_multicast", err, id, addr, context);
}

int rdma_join_multicast_ex(struct rdma_cm_id *id, struct rdma_cm_join_mc_attr_ex *attr, void *context) {
	int err = begin(rdma_join_multicast_ex, P(id), attr->join_flags, P(context));

	return join("rdma_join_multicast_ex", err, id, attr->addr, context);
}

int rdma_leave_multicast(struct rdma_cm_id *id, struct sockaddr *addr) {
	int err = begin(rdma_leave_multicast, P(id), addr->sa_family);

	struct cmid *d = id_get("rdma_leave_multicast", id);
	struct group **at;

	if (!d)
		return end_rc(EINVAL);
	for (at = &d->groups; *at && memcmp(&(*at)->addr, addr, addr_len(addr)); at = &(*at)->next)
		;
	if (!*at)
		return end_rc(EADDRNOTAVAIL);
	group_free(at); // even if the kernel refuses
	return end_rc(err);
}

// Only numeric names are resolved.
int rdma_getaddrinfo(const char *node, const char *service, const struct rdma_addrinfo *hints, struct rdma_addrinfo **res) {
	int err = begin(rdma_getaddrinfo, 0);
	struct addrinfo want = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM}, *got;
	struct rdma_addrinfo *r;
	bool passive = hints && (hints->ai_flags & RAI_PASSIVE);

	if (err)
		return end_rc(err);
	if (passive)
		want.ai_flags |= AI_PASSIVE;
	if ((err = getaddrinfo(node, service, &want, &got))) {
		end_errno(0);
		return err;
	}
	r = calloc(1, sizeof(*r));
	r->ai_family = got->ai_family;
	r->ai_port_space = hints && hints->ai_port_space ? hints->ai_port_space : RDMA_PS_TCP;
	r->ai_qp_type = r->ai_port_space == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC;
	if (passive) {
		r->ai_src_len = got->ai_addrlen;
		r->ai_src_addr = malloc(got->ai_addrlen);
		memcpy(r->ai_src_addr, got->ai_addr, got->ai_addrlen);
	} else {
		r->ai_dst_len = got->ai_addrlen;
		r->ai_dst_addr = malloc(got->ai_addrlen);
		memcpy(r->ai_dst_addr, got->ai_addr, got->ai_addrlen);
	}
	freeaddrinfo(got);
	*res = r;
	return end_rc(0);
}

void rdma_freeaddrinfo(struct rdma_addrinfo *res) {
	begin(rdma_freeaddrinfo, P(res));
	free(res->ai_src_addr);
	free(res->ai_dst_addr);
	free(res);
	end_errno(0);
}

// For tests.

int fake_cm_inject(uint32_t id, const struct fake_cm_event *ev) {
	struct obj *o;

	pthread_mutex_lock(&fake_mu);
	o = obj_by_id(K_ID, id);
	if (o) {
		struct cmid *d = (struct cmid *)o;

		push(d, d, false, ev);
		if (ev->event == RDMA_CM_EVENT_DISCONNECTED) {
			detach(d);
			d->state = LEFT;
		}
	}
	pthread_mutex_unlock(&fake_mu);
	return o != NULL;
}

int fake_cm_info(uint32_t id, struct fake_cm_id *out) {
	struct obj *o;

	pthread_mutex_lock(&fake_mu);
	o = obj_by_id(K_ID, id);
	if (o) {
		struct cmid *d = (struct cmid *)o;

		*out = d->info;
		out->id = id;
		out->channel = OUTER(echannel, d->pub.channel)->o.id;
		out->state = d->state;
		out->ps = d->pub.ps;
		out->listening = d->state == LISTENING;
		out->peer = d->peer ? d->peer->o.id : 0;
		out->src_port = ntohs(*port_of(&d->pub.route.addr.src_addr));
		out->dst_port = ntohs(*port_of(&d->pub.route.addr.dst_addr));
	}
	pthread_mutex_unlock(&fake_mu);
	return o != NULL;
}

uint32_t fake_cm_last(void) {
	uint32_t last = 0;

	pthread_mutex_lock(&fake_mu);
	for (struct cmid *d = next_id(NULL); d; d = next_id(d))
		if (!d->o.own)
			last = d->o.id;
	pthread_mutex_unlock(&fake_mu);
	return last;
}
