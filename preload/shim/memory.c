// SPDX-License-Identifier: BSD-3-Clause

// Protection domains and memory regions.

#include "shim.h"

PUBLIC struct ibv_pd *ibv_alloc_pd(struct ibv_context *c)
{
	struct ibv_pd *pd = calloc(1, sizeof *pd);
	if (!pd)
		return NULL;
	int err = go.alloc_pd(handle_of(c), &pd->handle);
	if (err)
		return nothing(pd, err);
	pd->context = c;
	return pd;
}

PUBLIC int ibv_dealloc_pd(struct ibv_pd *pd)
{
	int err = go.close(pd->handle);
	if (!err)
		free(pd);
	return err;
}

PUBLIC struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
{
	struct mr *m = calloc(1, sizeof *m);
	if (!m)
		return NULL;
	struct ibv_mr *mr = &m->m;
	int err = go.reg_mr(pd->handle, addr, length, iova, access, &mr->handle, &mr->lkey, &mr->rkey);
	if (err)
		return nothing(m, err);
	mr->context = pd->context;
	mr->pd = pd;
	mr->addr = addr;
	mr->length = length;
	region_add(m);
	return mr;
}

PUBLIC struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, iova, access);
}

PUBLIC struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, access);
}

PUBLIC int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length, int access)
{
	if (flags & IBV_REREG_MR_CHANGE_PD && !pd) {
		errno = EINVAL;
		return IBV_REREG_MR_ERR_INPUT;
	}
	int err = go.rereg_mr(mr->handle, flags, flags & IBV_REREG_MR_CHANGE_PD ? pd->handle : 0, addr, length, access, &mr->lkey, &mr->rkey);
	if (err) {
		errno = err;
		return err == EINVAL ? IBV_REREG_MR_ERR_INPUT : IBV_REREG_MR_ERR_CMD;
	}
	if (flags & IBV_REREG_MR_CHANGE_PD)
		mr->pd = pd;
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		mr->addr = addr;
		mr->length = length;
	}
	return 0;
}

PUBLIC int ibv_dereg_mr(struct ibv_mr *mr)
{
	struct mr *m = (struct mr *)mr;
	region_remove(m);
	int err = go.close(mr->handle);
	if (err)
		region_add(m);
	else
		free(m);
	return err;
}
