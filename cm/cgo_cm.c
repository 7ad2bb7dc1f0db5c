// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

#include "cgo_cm.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "rdma_abi.h"

static struct {
#define FUNCTION(result, name, parameters) result(*name) parameters;
	RDMA_FUNCTIONS(FUNCTION)
#undef FUNCTION
} lib;

static const struct {
	const char *name;
	void *at; // in lib
} functions[] = {
#define NEEDED(result, name, parameters) {#name, &lib.name},
	RDMA_FUNCTIONS(NEEDED)
#undef NEEDED
};

const char *gocm_function(int i) {
	return i < 0 || (size_t)i >= sizeof functions / sizeof *functions ? NULL : functions[i].name;
}

void gocm_set_function(int i, uintptr_t address) { memcpy(functions[i].at, &address, sizeof address); }

// failed converts the result of a librdmacm function to 0 or a negative errno. Most return -1, some
// an errno.
static int failed(int rc) {
	if (rc == 0)
		return 0;
	if (rc > 0)
		return -rc;
	return errno > 0 ? -errno : -EIO;
}

#define CALL(call) (errno = 0, failed(call))

static struct sockaddr *to_sockaddr(const struct gocm_addr *a, struct sockaddr_storage *s) {
	memset(s, 0, sizeof *s);
	if (a->family == AF_INET) {
		struct sockaddr_in *in = (struct sockaddr_in *)s;
		in->sin_family = AF_INET;
		in->sin_port = htons(a->port);
		memcpy(&in->sin_addr, a->ip, 4);
	} else {
		struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)s;
		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons(a->port);
		in6->sin6_scope_id = a->scope;
		memcpy(&in6->sin6_addr, a->ip, 16);
	}
	return (struct sockaddr *)s;
}

static void from_sockaddr(const struct sockaddr *s, struct gocm_addr *a) {
	memset(a, 0, sizeof *a);
	if (s->sa_family == AF_INET) {
		const struct sockaddr_in *in = (const struct sockaddr_in *)s;
		a->family = AF_INET;
		a->port = ntohs(in->sin_port);
		memcpy(a->ip, &in->sin_addr, 4);
	} else if (s->sa_family == AF_INET6) {
		const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)s;
		a->family = AF_INET6;
		a->port = ntohs(in6->sin6_port);
		a->scope = in6->sin6_scope_id;
		memcpy(a->ip, &in6->sin6_addr, 16);
	}
}

static struct gocm_ah from_ah(const struct ibv_ah_attr *a) {
	struct gocm_ah o = {
		.flow_label = a->grh.flow_label,
		.dlid = a->dlid,
		.sgid_index = a->grh.sgid_index,
		.hop_limit = a->grh.hop_limit,
		.traffic_class = a->grh.traffic_class,
		.sl = a->sl,
		.src_path_bits = a->src_path_bits,
		.static_rate = a->static_rate,
		.is_global = a->is_global != 0,
		.port_num = a->port_num,
	};
	memcpy(o.dgid, a->grh.dgid.raw, sizeof o.dgid);
	return o;
}

// *fd is librdmacm's own descriptor, which it closes itself. Go's poller watches a duplicate of it,
// which shares O_NONBLOCK.
int gocm_open(struct rdma_event_channel **ch, int *fd) {
	errno = 0;
	*ch = lib.rdma_create_event_channel();
	if (*ch == NULL)
		return failed(-1);
	*fd = (*ch)->fd;
	return 0;
}

void gocm_close(struct rdma_event_channel *ch) { lib.rdma_destroy_event_channel(ch); }

// rdma_destroy_id waits for unacknowledged events, so none leaves this function.
int gocm_next(struct rdma_event_channel *ch, struct gocm_event *out) {
	struct rdma_cm_event *ev = NULL;
	const void *data = NULL;

	errno = 0;
	if (lib.rdma_get_cm_event(ch, &ev) != 0)
		return failed(-1);
	memset(out, 0, offsetof(struct gocm_event, data));
	out->event = ev->event;
	// librdmacm reports its own failures as status -1 with the reason in errno.
	out->status = ev->status == -1 && errno > 0 ? -errno : ev->status;
	out->key = (uintptr_t)ev->id->context;
	if (ev->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
		out->key = (uintptr_t)ev->listen_id->context;
		out->id = ev->id;
	}
	if (ev->event == RDMA_CM_EVENT_MULTICAST_JOIN || ev->event == RDMA_CM_EVENT_MULTICAST_ERROR) {
		// Here private_data is the context passed to rdma_join_multicast.
		out->group = (uintptr_t)ev->param.ud.private_data;
		out->ah = from_ah(&ev->param.ud.ah_attr);
		out->qp_num = ev->param.ud.qp_num;
		out->qkey = ev->param.ud.qkey;
	} else if (ev->id->ps == RDMA_PS_UDP) {
		out->ah = from_ah(&ev->param.ud.ah_attr);
		out->qp_num = ev->param.ud.qp_num;
		out->qkey = ev->param.ud.qkey;
		data = ev->param.ud.private_data;
		out->len = ev->param.ud.private_data_len;
	} else {
		out->responder_resources = ev->param.conn.responder_resources;
		out->initiator_depth = ev->param.conn.initiator_depth;
		out->qp_num = ev->param.conn.qp_num;
		data = ev->param.conn.private_data;
		out->len = ev->param.conn.private_data_len;
	}
	if (data == NULL)
		out->len = 0;
	else
		memcpy(out->data, data, out->len);
	lib.rdma_ack_cm_event(ev);
	return 0;
}

int gocm_create(struct rdma_event_channel *ch, uintptr_t key, int ps, struct rdma_cm_id **id) {
	return CALL(lib.rdma_create_id(ch, id, (void *)key, ps));
}

void gocm_set_key(struct rdma_cm_id *id, uintptr_t key) { id->context = (void *)key; }

int gocm_bind(struct rdma_cm_id *id, const struct gocm_addr *a) {
	struct sockaddr_storage s;

	return CALL(lib.rdma_bind_addr(id, to_sockaddr(a, &s)));
}

int gocm_resolve_addr(struct rdma_cm_id *id, const struct gocm_addr *from, const struct gocm_addr *to, int ms) {
	struct sockaddr_storage s, d;

	return CALL(lib.rdma_resolve_addr(id, from->family ? to_sockaddr(from, &s) : NULL, to_sockaddr(to, &d), ms));
}

int gocm_resolve_route(struct rdma_cm_id *id, int ms) { return CALL(lib.rdma_resolve_route(id, ms)); }

int gocm_set_tos(struct rdma_cm_id *id, uint8_t tos) {
	return CALL(lib.rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof tos));
}

int gocm_set_ack_timeout(struct rdma_cm_id *id, uint8_t timeout) {
	return CALL(lib.rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof timeout));
}

static int set_flag(struct rdma_cm_id *id, int option) {
	int yes = 1;

	return CALL(lib.rdma_set_option(id, RDMA_OPTION_ID, option, &yes, sizeof yes));
}

int gocm_set_reuseaddr(struct rdma_cm_id *id) { return set_flag(id, RDMA_OPTION_ID_REUSEADDR); }

int gocm_set_afonly(struct rdma_cm_id *id) { return set_flag(id, RDMA_OPTION_ID_AFONLY); }

static struct rdma_conn_param conn_param(const struct gocm_param *p) {
	return (struct rdma_conn_param){
		.private_data = p->len ? p->data : NULL,
		.private_data_len = p->len,
		.responder_resources = p->responder_resources,
		.initiator_depth = p->initiator_depth,
		.retry_count = p->retry_count,
		.rnr_retry_count = p->rnr_retry_count,
		.srq = p->srq,
		.qp_num = p->qp_num,
	};
}

// hold_signals blocks signals in this thread until the old mask is restored, except those that
// report errors of the thread itself.
static void hold_signals(sigset_t *old) {
	static const int own[] = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP};
	sigset_t most;

	sigfillset(&most);
	for (size_t i = 0; i < sizeof own / sizeof *own; i++)
		sigdelset(&most, own[i]);
	pthread_sigmask(SIG_BLOCK, &most, old);
}

// gocm_connect blocks signals, because Go's runtime sends many to its threads (SIGURG, SIGPROF).
// Kernel siw waits for TCP within rdma_connect. A signal ends this wait, although TCP may have
// connected: siw closes the stream, and the kernel restarts the call, which then finds the port in
// use (EADDRNOTAVAIL). If the peer is also kernel siw and has not accepted the stream yet, its
// listener is lost (drivers/infiniband/sw/siw/siw_cm.c siw_connect, siw_cm_llp_state_change; Linux
// 6.1 to 7.3).
int gocm_connect(struct rdma_cm_id *id, const struct gocm_param *p) {
	struct rdma_conn_param param = conn_param(p);
	sigset_t old;
	int rc;

	hold_signals(&old);
	rc = CALL(lib.rdma_connect(id, &param));
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return rc;
}

int gocm_accept(struct rdma_cm_id *id, const struct gocm_param *p) {
	struct rdma_conn_param param = conn_param(p);

	return CALL(lib.rdma_accept(id, &param));
}

int gocm_reject(struct rdma_cm_id *id, const struct gocm_param *p) {
	return CALL(lib.rdma_reject(id, p->len ? p->data : NULL, p->len));
}

int gocm_establish(struct rdma_cm_id *id) { return CALL(lib.rdma_establish(id)); }

int gocm_listen(struct rdma_cm_id *id, int backlog) { return CALL(lib.rdma_listen(id, backlog)); }

int gocm_disconnect(struct rdma_cm_id *id) { return CALL(lib.rdma_disconnect(id)); }

int gocm_destroy(struct rdma_cm_id *id) { return CALL(lib.rdma_destroy_id(id)); }

int gocm_join(struct rdma_cm_id *id, const struct gocm_addr *group, uintptr_t key) {
	struct sockaddr_storage s;

	return CALL(lib.rdma_join_multicast(id, to_sockaddr(group, &s), (void *)key));
}

int gocm_leave(struct rdma_cm_id *id, const struct gocm_addr *group) {
	struct sockaddr_storage s;

	return CALL(lib.rdma_leave_multicast(id, to_sockaddr(group, &s)));
}

int gocm_qp_attr(struct rdma_cm_id *id, int state, struct gocm_qp_attr *o, int *mask) {
	struct ibv_qp_attr a;

	memset(&a, 0, sizeof a);
	a.qp_state = state;
	*mask = 0;
	int rc = CALL(lib.rdma_init_qp_attr(id, &a, mask));
	*o = (struct gocm_qp_attr){
		.path_mtu = a.path_mtu,
		.qkey = a.qkey,
		.rq_psn = a.rq_psn,
		.sq_psn = a.sq_psn,
		.dest_qp_num = a.dest_qp_num,
		.qp_access_flags = a.qp_access_flags,
		.ah = from_ah(&a.ah_attr),
		.pkey_index = a.pkey_index,
		.max_rd_atomic = a.max_rd_atomic,
		.max_dest_rd_atomic = a.max_dest_rd_atomic,
		.min_rnr_timer = a.min_rnr_timer,
		.port_num = a.port_num,
		.timeout = a.timeout,
		.retry_cnt = a.retry_cnt,
		.rnr_retry = a.rnr_retry,
	};
	return rc;
}

void gocm_where(struct rdma_cm_id *id, struct gocm_addr *local, struct gocm_addr *remote, struct gocm_device *dev) {
	from_sockaddr(&id->route.addr.src_addr, local);
	from_sockaddr(&id->route.addr.dst_addr, remote);
	memset(dev, 0, sizeof *dev);
	if (id->verbs != NULL) {
		memcpy(dev->name, id->verbs->device->name, sizeof dev->name); // both end in 0
		dev->port = id->port_num;
	}
}
