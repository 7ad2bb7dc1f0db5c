// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

// The functions that a program finds here when it looks them up in the libraries.

#include "fake.h"

// Declare the functions, not the macros that select one based on the headers.
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

#define FAKE_SYMBOLS(X) \
	X(ibv_get_device_list) X(ibv_free_device_list) X(ibv_get_device_name) X(ibv_get_device_guid) X(ibv_open_device) \
	X(ibv_close_device) X(ibv_fork_init) X(ibv_query_device) X(ibv_query_port) X(_ibv_query_gid_ex) X(ibv_query_pkey) \
	X(ibv_get_async_event) X(ibv_ack_async_event) X(ibv_get_cq_event) X(ibv_ack_cq_events) X(ibv_alloc_pd) \
	X(ibv_dealloc_pd) X(ibv_reg_mr) X(ibv_reg_mr_iova) X(ibv_reg_mr_iova2) X(ibv_reg_dmabuf_mr) X(ibv_rereg_mr) \
	X(ibv_dereg_mr) X(ibv_create_comp_channel) X(ibv_destroy_comp_channel) X(ibv_create_cq) X(ibv_resize_cq) \
	X(ibv_destroy_cq) X(ibv_create_srq) X(ibv_modify_srq) X(ibv_query_srq) X(ibv_destroy_srq) X(ibv_create_ah) \
	X(ibv_destroy_ah) X(ibv_create_qp) X(ibv_qp_to_qp_ex) X(ibv_modify_qp) X(ibv_query_qp) X(ibv_destroy_qp) X(ibv_attach_mcast) \
	X(ibv_detach_mcast) \
	X(rdma_create_event_channel) X(rdma_destroy_event_channel) X(rdma_create_id) X(rdma_destroy_id) X(rdma_bind_addr) \
	X(rdma_resolve_addr) X(rdma_resolve_route) X(rdma_connect) X(rdma_listen) X(rdma_accept) X(rdma_reject) \
	X(rdma_establish) X(rdma_disconnect) X(rdma_init_qp_attr) X(rdma_get_cm_event) X(rdma_ack_cm_event) X(rdma_set_option) \
	X(rdma_join_multicast) X(rdma_leave_multicast)

uintptr_t fake_symbol(const char *name) {
#define X(f) \
	if (!strcmp(name, #f)) \
		return (uintptr_t)f;
	FAKE_SYMBOLS(X)
#undef X
	return 0;
}
