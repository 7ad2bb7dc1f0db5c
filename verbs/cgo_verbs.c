// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

// Calls that are made of several of the library's.

#include <net/if.h>
#include "cgo_verbs.h"

#if __has_include(<infiniband/verbs.h>)

int gv_devices(struct gv_device **out, int *n) {
	*out = NULL;
	*n = 0;
	errno = 0;
	// NULL and errno. Without RDMA in the kernel it is ENOSYS.
	struct ibv_device **list = ibv_get_device_list(n);
	if (!list)
		return gv_errno();
	struct gv_device *d = calloc(*n > 0 ? *n : 1, sizeof *d);
	if (!d) {
		ibv_free_device_list(list);
		return ENOMEM;
	}
	for (int i = 0; i < *n; i++) {
		strncpy(d[i].name, ibv_get_device_name(list[i]), sizeof d[i].name - 1);
		d[i].guid = be64toh(ibv_get_device_guid(list[i]));
		d[i].node_type = list[i]->node_type;
		d[i].transport = list[i]->transport_type;
	}
	ibv_free_device_list(list);
	*out = d;
	return 0;
}

int gv_open(const char *name, uint64_t guid, struct ibv_context **out) {
	*out = NULL;
	errno = 0;
	int n;
	struct ibv_device **list = ibv_get_device_list(&n); // NULL and errno
	if (!list)
		return gv_errno();
	int rc = ENODEV;
	for (int i = 0; i < n; i++) {
		if (strcmp(ibv_get_device_name(list[i]), name) || be64toh(ibv_get_device_guid(list[i])) != guid)
			continue;
		errno = 0;
		*out = ibv_open_device(list[i]); // NULL and errno
		rc = *out ? 0 : gv_errno();
		break;
	}
	ibv_free_device_list(list); // the open device keeps what it needs
	return rc;
}

int gv_async_event(struct ibv_context *ctx, struct gv_async *out) {
	struct ibv_async_event ev;
	errno = 0;
	if (ibv_get_async_event(ctx, &ev)) // -1 and errno
		return gv_errno();
	out->type = ev.event_type;
	out->port = 0;
	out->cookie = 0;
	switch (ev.event_type) {
	case IBV_EVENT_CQ_ERR:
		out->cookie = (uintptr_t)ev.element.cq->cq_context;
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		out->cookie = (uintptr_t)ev.element.qp->qp_context;
		break;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		out->cookie = (uintptr_t)ev.element.srq->srq_context;
		break;
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_LID_CHANGE:
	case IBV_EVENT_PKEY_CHANGE:
	case IBV_EVENT_SM_CHANGE:
	case IBV_EVENT_CLIENT_REREGISTER:
	case IBV_EVENT_GID_CHANGE:
		out->port = ev.element.port_num;
		break;
	default:
		break;
	}
	// Destroying the object waits for this, so it is done before anybody else sees the event.
	ibv_ack_async_event(&ev);
	return 0;
}

int gv_cq_event(struct ibv_comp_channel *ch, uint64_t *cookie) {
	struct ibv_cq *cq;
	void *context;
	errno = 0;
	if (ibv_get_cq_event(ch, &cq, &context)) // -1 and errno
		return gv_errno();
	*cookie = (uintptr_t)context;
	ibv_ack_cq_events(cq, 1); // as above
	return 0;
}

int gv_query_gid(struct ibv_context *ctx, uint32_t port, uint32_t index, struct gv_gid *out) {
	struct ibv_gid_entry e;
	memset(out, 0, sizeof *out);
	int rc = ibv_query_gid_ex(ctx, port, index, &e, 0); // 0 or an errno; ENODATA for an empty row
	if (rc)
		return gv_result(rc);
	memcpy(out->raw, e.gid.raw, sizeof out->raw);
	out->type = (int)e.gid_type;
	if (e.ndev_ifindex)
		if_indextoname(e.ndev_ifindex, out->netdev); // one that has just gone leaves ""
	return 0;
}

int gv_query_pkey(struct ibv_context *ctx, uint8_t port, int index, uint16_t *out) {
	__be16 key = 0;
	errno = 0;
	// 0, or -1 without errno by the manual; errno is set where the kernel was asked.
	if (ibv_query_pkey(ctx, port, index, &key))
		return gv_errno();
	*out = be16toh(key);
	return 0;
}

int gv_create_qp(struct ibv_pd *pd, uint64_t cookie, struct ibv_cq *send_cq, struct ibv_cq *recv_cq, struct ibv_srq *srq,
	int type, int sig_all, struct ibv_qp_cap *cap, struct ibv_qp **out) {
	struct ibv_qp_init_attr init = {
		.qp_context = (void *)(uintptr_t)cookie,
		.send_cq = send_cq,
		.recv_cq = recv_cq,
		.srq = srq,
		.cap = *cap,
		.qp_type = type,
		.sq_sig_all = sig_all,
	};
	errno = 0;
	*out = ibv_create_qp(pd, &init); // NULL and errno; cap becomes what the QP has
	if (!*out)
		return gv_errno();
	*cap = init.cap;
	return 0;
}

int gv_bind_mw(struct ibv_qp *qp, uint64_t id, unsigned flags, struct ibv_mw *mw, struct ibv_mr *mr, uint64_t addr,
	uint64_t length, unsigned access) {
	struct ibv_mw_bind bind = {
		.wr_id = id,
		.send_flags = flags,
		.bind_info = {.mr = mr, .addr = addr, .length = length, .mw_access_flags = access},
	};
	return gv_result(ibv_bind_mw(qp, mw, &bind)); // 0 or an errno
}

#endif
