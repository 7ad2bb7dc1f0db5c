// SPDX-License-Identifier: BSD-3-Clause

// Protection domains and memory regions.

#include "shim.h"

#include <sys/mman.h>
#include <unistd.h>

// MADV_POPULATE_READ and _WRITE of Linux 5.14, missing from older headers.
#define POPULATE_READ 22
#define POPULATE_WRITE 23

// present faults in the pages of a region, as the kernel does when it pins them. It returns EFAULT
// if the program has no such memory, or cannot write memory that the device is to write. On a
// kernel that lacks the advice, it only checks whether the memory is mapped.
static int present(void *addr, size_t length, unsigned int access)
{
	const unsigned int writes = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
	int advice = access & writes ? POPULATE_WRITE : POPULATE_READ;
	uintptr_t at = (uintptr_t)addr, page = at & -(uintptr_t)sysconf(_SC_PAGESIZE);
	if (!addr || at + length < at) // go.reg_mr reports the error
		return 0;
	char *from = (char *)page;
	size_t size = at + length - page;
	int before = errno;
	int missing = madvise(from, size, advice);
	if (missing && errno == EINVAL && madvise(from, 0, advice)) // not supported by the kernel
		missing = msync(from, size, MS_ASYNC);
	errno = before;
	return missing ? EFAULT : 0;
}

PUBLIC struct ibv_pd *ibv_alloc_pd(struct ibv_context *c)
{
	REAL(c, ibv_alloc_pd, c);
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
	REAL(pd->context, ibv_dealloc_pd, pd);
	int err = go.close(pd->handle);
	if (!err)
		free(pd);
	return err;
}

PUBLIC struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
{
	REAL(pd->context, ibv_reg_mr_iova2, pd, addr, length, iova, access);
	struct mr *m = calloc(1, sizeof *m);
	if (!m)
		return NULL;
	struct ibv_mr *mr = &m->m;
	int err = present(addr, length, access);
	if (!err)
		err = go.reg_mr(pd->handle, addr, length, iova, access, &mr->handle, &mr->lkey, &mr->rkey);
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
	REAL(pd->context, ibv_reg_mr_iova, pd, addr, length, iova, access);
	return ibv_reg_mr_iova2(pd, addr, length, iova, access);
}

PUBLIC struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	REAL(pd->context, ibv_reg_mr, pd, addr, length, access);
	return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, access);
}

PUBLIC int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length, int access)
{
	REAL(mr->context, ibv_rereg_mr, mr, flags, pd, addr, length, access);
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
	REAL(mr->context, ibv_dereg_mr, mr);
	region_remove(m);
	int err = go.close(mr->handle);
	if (err)
		region_add(m);
	else
		free(m);
	return err;
}
