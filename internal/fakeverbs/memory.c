// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

#include "fake.h"

#define KNOWN_ACCESS \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | \
		IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB | \
		IBV_ACCESS_OPTIONAL_RANGE)

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context) {
	int err = begin(ibv_alloc_pd, P(context));
	struct ctx *c = (struct ctx *)obj_get("ibv_alloc_pd", K_CONTEXT, context);
	struct pd *p;

	err = err ? err : c ? 0 : EINVAL;
	if (err)
		return end_ptr(NULL, err);
	p = obj_new(K_PD, sizeof(*p), offsetof(struct pd, pub), sizeof(p->pub));
	obj_up(&p->o, 0, &c->o);
	p->pub.context = context;
	p->pub.handle = p->o.id;
	return end_ptr(&p->pub, 0);
}

int ibv_dealloc_pd(struct ibv_pd *pd) {
	int err = begin(ibv_dealloc_pd, P(pd));
	struct obj *o = obj_get("ibv_dealloc_pd", K_PD, pd);

	err = err ? err : o ? obj_busy("ibv_dealloc_pd", o) : EINVAL;
	if (!err)
		obj_kill(o);
	return end_errno(err);
}

// Keys of regions are never reused, as if the device counted.
static uint32_t next_key = 0x1000;

static struct ibv_mr *reg(const char *fn, int err, struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int fd,
	uint64_t offset, unsigned access) {
	struct obj *o = obj_get(fn, K_PD, pd);
	struct mr *m;

	if (!err && !o)
		err = EINVAL;
	if (!err && (access & ~KNOWN_ACCESS))
		err = EINVAL;
	if (!err && (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) && !(access & IBV_ACCESS_LOCAL_WRITE))
		err = EINVAL;
	if (!err && (access & IBV_ACCESS_ON_DEMAND) &&
		!(ctx_of(pd->context)->dev->attr.odp_caps.general_caps & IBV_ODP_SUPPORT))
		err = EOPNOTSUPP;
	if (!err && fd >= 0 && ctx_of(pd->context)->dev->iwarp)
		err = EOPNOTSUPP;
	if (err)
		return end_ptr(NULL, err);
	m = obj_new(K_MR, sizeof(*m), offsetof(struct mr, pub), sizeof(m->pub));
	obj_up(&m->o, 0, o);
	m->access = access;
	m->iova = iova;
	m->fd = fd;
	m->offset = offset;
	m->pub = (struct ibv_mr){pd->context, pd, addr, length, m->o.id, next_key, 0};
	m->pub.rkey = next_key + 1; // different, so that confusing the two is noticed
	next_key += 0x100;
	return end_ptr(&m->pub, 0);
}

#undef ibv_reg_mr
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access) {
	int err = begin(ibv_reg_mr, P(pd), P(addr), length, access);

	return reg("ibv_reg_mr", err, pd, addr, length, P(addr), -1, 0, access);
}

#undef ibv_reg_mr_iova
struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access) {
	int err = begin(ibv_reg_mr_iova, P(pd), P(addr), length, iova, access);

	return reg("ibv_reg_mr_iova", err, pd, addr, length, iova, -1, 0, access);
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access) {
	int err = begin(ibv_reg_mr_iova2, P(pd), P(addr), length, iova, access);

	return reg("ibv_reg_mr_iova2", err, pd, addr, length, iova, -1, 0, access);
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access) {
	int err = begin(ibv_reg_dmabuf_mr, P(pd), offset, length, iova, fd, access);

	return reg("ibv_reg_dmabuf_mr", err, pd, NULL, length, iova, fd, offset, access);
}

// The result tells what happened to the region, errno why.
int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length, int access) {
	int err = begin(ibv_rereg_mr, P(mr), flags, P(pd), P(addr), length, access);
	struct mr *m = (struct mr *)obj_get("ibv_rereg_mr", K_MR, mr);
	struct obj *to = NULL;

	if (!m || flags == 0 || (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED) ||
		((flags & IBV_REREG_MR_CHANGE_TRANSLATION) && (!addr || !length)) ||
		((flags & IBV_REREG_MR_CHANGE_PD) && !(to = obj_get("ibv_rereg_mr", K_PD, pd)))) {
		end_rc(err ? err : EINVAL);
		return IBV_REREG_MR_ERR_INPUT;
	}
	if (!err && ctx_of(mr->context)->dev->iwarp)
		err = EOPNOTSUPP;
	if (err) {
		end_rc(err);
		return IBV_REREG_MR_ERR_CMD;
	}
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		m->pub.addr = addr;
		m->pub.length = length;
		m->iova = P(addr);
	}
	if (flags & IBV_REREG_MR_CHANGE_PD) {
		obj_up(&m->o, 0, to);
		m->pub.pd = pd;
	}
	if (flags & IBV_REREG_MR_CHANGE_ACCESS)
		m->access = access;
	m->pub.lkey += 0x40; // keys may change, and the program must check
	m->pub.rkey += 0x40;
	return end_errno(0);
}

int ibv_dereg_mr(struct ibv_mr *mr) {
	int err = begin(ibv_dereg_mr, P(mr));
	struct obj *o = obj_get("ibv_dereg_mr", K_MR, mr);

	err = err ? err : o ? obj_busy("ibv_dereg_mr", o) : EINVAL;
	if (!err)
		obj_kill(o);
	return end_errno(err);
}

int fake_mr_info(uint32_t lkey, struct fake_call *out) {
	int found = 0;

	pthread_mutex_lock(&fake_mu);
	for (struct obj *o = obj_next(K_MR, NULL); o && !found; o = obj_next(K_MR, o)) {
		struct mr *m = (struct mr *)o;

		if (m->pub.lkey != lkey)
			continue;
		*out = (struct fake_call){
			.args = {P(m->pub.addr), m->pub.length, m->iova, m->access, m->fd, m->offset, m->pub.rkey, m->o.up[0]->id}};
		found = 1;
	}
	pthread_mutex_unlock(&fake_mu);
	return found;
}

struct ibv_mw *fake_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type) {
	int err = begin(ibv_alloc_mw, P(pd), type);
	struct obj *o = obj_get("ibv_alloc_mw", K_PD, pd);
	struct mw *w;

	err = err ? err : o ? 0 : EINVAL;
	if (!err && ctx_of(pd->context)->dev->iwarp)
		err = EOPNOTSUPP;
	if (err)
		return end_ptr(NULL, err);
	w = obj_new(K_MW, sizeof(*w), offsetof(struct mw, pub), sizeof(w->pub));
	obj_up(&w->o, 0, o);
	w->pub = (struct ibv_mw){pd->context, pd, next_key, w->o.id, type};
	w->key = w->pub.rkey;
	next_key += 0x100;
	return end_ptr(&w->pub, 0);
}

int fake_dealloc_mw(struct ibv_mw *mw) {
	int err = begin(ibv_dealloc_mw, P(mw));
	struct obj *o = obj_get("ibv_dealloc_mw", K_MW, mw);

	err = err ? err : o ? 0 : EINVAL;
	if (!err)
		obj_kill(o);
	return end_errno(err);
}

int fake_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags, struct ibv_sge *sge, uint32_t n) {
	int err = begin(ibv_advise_mr, P(pd), advice, flags, n, n > 0 ? sge[0].addr : 0, n > 0 ? sge[0].length : 0,
		n > 0 ? sge[0].lkey : 0);

	err = err ? err : obj_get("ibv_advise_mr", K_PD, pd) ? 0 : EINVAL;
	return end_errno(err);
}

// Address handles.

static bool has_gid(const struct dev *d, uint32_t index) {
	for (int i = 0; i < d->gids; i++)
		if (d->gid[i].index == index)
			return true;
	return false;
}

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr) {
	int err = begin(ibv_create_ah, P(pd), attr->port_num, attr->is_global, attr->dlid, attr->grh.sgid_index);
	struct obj *o = obj_get("ibv_create_ah", K_PD, pd);
	struct ah *a;

	err = err ? err : o ? 0 : EINVAL;
	if (!err && ctx_of(pd->context)->dev->iwarp)
		err = EOPNOTSUPP;
	if (!err && (attr->port_num < 1 || attr->port_num > ctx_of(pd->context)->dev->attr.orig_attr.phys_port_cnt))
		err = EINVAL;
	if (!err && !attr->is_global && ctx_of(pd->context)->dev->port[attr->port_num - 1].link_layer == IBV_LINK_LAYER_ETHERNET)
		err = EINVAL; // RoCE has no LIDs
	if (!err && attr->is_global && !has_gid(ctx_of(pd->context)->dev, attr->grh.sgid_index))
		err = EINVAL;
	if (err)
		return end_ptr(NULL, err);
	a = obj_new(K_AH, sizeof(*a), offsetof(struct ah, pub), sizeof(a->pub));
	obj_up(&a->o, 0, o);
	a->attr = *attr;
	a->pub = (struct ibv_ah){pd->context, pd, a->o.id};
	return end_ptr(&a->pub, 0);
}

static int ah_from_wc(struct ibv_context *context, uint8_t port, struct ibv_wc *wc, struct ibv_grh *grh,
	struct ibv_ah_attr *attr) {
	struct ctx *c = ctx_of(context);
	uint32_t flow = be32toh(grh->version_tclass_flow);

	memset(attr, 0, sizeof(*attr));
	attr->dlid = wc->slid;
	attr->sl = wc->sl;
	attr->src_path_bits = wc->dlid_path_bits;
	attr->port_num = port;
	if (!(wc->wc_flags & IBV_WC_GRH))
		return 0;
	attr->is_global = 1;
	attr->grh.dgid = grh->sgid;
	attr->grh.flow_label = flow & 0xfffff;
	attr->grh.traffic_class = flow >> 20 & 0xff;
	attr->grh.hop_limit = 0xff;
	for (int i = 0; i < c->dev->gids; i++)
		if (!memcmp(c->dev->gid[i].raw, grh->dgid.raw, 16)) {
			attr->grh.sgid_index = c->dev->gid[i].index;
			return 0;
		}
	return EINVAL;
}

int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port, struct ibv_wc *wc, struct ibv_grh *grh,
	struct ibv_ah_attr *attr) {
	int err = begin(ibv_init_ah_from_wc, P(context), port);

	if (!err && !obj_get("ibv_init_ah_from_wc", K_CONTEXT, context))
		err = EINVAL;
	err = err ? err : ah_from_wc(context, port, wc, grh, attr);
	return end_rc(err);
}

struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh, uint8_t port) {
	int err = begin(ibv_create_ah_from_wc, P(pd), port);
	struct ibv_ah_attr attr;

	if (!err && !obj_get("ibv_create_ah_from_wc", K_PD, pd))
		err = EINVAL;
	err = err ? err : ah_from_wc(pd->context, port, wc, grh, &attr);
	if (end_rc(err))
		return NULL;
	return ibv_create_ah(pd, &attr);
}

int ibv_destroy_ah(struct ibv_ah *ah) {
	int err = begin(ibv_destroy_ah, P(ah));
	struct obj *o = obj_get("ibv_destroy_ah", K_AH, ah);

	err = err ? err : o ? 0 : EINVAL;
	if (!err)
		obj_kill(o);
	return end_errno(err);
}

int fake_ah_info(uint32_t id, struct ibv_ah_attr *attr) {
	struct obj *o;

	pthread_mutex_lock(&fake_mu);
	o = obj_by_id(K_AH, id);
	if (o)
		*attr = ((struct ah *)o)->attr;
	pthread_mutex_unlock(&fake_mu);
	return o != NULL;
}
