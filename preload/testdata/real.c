// SPDX-License-Identifier: BSD-3-Clause

// Stands in for libibverbs in the tests of goverbs run --keep-real, with one kernel device, real0.
// A function records its name in real_called, and returns an object of that device, or real_result.
#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdlib.h>

#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

const char *real_called;
int real_lists; // not yet passed to ibv_free_device_list
int real_result = 77;

static struct ibv_device device = {.name = "real0"};
static struct ibv_context context = {.device = &device};
static struct ibv_pd pd = {.context = &context};
static struct ibv_mr mr = {.context = &context};
static struct ibv_dm dm = {.context = &context};
static struct ibv_comp_channel channel = {.context = &context};
static struct ibv_cq cq = {.context = &context};
static struct ibv_srq srq = {.context = &context};
static struct ibv_qp qp = {.context = &context};
static struct ibv_ah ah = {.context = &context};

#pragma GCC diagnostic ignored "-Wunused-parameter"
#define F(type, name, args, result) type name args { real_called = #name; return result; }
#define VOID(name, args) void name args { real_called = #name; }

struct ibv_device **ibv_get_device_list(int *num)
{
	struct ibv_device **list = calloc(2, sizeof *list);
	real_called = "ibv_get_device_list";
	real_lists++;
	list[0] = &device;
	*num = 1;
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	real_called = "ibv_free_device_list";
	real_lists--;
	free(list);
}

F(const char *, ibv_get_device_name, (struct ibv_device *d), d->name)
F(int, ibv_get_device_index, (struct ibv_device *d), real_result)
F(__be64, ibv_get_device_guid, (struct ibv_device *d), real_result)
F(struct ibv_context *, ibv_open_device, (struct ibv_device *d), &context)
F(int, ibv_close_device, (struct ibv_context *c), real_result)
F(struct ibv_context *, ibv_import_device, (int fd), &context)
F(int, ibv_fork_init, (void), real_result)
F(enum ibv_fork_status, ibv_is_fork_initialized, (void), IBV_FORK_ENABLED)
F(int, ibv_query_device, (struct ibv_context *c, struct ibv_device_attr *a), real_result)
F(int, ibv_query_port, (struct ibv_context *c, uint8_t port, struct _compat_ibv_port_attr *a), real_result)
F(int, _ibv_query_gid_ex, (struct ibv_context *c, uint32_t port, uint32_t i, struct ibv_gid_entry *e, uint32_t flags, size_t n), real_result)
F(ssize_t, _ibv_query_gid_table, (struct ibv_context *c, struct ibv_gid_entry *e, size_t max, uint32_t flags, size_t n), real_result)
F(int, ibv_query_gid, (struct ibv_context *c, uint8_t port, int i, union ibv_gid *g), real_result)
F(int, ibv_query_gid_type, (struct ibv_context *c, uint8_t port, unsigned int i, unsigned int *type), real_result)
F(int, ibv_query_pkey, (struct ibv_context *c, uint8_t port, int i, __be16 *k), real_result)
F(int, ibv_get_pkey_index, (struct ibv_context *c, uint8_t port, __be16 k), real_result)
F(int, ibv_get_async_event, (struct ibv_context *c, struct ibv_async_event *e), real_result)
VOID(ibv_ack_async_event, (struct ibv_async_event *e))
F(struct ibv_pd *, ibv_alloc_pd, (struct ibv_context *c), &pd)
F(int, ibv_dealloc_pd, (struct ibv_pd *p), real_result)
F(struct ibv_pd *, ibv_import_pd, (struct ibv_context *c, uint32_t h), &pd)
VOID(ibv_unimport_pd, (struct ibv_pd *p))
F(struct ibv_mr *, ibv_reg_mr, (struct ibv_pd *p, void *at, size_t n, int access), &mr)
F(struct ibv_mr *, ibv_reg_mr_iova, (struct ibv_pd *p, void *at, size_t n, uint64_t iova, int access), &mr)
F(struct ibv_mr *, ibv_reg_mr_iova2, (struct ibv_pd *p, void *at, size_t n, uint64_t iova, unsigned int access), &mr)
F(struct ibv_mr *, ibv_reg_dmabuf_mr, (struct ibv_pd *p, uint64_t off, size_t n, uint64_t iova, int fd, int access), &mr)
F(int, ibv_rereg_mr, (struct ibv_mr *m, int flags, struct ibv_pd *p, void *at, size_t n, int access), real_result)
F(int, ibv_dereg_mr, (struct ibv_mr *m), real_result)
F(struct ibv_mr *, ibv_import_mr, (struct ibv_pd *p, uint32_t h), &mr)
VOID(ibv_unimport_mr, (struct ibv_mr *m))
F(struct ibv_dm *, ibv_import_dm, (struct ibv_context *c, uint32_t h), &dm)
VOID(ibv_unimport_dm, (struct ibv_dm *d))
F(struct ibv_comp_channel *, ibv_create_comp_channel, (struct ibv_context *c), &channel)
F(int, ibv_destroy_comp_channel, (struct ibv_comp_channel *c), real_result)
F(struct ibv_cq *, ibv_create_cq, (struct ibv_context *c, int cqe, void *of, struct ibv_comp_channel *ch, int vector), &cq)
F(int, ibv_resize_cq, (struct ibv_cq *c, int cqe), real_result)
F(int, ibv_destroy_cq, (struct ibv_cq *c), real_result)
F(int, ibv_get_cq_event, (struct ibv_comp_channel *c, struct ibv_cq **q, void **of), real_result)
VOID(ibv_ack_cq_events, (struct ibv_cq *c, unsigned int n))
F(struct ibv_srq *, ibv_create_srq, (struct ibv_pd *p, struct ibv_srq_init_attr *a), &srq)
F(int, ibv_modify_srq, (struct ibv_srq *s, struct ibv_srq_attr *a, int mask), real_result)
F(int, ibv_query_srq, (struct ibv_srq *s, struct ibv_srq_attr *a), real_result)
F(int, ibv_destroy_srq, (struct ibv_srq *s), real_result)
F(struct ibv_qp *, ibv_create_qp, (struct ibv_pd *p, struct ibv_qp_init_attr *a), &qp)
F(struct ibv_qp_ex *, ibv_qp_to_qp_ex, (struct ibv_qp *q), (struct ibv_qp_ex *)q)
F(int, ibv_modify_qp, (struct ibv_qp *q, struct ibv_qp_attr *a, int mask), real_result)
F(int, ibv_query_qp, (struct ibv_qp *q, struct ibv_qp_attr *a, int mask, struct ibv_qp_init_attr *init), real_result)
F(int, ibv_query_qp_data_in_order, (struct ibv_qp *q, enum ibv_wr_opcode op, uint32_t flags), real_result)
F(int, ibv_destroy_qp, (struct ibv_qp *q), real_result)
F(int, ibv_query_ece, (struct ibv_qp *q, struct ibv_ece *e), real_result)
F(int, ibv_set_ece, (struct ibv_qp *q, struct ibv_ece *e), real_result)
F(struct ibv_ah *, ibv_create_ah, (struct ibv_pd *p, struct ibv_ah_attr *a), &ah)
F(struct ibv_ah *, ibv_create_ah_from_wc, (struct ibv_pd *p, struct ibv_wc *wc, struct ibv_grh *g, uint8_t port), &ah)
F(int, ibv_init_ah_from_wc, (struct ibv_context *c, uint8_t port, struct ibv_wc *wc, struct ibv_grh *g, struct ibv_ah_attr *a), real_result)
F(int, ibv_destroy_ah, (struct ibv_ah *a), real_result)
F(int, ibv_resolve_eth_l2_from_gid, (struct ibv_context *c, struct ibv_ah_attr *a, uint8_t mac[6], uint16_t *vid), real_result)
F(int, ibv_attach_mcast, (struct ibv_qp *q, const union ibv_gid *g, uint16_t lid), real_result)
F(int, ibv_detach_mcast, (struct ibv_qp *q, const union ibv_gid *g, uint16_t lid), real_result)
