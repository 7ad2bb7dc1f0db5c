// SPDX-License-Identifier: BSD-3-Clause

// The functions that cgo_verbs.go calls: libibverbs in terms of numbers and flat structures, which
// have the layout of the records of package internal/ibverbs. Objects are numbers, 0 = none,
// because Go would check the memory behind pointers, which costs as much as the call itself.
// libibverbs has three conventions for errors; these functions have one: they return 0 or a
// positive errno, and GV_NO_ERRNO if the library set none.

#ifndef GOVERBS_CGO_VERBS_H
#define GOVERBS_CGO_VERBS_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define GV_NO_ERRNO 4096 // larger than any errno

// The library's functions, whose addresses must be set before any other call. gv_function returns
// the name of function i, NULL past the end.
const char *gv_function(int i, int *optional);
void gv_set_function(int i, uintptr_t address);

// gv_wr is a send request without pointers: the fields that all requests have, and the index of its
// gv_ext.
struct gv_wr {
	uint64_t id, remote_addr;
	uint32_t rkey;
	uint32_t imm; // host order; the key to invalidate for the opcodes *_INV
	uint32_t op;  // opcode, flags and number of elements
	uint32_t ext;
};

// Positions of the flags and the number of elements in gv_wr.op.
#define GV_FLAGS_SHIFT 8
#define GV_SGES_SHIFT 16

// gv_ext holds the fields that few requests need; see ibverbs.Ext.
struct gv_ext {
	uint64_t p, q, a, b;
	uint32_t c, d;
};

// gv_recv is a receive request without pointers.
struct gv_recv {
	uint64_t id;
	uint32_t num_sge, unused;
};

// gv_sge has the layout of struct ibv_sge.
struct gv_sge {
	uint64_t addr;
	uint32_t length, lkey;
};

// gv_wc is a completion, written directly into the caller's list.
struct gv_wc {
	uint64_t id;
	uint8_t status, opcode, flags;
	uint32_t byte_len;
	uint32_t imm;
	uint64_t imm64;
	uint32_t invalidated_rkey, vendor_err, qp_num, src_qp;
	uint16_t pkey_index, slid;
	uint8_t sl, dlid_path_bits;
	uint64_t posted;
};

// The posting functions return the number of accepted requests in the lower half. The upper half is
// 0, or the reason why the rest were not accepted: an errno or GV_NO_ERRNO. GV_BROKEN is set if the
// library did not report how many it accepted. If held is not NULL, 0 is stored there before the
// function returns.
#define GV_BROKEN (1u << 31)
uint64_t gv_post_send(uintptr_t qp, const struct gv_wr *wrs, const struct gv_sge *sges, const struct gv_ext *ext, int n, uint32_t *held);
uint64_t gv_post_recv(uintptr_t qp, const struct gv_recv *wrs, const struct gv_sge *sges, int n, uint32_t *held);
uint64_t gv_post_srq_recv(uintptr_t srq, const struct gv_recv *wrs, const struct gv_sge *sges, int n);
// gv_gather copies the memory described by n elements to a buffer.
void gv_gather(void *to, const struct gv_sge *sges, int n);

// gv_poll returns the number of completions, with GV_ERRORS set if any of them is not a success. A
// negative number means only that the poll failed. with_inv is the flag by which the device reports
// IBV_WC_WITH_INV.
#define GV_ERRORS (1 << 30)
int gv_poll(uintptr_t cq, struct gv_wc *out, int n, unsigned int with_inv, uint32_t *held);

// Devices.

struct gv_device {
	char name[64];
	uint64_t guid; // host order
	int node_type, transport;
};

int gv_devices(struct gv_device **out, int *n); // the caller frees out
int gv_context_fd(uintptr_t ctx);
uint32_t gv_pd_handle(uintptr_t pd);
int gv_channel_fd(uintptr_t ch);
int gv_open(const char *name, uint64_t guid, uintptr_t *ctx, int *async_fd);
int gv_close(uintptr_t ctx);
void gv_fork_init(void);

struct gv_device_attr {
	char fw_ver[65];
	uint64_t node_guid, sys_image_guid; // host order
	uint64_t max_mr_size, page_size_cap;
	uint32_t vendor_id, vendor_part_id, hw_ver, device_cap_flags;
	int max_qp, max_qp_wr, max_sge, max_sge_rd, max_cq, max_cqe, max_mr, max_pd;
	int max_qp_rd_atom, max_res_rd_atom, max_qp_init_rd_atom, atomic_cap;
	int max_mw, max_ah, max_srq, max_srq_wr, max_srq_sge, max_pkeys, phys_port_cnt;
	int num_comp_vectors;
	int max_ee_rd_atom, max_ee_init_rd_atom, max_ee, max_rdd, max_raw_ipv6_qp, max_raw_ethy_qp;
	int max_mcast_grp, max_mcast_qp_attach, max_total_mcast_qp_attach, max_fmr, max_map_per_fmr;
	uint8_t local_ca_ack_delay;
};

int gv_query_device(uintptr_t ctx, struct gv_device_attr *out);

struct gv_device_attr_ex {
	uint64_t odp_general, completion_timestamp_mask, hca_core_clock, device_cap_flags_ex, max_dm_size, rss_fields_mask;
	uint32_t odp_rc, odp_uc, odp_ud, odp_xrc;
	uint32_t raw_packet_caps, max_wq_type_rq, tso_max, tso_qpts;
	uint32_t rss_qpts, rss_tables, rss_table_size;
	uint32_t pacing_min, pacing_max, pacing_qpts;
	uint32_t tm_hdr, tm_tags, tm_flags, tm_ops, tm_sge;
	uint16_t mod_count, mod_period, pci_fetch_add, pci_swap, pci_compare_swap;
	uint8_t rss_function;
};

// gv_query_device_ex returns EOPNOTSUPP or ENOSYS if the library or the kernel has no extended
// attributes.
int gv_query_device_ex(uintptr_t ctx, struct gv_device_attr_ex *out);

struct gv_port_attr {
	uint32_t state, max_mtu, active_mtu, max_msg_sz;
	uint32_t port_cap_flags, bad_pkey_cntr, qkey_viol_cntr;
	int gid_tbl_len;
	uint16_t pkey_tbl_len, lid, sm_lid, port_cap_flags2;
	uint8_t lmc, active_width, active_speed, phys_state, link_layer;
	uint8_t max_vl_num, sm_sl, subnet_timeout, init_type_reply, flags;
};

int gv_query_port(uintptr_t ctx, uint8_t port, struct gv_port_attr *out);

struct gv_gid {
	uint8_t raw[16];
	int type;
	char netdev[64]; // "" = none
};

int gv_query_gid(uintptr_t ctx, uint32_t port, uint32_t index, struct gv_gid *out);
int gv_query_pkey(uintptr_t ctx, uint8_t port, int index, uint16_t *out); // host order

// Events.

struct gv_async {
	int type, port;
	uint64_t cookie; // identifies the object, 0 = none
};

int gv_async_event(uintptr_t ctx, struct gv_async *out);
int gv_cq_event(uintptr_t ch, uint64_t *cookie);

// Objects. A new object is returned in out.

int gv_alloc_pd(uintptr_t ctx, uintptr_t *out);
int gv_dealloc_pd(uintptr_t pd);

struct gv_keys {
	uint32_t lkey, rkey;
};

int gv_reg_mr(uintptr_t pd, uintptr_t addr, size_t len, uint64_t iova, unsigned access, uintptr_t *out, struct gv_keys *keys);
int gv_reg_dmabuf_mr(uintptr_t pd, uint64_t offset, size_t len, uint64_t iova, int fd, int access, uintptr_t *out,
	struct gv_keys *keys);
// gv_rereg_mr returns the result of ibv_rereg_mr, and 0 or an errno in err.
#define GV_REREG_ERR_INPUT -1
#define GV_REREG_ERR_DONT_FORK_NEW -2
int gv_rereg_mr(uintptr_t mr, int flags, uintptr_t pd, uintptr_t addr, size_t len, int access, int *err, struct gv_keys *keys);
int gv_dereg_mr(uintptr_t mr);

int gv_alloc_mw(uintptr_t pd, int type, uintptr_t *out);
uint32_t gv_mw_rkey(uintptr_t mw);
int gv_dealloc_mw(uintptr_t mw);

int gv_create_comp_channel(uintptr_t ctx, uintptr_t *out);
int gv_destroy_comp_channel(uintptr_t ch);

int gv_create_cq(uintptr_t ctx, int cqe, uint64_t cookie, uintptr_t ch, int vector, uintptr_t *out, int *room);
int gv_resize_cq(uintptr_t cq, int cqe, int *room);
int gv_req_notify_cq(uintptr_t cq, int solicited_only);
int gv_destroy_cq(uintptr_t cq);

struct gv_srq_attr {
	uint32_t max_wr, max_sge, srq_limit;
};

int gv_create_srq(uintptr_t pd, uint64_t cookie, struct gv_srq_attr *attr, uintptr_t *out);
int gv_modify_srq(uintptr_t srq, const struct gv_srq_attr *attr, int mask);
int gv_query_srq(uintptr_t srq, struct gv_srq_attr *attr);
int gv_destroy_srq(uintptr_t srq);

struct gv_ah_attr {
	uint8_t dgid[16];
	uint32_t flow_label;
	uint8_t sgid_index, hop_limit, traffic_class;
	uint16_t dlid;
	uint8_t sl, src_path_bits, static_rate, is_global, port_num; // is_global is 0 or 1
};

int gv_create_ah(uintptr_t pd, const struct gv_ah_attr *attr, uintptr_t *out);
int gv_destroy_ah(uintptr_t ah);

struct gv_qp_cap {
	uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data;
};

struct gv_qp_attr {
	uint32_t qp_state, cur_qp_state, path_mtu, qkey, rq_psn, sq_psn, dest_qp_num, qp_access_flags;
	struct gv_qp_cap cap;
	struct gv_ah_attr ah;
	uint16_t pkey_index;
	uint8_t en_sqd_async_notify, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer, port_num, timeout, retry_cnt, rnr_retry;
};

int gv_create_qp(uintptr_t pd, uint64_t cookie, uintptr_t send_cq, uintptr_t recv_cq, uintptr_t srq, int type, int sig_all,
	struct gv_qp_cap *cap, uintptr_t *out, uint32_t *num);
// gv_create_qp_ex creates an RC QP that can also post Atomic Writes. It returns EOPNOTSUPP if the
// library lacks them.
int gv_create_qp_ex(uintptr_t pd, uint64_t cookie, uintptr_t send_cq, uintptr_t recv_cq, uintptr_t srq, int type, int sig_all,
	struct gv_qp_cap *cap, uintptr_t *out, uint32_t *num);
int gv_modify_qp(uintptr_t qp, const struct gv_qp_attr *attr, int mask);
int gv_query_qp(uintptr_t qp, struct gv_qp_attr *attr);
int gv_destroy_qp(uintptr_t qp);
int gv_bind_mw(uintptr_t qp, uint64_t id, unsigned flags, uintptr_t mw, uintptr_t mr, uint64_t addr, uint64_t length, unsigned access);
int gv_mcast(uintptr_t qp, const uint8_t *gid, uint16_t lid, int attach);

#endif
