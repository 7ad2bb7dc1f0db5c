// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

// Everything except the hot path: one short function for each library call, or for a few calls that
// belong together.

#include "cgo_verbs.h"

#include <endian.h>
#include <errno.h>
#include <net/if.h>
#include <string.h>

#include "ibv_abi.h"

static struct {
#define FUNCTION(result, name, parameters) result(*name) parameters;
	IBV_FUNCTIONS(FUNCTION, FUNCTION)
#undef FUNCTION
} lib;

// POSIX guarantees that data pointers can hold function addresses.
_Static_assert(sizeof(void *) == sizeof(void (*)(void)) && sizeof(void *) == sizeof(uintptr_t), "addresses are numbers");

static const struct {
	const char *name;
	int optional;
	void *at; // in lib
} functions[] = {
#define NEEDED(result, name, parameters) {#name, 0, &lib.name},
#define OPTIONAL(result, name, parameters) {#name, 1, &lib.name},
	IBV_FUNCTIONS(NEEDED, OPTIONAL)
#undef NEEDED
#undef OPTIONAL
};

const char *gv_function(int i, int *optional) {
	if (i < 0 || (size_t)i >= sizeof functions / sizeof *functions)
		return NULL;
	*optional = functions[i].optional;
	return functions[i].name;
}

void gv_set_function(int i, uintptr_t address) { memcpy(functions[i].at, &address, sizeof address); }

// result converts the result of functions that return 0 or an errno. A negative value violates
// their man pages.
static int result(int rc) { return rc < 0 ? GV_NO_ERRNO : rc; }

// failed returns the error of functions that set errno.
static int failed(void) { return errno > 0 ? errno : GV_NO_ERRNO; }

// made converts the result of functions that return an object, or NULL with errno set.
static int made(void *object, uintptr_t *out) {
	*out = (uintptr_t)object;
	return object ? 0 : failed();
}

#define CONTEXT(n) ((struct ibv_context *)(n))
#define PD(n) ((struct ibv_pd *)(n))
#define MR(n) ((struct ibv_mr *)(n))
#define MW(n) ((struct ibv_mw *)(n))
#define CHANNEL(n) ((struct ibv_comp_channel *)(n))
#define CQ(n) ((struct ibv_cq *)(n))
#define QP(n) ((struct ibv_qp *)(n))
#define SRQ(n) ((struct ibv_srq *)(n))
#define AH(n) ((struct ibv_ah *)(n))

int gv_devices(struct gv_device **out, int *n) {
	*out = NULL;
	*n = 0;
	errno = 0;
	// NULL with errno set: ENOSYS without RDMA in the kernel.
	struct ibv_device **list = lib.ibv_get_device_list(n);
	if (!list)
		return failed();
	struct gv_device *d = calloc(*n > 0 ? (size_t)*n : 1, sizeof *d);
	if (!d) {
		lib.ibv_free_device_list(list);
		return ENOMEM;
	}
	for (int i = 0; i < *n; i++) {
		strncpy(d[i].name, lib.ibv_get_device_name(list[i]), sizeof d[i].name - 1);
		d[i].guid = be64toh(lib.ibv_get_device_guid(list[i]));
		d[i].node_type = (int)list[i]->node_type;
		d[i].transport = (int)list[i]->transport_type;
	}
	lib.ibv_free_device_list(list);
	*out = d;
	return 0;
}

int gv_open(const char *name, uint64_t guid, uintptr_t *ctx, int *async_fd) {
	*ctx = 0;
	errno = 0;
	int n;
	struct ibv_device **list = lib.ibv_get_device_list(&n); // NULL and errno
	if (!list)
		return failed();
	int rc = ENODEV;
	for (int i = 0; i < n; i++) {
		if (strcmp(lib.ibv_get_device_name(list[i]), name) || be64toh(lib.ibv_get_device_guid(list[i])) != guid)
			continue;
		errno = 0;
		rc = made(lib.ibv_open_device(list[i]), ctx); // NULL and errno
		if (rc == 0)
			*async_fd = CONTEXT(*ctx)->async_fd;
		break;
	}
	lib.ibv_free_device_list(list); // an open device retains what it needs
	return rc;
}

int gv_context_fd(uintptr_t ctx) { return CONTEXT(ctx)->cmd_fd; }

uint32_t gv_pd_handle(uintptr_t pd) { return PD(pd)->handle; }

int gv_channel_fd(uintptr_t ch) { return CHANNEL(ch)->fd; }

int gv_close(uintptr_t ctx) { return lib.ibv_close_device(CONTEXT(ctx)) ? GV_NO_ERRNO : 0; } // 0, or -1 without errno

void gv_fork_init(void) { lib.ibv_fork_init(); }

// extended returns the structure that contains a context, or NULL if it is too short to have the
// field (verbs_get_ctx_op of verbs.h).
static struct verbs_context *extended(struct ibv_context *c, size_t offset) {
	if (c->abi_compat != __VERBS_ABI_IS_EXTENDED)
		return NULL;
	struct verbs_context *v = (struct verbs_context *)((char *)c - offsetof(struct verbs_context, context));
	return v->sz >= sizeof *v - offset ? v : NULL;
}

int gv_query_device(uintptr_t ctx, struct gv_device_attr *o) {
	struct ibv_device_attr a;
	memset(&a, 0, sizeof a);
	int rc = lib.ibv_query_device(CONTEXT(ctx), &a); // 0 or an errno
	if (rc)
		return result(rc);
	memset(o, 0, sizeof *o);
	memcpy(o->fw_ver, a.fw_ver, sizeof a.fw_ver);
	o->node_guid = be64toh(a.node_guid);
	o->sys_image_guid = be64toh(a.sys_image_guid);
	o->max_mr_size = a.max_mr_size;
	o->page_size_cap = a.page_size_cap;
	o->vendor_id = a.vendor_id;
	o->vendor_part_id = a.vendor_part_id;
	o->hw_ver = a.hw_ver;
	o->device_cap_flags = a.device_cap_flags;
	o->max_qp = a.max_qp;
	o->max_qp_wr = a.max_qp_wr;
	o->max_sge = a.max_sge;
	o->max_sge_rd = a.max_sge_rd;
	o->max_cq = a.max_cq;
	o->max_cqe = a.max_cqe;
	o->max_mr = a.max_mr;
	o->max_pd = a.max_pd;
	o->max_qp_rd_atom = a.max_qp_rd_atom;
	o->max_res_rd_atom = a.max_res_rd_atom;
	o->max_qp_init_rd_atom = a.max_qp_init_rd_atom;
	o->atomic_cap = (int)a.atomic_cap;
	o->max_mw = a.max_mw;
	o->max_ah = a.max_ah;
	o->max_srq = a.max_srq;
	o->max_srq_wr = a.max_srq_wr;
	o->max_srq_sge = a.max_srq_sge;
	o->max_pkeys = a.max_pkeys;
	o->phys_port_cnt = a.phys_port_cnt;
	o->local_ca_ack_delay = a.local_ca_ack_delay;
	o->num_comp_vectors = CONTEXT(ctx)->num_comp_vectors;
	o->max_ee_rd_atom = a.max_ee_rd_atom;
	o->max_ee_init_rd_atom = a.max_ee_init_rd_atom;
	o->max_ee = a.max_ee;
	o->max_rdd = a.max_rdd;
	o->max_raw_ipv6_qp = a.max_raw_ipv6_qp;
	o->max_raw_ethy_qp = a.max_raw_ethy_qp;
	o->max_mcast_grp = a.max_mcast_grp;
	o->max_mcast_qp_attach = a.max_mcast_qp_attach;
	o->max_total_mcast_qp_attach = a.max_total_mcast_qp_attach;
	o->max_fmr = a.max_fmr;
	o->max_map_per_fmr = a.max_map_per_fmr;
	return 0;
}

int gv_query_device_ex(uintptr_t ctx, struct gv_device_attr_ex *o) {
	struct ibv_device_attr_ex a;
	struct verbs_context *v = extended(CONTEXT(ctx), offsetof(struct verbs_context, query_device_ex));
	if (!v || !v->query_device_ex)
		return EOPNOTSUPP;
	memset(&a, 0, sizeof a);
	int rc = v->query_device_ex(CONTEXT(ctx), NULL, &a, sizeof a); // 0 or an errno
	if (rc)
		return result(rc);
	*o = (struct gv_device_attr_ex){
		.odp_general = a.odp_caps.general_caps,
		.odp_rc = a.odp_caps.per_transport_caps.rc_odp_caps,
		.odp_uc = a.odp_caps.per_transport_caps.uc_odp_caps,
		.odp_ud = a.odp_caps.per_transport_caps.ud_odp_caps,
		.odp_xrc = a.xrc_odp_caps,
		.completion_timestamp_mask = a.completion_timestamp_mask,
		.hca_core_clock = a.hca_core_clock,
		.device_cap_flags_ex = a.device_cap_flags_ex,
		.max_dm_size = a.max_dm_size,
		.raw_packet_caps = a.raw_packet_caps,
		.max_wq_type_rq = a.max_wq_type_rq,
		.tso_max = a.tso_caps.max_tso,
		.tso_qpts = a.tso_caps.supported_qpts,
		.rss_qpts = a.rss_caps.supported_qpts,
		.rss_tables = a.rss_caps.max_rwq_indirection_tables,
		.rss_table_size = a.rss_caps.max_rwq_indirection_table_size,
		.rss_fields_mask = a.rss_caps.rx_hash_fields_mask,
		.rss_function = a.rss_caps.rx_hash_function,
		.pacing_min = a.packet_pacing_caps.qp_rate_limit_min,
		.pacing_max = a.packet_pacing_caps.qp_rate_limit_max,
		.pacing_qpts = a.packet_pacing_caps.supported_qpts,
		.tm_hdr = a.tm_caps.max_rndv_hdr_size,
		.tm_tags = a.tm_caps.max_num_tags,
		.tm_flags = a.tm_caps.flags,
		.tm_ops = a.tm_caps.max_ops,
		.tm_sge = a.tm_caps.max_sge,
		.mod_count = a.cq_mod_caps.max_cq_count,
		.mod_period = a.cq_mod_caps.max_cq_period,
		.pci_fetch_add = a.pci_atomic_caps.fetch_add,
		.pci_swap = a.pci_atomic_caps.swap,
		.pci_compare_swap = a.pci_atomic_caps.compare_swap,
	};
	return 0;
}

int gv_query_port(uintptr_t ctx, uint8_t port, struct gv_port_attr *o) {
	struct ibv_port_attr a;
	struct verbs_context *v = extended(CONTEXT(ctx), offsetof(struct verbs_context, query_port));
	memset(&a, 0, sizeof a);
	int rc = v && v->query_port ? v->query_port(CONTEXT(ctx), port, &a, sizeof a) // both: 0 or an errno
				    : lib.ibv_query_port(CONTEXT(ctx), port, (struct _compat_ibv_port_attr *)&a);
	if (rc)
		return result(rc);
	memset(o, 0, sizeof *o);
	o->state = a.state;
	o->max_mtu = a.max_mtu;
	o->active_mtu = a.active_mtu;
	o->max_msg_sz = a.max_msg_sz;
	o->gid_tbl_len = a.gid_tbl_len;
	o->pkey_tbl_len = a.pkey_tbl_len;
	o->lid = a.lid;
	o->sm_lid = a.sm_lid;
	o->lmc = a.lmc;
	o->active_width = a.active_width;
	o->active_speed = a.active_speed;
	o->phys_state = a.phys_state;
	o->link_layer = a.link_layer;
	o->port_cap_flags = a.port_cap_flags;
	o->port_cap_flags2 = a.port_cap_flags2;
	o->bad_pkey_cntr = a.bad_pkey_cntr;
	o->qkey_viol_cntr = a.qkey_viol_cntr;
	o->max_vl_num = a.max_vl_num;
	o->sm_sl = a.sm_sl;
	o->subnet_timeout = a.subnet_timeout;
	o->init_type_reply = a.init_type_reply;
	o->flags = a.flags;
	return 0;
}

int gv_query_gid(uintptr_t ctx, uint32_t port, uint32_t index, struct gv_gid *out) {
	struct ibv_gid_entry e;
	memset(out, 0, sizeof *out);
	if (!lib._ibv_query_gid_ex)
		return EOPNOTSUPP;
	int rc = lib._ibv_query_gid_ex(CONTEXT(ctx), port, index, &e, 0, sizeof e); // 0 or an errno; ENODATA: empty entry
	if (rc)
		return result(rc);
	memcpy(out->raw, e.gid.raw, sizeof out->raw);
	out->type = (int)e.gid_type;
	if (e.ndev_ifindex)
		if_indextoname(e.ndev_ifindex, out->netdev); // "" for an interface that has just been removed
	return 0;
}

int gv_query_pkey(uintptr_t ctx, uint8_t port, int index, uint16_t *out) {
	uint16_t key = 0;
	errno = 0;
	// The man page says 0, or -1 without errno; errno is set if the kernel was asked.
	if (lib.ibv_query_pkey(CONTEXT(ctx), port, index, &key))
		return failed();
	*out = be16toh(key);
	return 0;
}

int gv_async_event(uintptr_t ctx, struct gv_async *out) {
	struct ibv_async_event ev;
	errno = 0;
	if (lib.ibv_get_async_event(CONTEXT(ctx), &ev)) // -1 and errno
		return failed();
	out->type = (int)ev.event_type;
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
	// Destroying the object waits for the acknowledgement, so it precedes the delivery of the
	// event.
	lib.ibv_ack_async_event(&ev);
	return 0;
}

int gv_cq_event(uintptr_t ch, uint64_t *cookie) {
	struct ibv_cq *cq;
	void *context;
	errno = 0;
	if (lib.ibv_get_cq_event(CHANNEL(ch), &cq, &context)) // -1 and errno
		return failed();
	*cookie = (uintptr_t)context;
	lib.ibv_ack_cq_events(cq, 1); // as above
	return 0;
}

int gv_alloc_pd(uintptr_t ctx, uintptr_t *out) {
	errno = 0;
	return made(lib.ibv_alloc_pd(CONTEXT(ctx)), out); // NULL and errno
}

int gv_dealloc_pd(uintptr_t pd) { return result(lib.ibv_dealloc_pd(PD(pd))); } // 0 or an errno

static void keys_of(const struct ibv_mr *mr, struct gv_keys *keys) {
	keys->lkey = mr->lkey;
	keys->rkey = mr->rkey;
}

static int registered(struct ibv_mr *mr, uintptr_t *out, struct gv_keys *keys) {
	if (mr)
		keys_of(mr, keys);
	return made(mr, out);
}

int gv_reg_mr(uintptr_t pd, uintptr_t addr, size_t len, uint64_t iova, unsigned access, uintptr_t *out, struct gv_keys *keys) {
	struct ibv_mr *mr;
	errno = 0;
	if (lib.ibv_reg_mr_iova2)
		return registered(lib.ibv_reg_mr_iova2(PD(pd), (void *)addr, len, iova, access), out, keys); // NULL and errno
	access &= ~(unsigned)IBV_ACCESS_OPTIONAL_RANGE; // hints: the library drops unsupported ones too
	if (iova == addr)
		mr = lib.ibv_reg_mr(PD(pd), (void *)addr, len, (int)access); // NULL and errno
	else if (lib.ibv_reg_mr_iova)
		mr = lib.ibv_reg_mr_iova(PD(pd), (void *)addr, len, iova, (int)access); // NULL and errno
	else
		return EOPNOTSUPP;
	return registered(mr, out, keys);
}

int gv_reg_dmabuf_mr(uintptr_t pd, uint64_t offset, size_t len, uint64_t iova, int fd, int access, uintptr_t *out,
	struct gv_keys *keys) {
	errno = 0;
	if (!lib.ibv_reg_dmabuf_mr)
		return EOPNOTSUPP;
	return registered(lib.ibv_reg_dmabuf_mr(PD(pd), offset, len, iova, fd, access), out, keys); // NULL and errno
}

_Static_assert(GV_REREG_ERR_INPUT == IBV_REREG_MR_ERR_INPUT && GV_REREG_ERR_DONT_FORK_NEW == IBV_REREG_MR_ERR_DONT_FORK_NEW,
	"results cross as they are");

int gv_rereg_mr(uintptr_t mr, int flags, uintptr_t pd, uintptr_t addr, size_t len, int access, int *err, struct gv_keys *keys) {
	errno = 0;
	int rc = lib.ibv_rereg_mr(MR(mr), flags, PD(pd), (void *)addr, len, access);
	*err = rc ? failed() : 0;
	keys_of(MR(mr), keys);
	return rc;
}

int gv_dereg_mr(uintptr_t mr) { return result(lib.ibv_dereg_mr(MR(mr))); } // 0 or an errno

int gv_alloc_mw(uintptr_t pd, int type, uintptr_t *out) {
	*out = 0;
	if (!PD(pd)->context->ops.alloc_mw)
		return EOPNOTSUPP;
	errno = 0;
	return made(PD(pd)->context->ops.alloc_mw(PD(pd), (enum ibv_mw_type)type), out); // NULL and errno
}

uint32_t gv_mw_rkey(uintptr_t mw) { return MW(mw)->rkey; }

int gv_dealloc_mw(uintptr_t mw) { return result(MW(mw)->context->ops.dealloc_mw(MW(mw))); } // 0 or an errno

int gv_create_comp_channel(uintptr_t ctx, uintptr_t *out) {
	errno = 0;
	return made(lib.ibv_create_comp_channel(CONTEXT(ctx)), out); // NULL and errno
}

int gv_destroy_comp_channel(uintptr_t ch) { return result(lib.ibv_destroy_comp_channel(CHANNEL(ch))); } // 0 or an errno

int gv_create_cq(uintptr_t ctx, int cqe, uint64_t cookie, uintptr_t ch, int vector, uintptr_t *out, int *room) {
	errno = 0;
	// NULL and errno
	int rc = made(lib.ibv_create_cq(CONTEXT(ctx), cqe, (void *)(uintptr_t)cookie, CHANNEL(ch), vector), out);
	if (rc == 0)
		*room = CQ(*out)->cqe;
	return rc;
}

int gv_resize_cq(uintptr_t cq, int cqe, int *room) {
	int rc = lib.ibv_resize_cq(CQ(cq), cqe); // 0 or an errno
	*room = CQ(cq)->cqe;
	return result(rc);
}

// 0 or an errno
int gv_req_notify_cq(uintptr_t cq, int solicited_only) {
	return result(CQ(cq)->context->ops.req_notify_cq(CQ(cq), solicited_only));
}

int gv_destroy_cq(uintptr_t cq) { return result(lib.ibv_destroy_cq(CQ(cq))); } // 0 or an errno

static struct gv_srq_attr from_srq_attr(const struct ibv_srq_attr *a) {
	return (struct gv_srq_attr){.max_wr = a->max_wr, .max_sge = a->max_sge, .srq_limit = a->srq_limit};
}

static struct ibv_srq_attr to_srq_attr(const struct gv_srq_attr *a) {
	return (struct ibv_srq_attr){.max_wr = a->max_wr, .max_sge = a->max_sge, .srq_limit = a->srq_limit};
}

int gv_create_srq(uintptr_t pd, uint64_t cookie, struct gv_srq_attr *attr, uintptr_t *out) {
	struct ibv_srq_init_attr init = {.srq_context = (void *)(uintptr_t)cookie, .attr = to_srq_attr(attr)};
	errno = 0;
	int rc = made(lib.ibv_create_srq(PD(pd), &init), out); // NULL and errno; attr becomes what the queue has
	*attr = from_srq_attr(&init.attr);
	return rc;
}

int gv_modify_srq(uintptr_t srq, const struct gv_srq_attr *attr, int mask) {
	struct ibv_srq_attr a = to_srq_attr(attr);
	return result(lib.ibv_modify_srq(SRQ(srq), &a, mask)); // 0 or an errno
}

int gv_query_srq(uintptr_t srq, struct gv_srq_attr *attr) {
	struct ibv_srq_attr a = {0};
	int rc = lib.ibv_query_srq(SRQ(srq), &a); // 0 or an errno
	*attr = from_srq_attr(&a);
	return result(rc);
}

int gv_destroy_srq(uintptr_t srq) { return result(lib.ibv_destroy_srq(SRQ(srq))); } // 0 or an errno

static struct ibv_ah_attr to_ah_attr(const struct gv_ah_attr *a) {
	struct ibv_ah_attr o = {
		.grh = {.flow_label = a->flow_label, .sgid_index = a->sgid_index, .hop_limit = a->hop_limit, .traffic_class = a->traffic_class},
		.dlid = a->dlid,
		.sl = a->sl,
		.src_path_bits = a->src_path_bits,
		.static_rate = a->static_rate,
		.is_global = a->is_global,
		.port_num = a->port_num,
	};
	memcpy(o.grh.dgid.raw, a->dgid, sizeof a->dgid);
	return o;
}

static struct gv_ah_attr from_ah_attr(const struct ibv_ah_attr *a) {
	struct gv_ah_attr o = {
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

int gv_create_ah(uintptr_t pd, const struct gv_ah_attr *attr, uintptr_t *out) {
	struct ibv_ah_attr a = to_ah_attr(attr);
	errno = 0;
	return made(lib.ibv_create_ah(PD(pd), &a), out); // NULL and errno
}

int gv_destroy_ah(uintptr_t ah) { return result(lib.ibv_destroy_ah(AH(ah))); } // 0 or an errno

static struct gv_qp_cap from_cap(const struct ibv_qp_cap *c) {
	return (struct gv_qp_cap){
		.max_send_wr = c->max_send_wr,
		.max_recv_wr = c->max_recv_wr,
		.max_send_sge = c->max_send_sge,
		.max_recv_sge = c->max_recv_sge,
		.max_inline_data = c->max_inline_data,
	};
}

static struct ibv_qp_cap to_cap(const struct gv_qp_cap *c) {
	return (struct ibv_qp_cap){
		.max_send_wr = c->max_send_wr,
		.max_recv_wr = c->max_recv_wr,
		.max_send_sge = c->max_send_sge,
		.max_recv_sge = c->max_recv_sge,
		.max_inline_data = c->max_inline_data,
	};
}

int gv_create_qp(uintptr_t pd, uint64_t cookie, uintptr_t send_cq, uintptr_t recv_cq, uintptr_t srq, int type, int sig_all,
	struct gv_qp_cap *cap, uintptr_t *out, uint32_t *num) {
	struct ibv_qp_init_attr init = {
		.qp_context = (void *)(uintptr_t)cookie,
		.send_cq = CQ(send_cq),
		.recv_cq = CQ(recv_cq),
		.srq = SRQ(srq),
		.cap = to_cap(cap),
		.qp_type = type,
		.sq_sig_all = sig_all,
	};
	errno = 0;
	int rc = made(lib.ibv_create_qp(PD(pd), &init), out); // NULL and errno; cap becomes what the QP has
	if (rc == 0) {
		*cap = from_cap(&init.cap);
		*num = QP(*out)->qp_num;
	}
	return rc;
}

int gv_create_qp_ex(uintptr_t pd, uint64_t cookie, uintptr_t send_cq, uintptr_t recv_cq, uintptr_t srq, int type, int sig_all,
	struct gv_qp_cap *cap, uintptr_t *out, uint32_t *num) {
	struct ibv_context *c = PD(pd)->context;
	struct verbs_context *v = extended(c, offsetof(struct verbs_context, create_qp_ex));
	struct ibv_qp_init_attr_ex init = {
		.qp_context = (void *)(uintptr_t)cookie,
		.send_cq = CQ(send_cq),
		.recv_cq = CQ(recv_cq),
		.srq = SRQ(srq),
		.cap = to_cap(cap),
		.qp_type = type,
		.sq_sig_all = sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = PD(pd),
		.send_ops_flags = IBV_QP_EX_WITH_ATOMIC_WRITE,
	};
	*out = 0;
	if (!v || !v->create_qp_ex || !lib.ibv_qp_to_qp_ex)
		return EOPNOTSUPP;
	errno = 0;
	int rc = made(v->create_qp_ex(c, &init), out); // NULL and errno; cap becomes what the QP has
	if (rc)
		return rc;
	struct ibv_qp_ex *ex = lib.ibv_qp_to_qp_ex(QP(*out)); // as gv_post_send assumes
	if (ex != (struct ibv_qp_ex *)QP(*out) || !ex->wr_start || !ex->wr_atomic_write || !ex->wr_complete) {
		lib.ibv_destroy_qp(QP(*out));
		*out = 0;
		return EOPNOTSUPP;
	}
	*cap = from_cap(&init.cap);
	*num = QP(*out)->qp_num;
	return 0;
}

int gv_modify_qp(uintptr_t qp, const struct gv_qp_attr *a, int mask) {
	struct ibv_qp_attr c = {
		.qp_state = a->qp_state,
		.cur_qp_state = a->cur_qp_state,
		.path_mtu = a->path_mtu,
		.qkey = a->qkey,
		.rq_psn = a->rq_psn,
		.sq_psn = a->sq_psn,
		.dest_qp_num = a->dest_qp_num,
		.qp_access_flags = a->qp_access_flags,
		.ah_attr = to_ah_attr(&a->ah),
		.pkey_index = a->pkey_index,
		.en_sqd_async_notify = a->en_sqd_async_notify,
		.max_rd_atomic = a->max_rd_atomic,
		.max_dest_rd_atomic = a->max_dest_rd_atomic,
		.min_rnr_timer = a->min_rnr_timer,
		.port_num = a->port_num,
		.timeout = a->timeout,
		.retry_cnt = a->retry_cnt,
		.rnr_retry = a->rnr_retry,
	};
	return result(lib.ibv_modify_qp(QP(qp), &c, mask)); // 0 or an errno
}

int gv_query_qp(uintptr_t qp, struct gv_qp_attr *o) {
	const int all = IBV_QP_STATE | IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY | IBV_QP_AV |
		IBV_QP_PATH_MTU | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_RQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC |
		IBV_QP_MIN_RNR_TIMER | IBV_QP_SQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_CAP | IBV_QP_DEST_QPN;
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr init;
	memset(&a, 0, sizeof a);
	memset(&init, 0, sizeof init);
	int rc = lib.ibv_query_qp(QP(qp), &a, all, &init); // 0 or an errno
	if (rc)
		return result(rc);
	*o = (struct gv_qp_attr){
		.qp_state = a.qp_state,
		.cur_qp_state = a.cur_qp_state,
		.path_mtu = a.path_mtu,
		.qkey = a.qkey,
		.rq_psn = a.rq_psn,
		.sq_psn = a.sq_psn,
		.dest_qp_num = a.dest_qp_num,
		.qp_access_flags = a.qp_access_flags,
		.cap = from_cap(&a.cap),
		.ah = from_ah_attr(&a.ah_attr),
		.pkey_index = a.pkey_index,
		.en_sqd_async_notify = a.en_sqd_async_notify,
		.max_rd_atomic = a.max_rd_atomic,
		.max_dest_rd_atomic = a.max_dest_rd_atomic,
		.min_rnr_timer = a.min_rnr_timer,
		.port_num = a.port_num,
		.timeout = a.timeout,
		.retry_cnt = a.retry_cnt,
		.rnr_retry = a.rnr_retry,
	};
	return 0;
}

int gv_destroy_qp(uintptr_t qp) { return result(lib.ibv_destroy_qp(QP(qp))); } // 0 or an errno

// Same as ibv_bind_mw of verbs.h. Returns 0 or an errno.
int gv_bind_mw(uintptr_t qp, uint64_t id, unsigned flags, uintptr_t mw, uintptr_t mr, uint64_t addr, uint64_t length, unsigned access) {
	struct ibv_mw_bind bind = {
		.wr_id = id,
		.send_flags = flags,
		.bind_info = {.mr = MR(mr), .addr = addr, .length = length, .mw_access_flags = access},
	};
	if (MW(mw)->type != IBV_MW_TYPE_1 || (!mr && (addr || length)))
		return EINVAL;
	if (mr && MW(mw)->pd != MR(mr)->pd)
		return EPERM;
	return result(MW(mw)->context->ops.bind_mw(QP(qp), MW(mw), &bind));
}

int gv_mcast(uintptr_t qp, const uint8_t *raw, uint16_t lid, int attach) {
	union ibv_gid gid;
	memcpy(gid.raw, raw, sizeof gid.raw);
	return result((attach ? lib.ibv_attach_mcast : lib.ibv_detach_mcast)(QP(qp), &gid, lid)); // 0 or an errno
}
