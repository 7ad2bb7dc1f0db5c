// SPDX-License-Identifier: BSD-3-Clause

// Functions that the header's inline functions call through a context: the data path, and newer
// verbs.

#include "shim.h"

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	int got = 0, err = go.poll(((struct cq *)cq)->h, n, wc, &got);
	return err ? -err : got;
}

static int req_notify_cq(struct ibv_cq *cq, int solicited) { return go.req_notify(((struct cq *)cq)->h, solicited); }

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	return go.post_send(((struct qp *)qp)->h, wr, bad);
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	return go.post_recv(((struct qp *)qp)->h, wr, bad);
}

static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	return go.post_srq_recv(((struct srq *)srq)->h, wr, bad);
}

static struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct mw *w = calloc(1, sizeof *w);
	if (!w)
		return NULL;
	int err = go.alloc_mw(pd->handle, type, &w->h, &w->w.rkey);
	if (err)
		return nothing(w, err);
	w->w.context = pd->context;
	w->w.pd = pd;
	w->w.handle = w->h;
	w->w.type = type;
	return &w->w;
}

static int bind_mw(struct ibv_qp *qp, struct ibv_mw *w, struct ibv_mw_bind *bind)
{
	if (bind->bind_info.mr && bind->bind_info.mr->pd != w->pd)
		return EPERM;
	return go.bind_mw(((struct qp *)qp)->h, ((struct mw *)w)->h, bind->bind_info.mr ? bind->bind_info.mr->handle : 0, bind, &w->rkey);
}

static int dealloc_mw(struct ibv_mw *w)
{
	int err = go.close(((struct mw *)w)->h);
	if (!err)
		free(w);
	return err;
}

static int query_port(struct ibv_context *c, uint8_t port, struct ibv_port_attr *attr, size_t size)
{
	struct ibv_port_attr a = {0};
	int err = go.query_port(handle_of(c), port, &a);
	if (!err) {
		memset(attr, 0, size);
		memcpy(attr, &a, size < sizeof a ? size : sizeof a);
	}
	return err;
}

static int query_device_ex(struct ibv_context *c, const struct ibv_query_device_ex_input *input, struct ibv_device_attr_ex *attr, size_t size)
{
	if (input && input->comp_mask)
		return EINVAL;
	if (size < sizeof attr->orig_attr)
		return EINVAL;
	memset(attr, 0, size);
	int err = ibv_query_device(c, &attr->orig_attr);
	if (!err && size >= offsetof(struct ibv_device_attr_ex, phys_port_cnt_ex) + sizeof attr->phys_port_cnt_ex)
		attr->phys_port_cnt_ex = attr->orig_attr.phys_port_cnt;
	return err;
}

static struct ibv_qp *create_qp_ex(UNUSED struct ibv_context *c, struct ibv_qp_init_attr_ex *a)
{
	if (a->comp_mask & ~(uint32_t)IBV_QP_INIT_ATTR_PD) {
		refused("ibv_create_qp_ex with more than a domain");
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (!(a->comp_mask & IBV_QP_INIT_ATTR_PD)) {
		errno = EINVAL;
		return NULL;
	}
	return ibv_create_qp(a->pd, (struct ibv_qp_init_attr *)a); // starts with the same fields
}

static struct ibv_srq *create_srq_ex(UNUSED struct ibv_context *c, struct ibv_srq_init_attr_ex *a)
{
	uint32_t known = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
	if (a->comp_mask & ~known || (a->comp_mask & IBV_SRQ_INIT_ATTR_TYPE && a->srq_type != IBV_SRQT_BASIC)) {
		refused("ibv_create_srq_ex of another kind");
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (!(a->comp_mask & IBV_SRQ_INIT_ATTR_PD)) {
		errno = EINVAL;
		return NULL;
	}
	return ibv_create_srq(a->pd, (struct ibv_srq_init_attr *)a); // starts with the same fields
}

// Unsupported functions, which behave like the library's own for a driver without them.
#define NULL_OF(type, name, args) \
	static type *name args { refused("ibv_" #name); errno = EOPNOTSUPP; return NULL; }
#define ERR_OF(name, args) \
	static int name args { refused("ibv_" #name); return EOPNOTSUPP; }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
ERR_OF(advise_mr, (struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags, struct ibv_sge *sges, uint32_t n))
NULL_OF(struct ibv_mr, alloc_null_mr, (struct ibv_pd *pd))
ERR_OF(read_counters, (struct ibv_counters *c, uint64_t *values, uint32_t n, uint32_t flags))
ERR_OF(attach_counters_point_flow, (struct ibv_counters *c, struct ibv_counter_attach_attr *a, struct ibv_flow *f))
NULL_OF(struct ibv_counters, create_counters, (struct ibv_context *c, struct ibv_counters_init_attr *a))
ERR_OF(destroy_counters, (struct ibv_counters *c))
NULL_OF(struct ibv_mr, reg_dm_mr, (struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset, size_t length, unsigned int access))
NULL_OF(struct ibv_dm, alloc_dm, (struct ibv_context *c, struct ibv_alloc_dm_attr *a))
ERR_OF(free_dm, (struct ibv_dm *dm))
ERR_OF(modify_flow_action_esp, (struct ibv_flow_action *f, struct ibv_flow_action_esp_attr *a))
ERR_OF(destroy_flow_action, (struct ibv_flow_action *f))
NULL_OF(struct ibv_flow_action, create_flow_action_esp, (struct ibv_context *c, struct ibv_flow_action_esp_attr *a))
ERR_OF(modify_qp_rate_limit, (struct ibv_qp *qp, struct ibv_qp_rate_limit_attr *a))
NULL_OF(struct ibv_pd, alloc_parent_domain, (struct ibv_context *c, struct ibv_parent_domain_init_attr *a))
ERR_OF(dealloc_td, (struct ibv_td *td))
NULL_OF(struct ibv_td, alloc_td, (struct ibv_context *c, struct ibv_td_init_attr *a))
ERR_OF(modify_cq, (struct ibv_cq *cq, struct ibv_modify_cq_attr *a))
ERR_OF(post_srq_ops, (struct ibv_srq *srq, struct ibv_ops_wr *op, struct ibv_ops_wr **bad))
ERR_OF(destroy_rwq_ind_table, (struct ibv_rwq_ind_table *t))
NULL_OF(struct ibv_rwq_ind_table, create_rwq_ind_table, (struct ibv_context *c, struct ibv_rwq_ind_table_init_attr *a))
ERR_OF(destroy_wq, (struct ibv_wq *wq))
ERR_OF(modify_wq, (struct ibv_wq *wq, struct ibv_wq_attr *a))
NULL_OF(struct ibv_wq, create_wq, (struct ibv_context *c, struct ibv_wq_init_attr *a))
ERR_OF(query_rt_values, (struct ibv_context *c, struct ibv_values_ex *values))
NULL_OF(struct ibv_cq_ex, create_cq_ex, (struct ibv_context *c, struct ibv_cq_init_attr_ex *a))
ERR_OF(destroy_flow, (struct ibv_flow *f))
NULL_OF(struct ibv_flow, create_flow, (struct ibv_qp *qp, struct ibv_flow_attr *a))
NULL_OF(struct ibv_qp, open_qp, (struct ibv_context *c, struct ibv_qp_open_attr *a))
ERR_OF(get_srq_num, (struct ibv_srq *srq, uint32_t *num))
NULL_OF(struct ibv_xrcd, open_xrcd, (struct ibv_context *c, struct ibv_xrcd_init_attr *a))
ERR_OF(close_xrcd, (struct ibv_xrcd *x))
#pragma GCC diagnostic pop

void context_ops(struct verbs_context *v)
{
	*v = (struct verbs_context){
		.query_port = query_port,
		.advise_mr = advise_mr,
		.alloc_null_mr = alloc_null_mr,
		.read_counters = read_counters,
		.attach_counters_point_flow = attach_counters_point_flow,
		.create_counters = create_counters,
		.destroy_counters = destroy_counters,
		.reg_dm_mr = reg_dm_mr,
		.alloc_dm = alloc_dm,
		.free_dm = free_dm,
		.modify_flow_action_esp = modify_flow_action_esp,
		.destroy_flow_action = destroy_flow_action,
		.create_flow_action_esp = create_flow_action_esp,
		.modify_qp_rate_limit = modify_qp_rate_limit,
		.alloc_parent_domain = alloc_parent_domain,
		.dealloc_td = dealloc_td,
		.alloc_td = alloc_td,
		.modify_cq = modify_cq,
		.post_srq_ops = post_srq_ops,
		.destroy_rwq_ind_table = destroy_rwq_ind_table,
		.create_rwq_ind_table = create_rwq_ind_table,
		.destroy_wq = destroy_wq,
		.modify_wq = modify_wq,
		.create_wq = create_wq,
		.query_rt_values = query_rt_values,
		.create_cq_ex = create_cq_ex,
		.query_device_ex = query_device_ex,
		.ibv_destroy_flow = destroy_flow,
		.ibv_create_flow = create_flow,
		.open_qp = open_qp,
		.create_qp_ex = create_qp_ex,
		.get_srq_num = get_srq_num,
		.create_srq_ex = create_srq_ex,
		.open_xrcd = open_xrcd,
		.close_xrcd = close_xrcd,
		.sz = sizeof *v,
		.context.abi_compat = __VERBS_ABI_IS_EXTENDED,
		.context.ops = {
			.alloc_mw = alloc_mw,
			.bind_mw = bind_mw,
			.dealloc_mw = dealloc_mw,
			.poll_cq = poll_cq,
			.req_notify_cq = req_notify_cq,
			.post_srq_recv = post_srq_recv,
			.post_send = post_send,
			.post_recv = post_recv,
		},
	};
}
