// SPDX-License-Identifier: BSD-3-Clause

// The part of libibverbs' binary interface that package verbs uses. The library's inline functions
// compile it into every program, so no version of the library can change it. It makes the headers
// of rdma-core unnecessary for a build.
//
// Only what is used is declared. Structures allocated by the library, such as objects, may be cut
// short; structures allocated by the caller are complete. TestABI compares every field, number and
// function with the installed headers, if any, and compiles the C files of this package with them
// instead of this file (GOVERBS_SYSTEM_HEADERS).

#ifndef GOVERBS_IBV_ABI_H
#define GOVERBS_IBV_ABI_H

#ifdef GOVERBS_SYSTEM_HEADERS
#include <infiniband/verbs.h>
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova
#else

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

enum ibv_event_type {
	IBV_EVENT_CQ_ERR = 0,
	IBV_EVENT_QP_FATAL = 1,
	IBV_EVENT_QP_REQ_ERR = 2,
	IBV_EVENT_QP_ACCESS_ERR = 3,
	IBV_EVENT_COMM_EST = 4,
	IBV_EVENT_SQ_DRAINED = 5,
	IBV_EVENT_PATH_MIG = 6,
	IBV_EVENT_PATH_MIG_ERR = 7,
	IBV_EVENT_PORT_ACTIVE = 9,
	IBV_EVENT_PORT_ERR = 10,
	IBV_EVENT_LID_CHANGE = 11,
	IBV_EVENT_PKEY_CHANGE = 12,
	IBV_EVENT_SM_CHANGE = 13,
	IBV_EVENT_SRQ_ERR = 14,
	IBV_EVENT_SRQ_LIMIT_REACHED = 15,
	IBV_EVENT_QP_LAST_WQE_REACHED = 16,
	IBV_EVENT_CLIENT_REREGISTER = 17,
	IBV_EVENT_GID_CHANGE = 18,
};

enum ibv_wr_opcode {
	IBV_WR_SEND = 2,
	IBV_WR_ATOMIC_CMP_AND_SWP = 5,
	IBV_WR_ATOMIC_FETCH_AND_ADD = 6,
	IBV_WR_LOCAL_INV = 7,
	IBV_WR_BIND_MW = 8,
	IBV_WR_SEND_WITH_INV = 9,
	IBV_WR_ATOMIC_WRITE = 15,
};

enum ibv_send_flags {
	IBV_SEND_FENCE = 1,
	IBV_SEND_SIGNALED = 2,
	IBV_SEND_INLINE = 8,
};

enum ibv_wc_status {
	IBV_WC_SUCCESS = 0,
};

enum ibv_wc_opcode {
	IBV_WC_RECV = 128,
};

enum ibv_wc_flags {
	IBV_WC_GRH = 1,
	IBV_WC_WITH_IMM = 2,
	IBV_WC_WITH_INV = 8,
};

enum ibv_access_flags {
	IBV_ACCESS_LOCAL_WRITE = 1,
	IBV_ACCESS_RELAXED_ORDERING = 0x100000,
};

#define IBV_ACCESS_OPTIONAL_RANGE 0x3ff00000

enum ibv_mw_type {
	IBV_MW_TYPE_1 = 1,
};

enum ibv_qp_init_attr_mask {
	IBV_QP_INIT_ATTR_PD = 1,
	IBV_QP_INIT_ATTR_SEND_OPS_FLAGS = 64,
};

enum ibv_qp_create_send_ops_flags {
	IBV_QP_EX_WITH_ATOMIC_WRITE = 0x1000,
};

enum ibv_qp_attr_mask {
	IBV_QP_STATE = 0x1,
	IBV_QP_CUR_STATE = 0x2,
	IBV_QP_ACCESS_FLAGS = 0x8,
	IBV_QP_PKEY_INDEX = 0x10,
	IBV_QP_PORT = 0x20,
	IBV_QP_QKEY = 0x40,
	IBV_QP_AV = 0x80,
	IBV_QP_PATH_MTU = 0x100,
	IBV_QP_TIMEOUT = 0x200,
	IBV_QP_RETRY_CNT = 0x400,
	IBV_QP_RNR_RETRY = 0x800,
	IBV_QP_RQ_PSN = 0x1000,
	IBV_QP_MAX_QP_RD_ATOMIC = 0x2000,
	IBV_QP_MIN_RNR_TIMER = 0x8000,
	IBV_QP_SQ_PSN = 0x10000,
	IBV_QP_MAX_DEST_RD_ATOMIC = 0x20000,
	IBV_QP_CAP = 0x80000,
	IBV_QP_DEST_QPN = 0x100000,
};

enum ibv_rereg_mr_err_code {
	IBV_REREG_MR_ERR_INPUT = -1,
	IBV_REREG_MR_ERR_DONT_FORK_NEW = -2,
};

enum ibv_odp_general_caps {
	IBV_ODP_SUPPORT = 1,
};

union ibv_gid {
	uint8_t raw[16];
	uint64_t words[2]; // for the alignment
};

struct ibv_sge {
	uint64_t addr;
	uint32_t length;
	uint32_t lkey;
};

struct ibv_wc {
	uint64_t wr_id;
	unsigned int status;
	unsigned int opcode;
	uint32_t vendor_err;
	uint32_t byte_len;
	union {
		uint32_t imm_data; // network byte order
		uint32_t invalidated_rkey;
	};
	uint32_t qp_num;
	uint32_t src_qp;
	unsigned int wc_flags;
	uint16_t pkey_index;
	uint16_t slid;
	uint8_t sl;
	uint8_t dlid_path_bits;
};

struct ibv_mw_bind_info {
	struct ibv_mr *mr;
	uint64_t addr;
	uint64_t length;
	unsigned int mw_access_flags;
};

struct ibv_mw_bind {
	uint64_t wr_id;
	unsigned int send_flags;
	struct ibv_mw_bind_info bind_info;
};

struct ibv_send_wr {
	uint64_t wr_id;
	struct ibv_send_wr *next;
	struct ibv_sge *sg_list;
	int num_sge;
	unsigned int opcode;
	unsigned int send_flags;
	union {
		uint32_t imm_data; // network byte order
		uint32_t invalidate_rkey;
	};
	union {
		struct {
			uint64_t remote_addr;
			uint32_t rkey;
		} rdma;
		struct {
			uint64_t remote_addr;
			uint64_t compare_add;
			uint64_t swap;
			uint32_t rkey;
		} atomic;
		struct {
			struct ibv_ah *ah;
			uint32_t remote_qpn;
			uint32_t remote_qkey;
		} ud;
	} wr;
	union {
		struct {
			uint32_t remote_srqn;
		} xrc;
	} qp_type;
	union {
		struct {
			struct ibv_mw *mw;
			uint32_t rkey;
			struct ibv_mw_bind_info bind_info;
		} bind_mw;
	};
};

struct ibv_recv_wr {
	uint64_t wr_id;
	struct ibv_recv_wr *next;
	struct ibv_sge *sg_list;
	int num_sge;
};

struct ibv_global_route {
	union ibv_gid dgid;
	uint32_t flow_label;
	uint8_t sgid_index;
	uint8_t hop_limit;
	uint8_t traffic_class;
};

struct ibv_ah_attr {
	struct ibv_global_route grh;
	uint16_t dlid;
	uint8_t sl;
	uint8_t src_path_bits;
	uint8_t static_rate;
	uint8_t is_global;
	uint8_t port_num;
};

struct ibv_qp_cap {
	uint32_t max_send_wr;
	uint32_t max_recv_wr;
	uint32_t max_send_sge;
	uint32_t max_recv_sge;
	uint32_t max_inline_data;
};

struct ibv_qp_init_attr {
	void *qp_context;
	struct ibv_cq *send_cq;
	struct ibv_cq *recv_cq;
	struct ibv_srq *srq;
	struct ibv_qp_cap cap;
	unsigned int qp_type;
	int sq_sig_all;
};

struct ibv_rwq_ind_table;
struct ibv_xrcd;

struct ibv_rx_hash_conf {
	uint8_t rx_hash_function;
	uint8_t rx_hash_key_len;
	uint8_t *rx_hash_key;
	uint64_t rx_hash_fields_mask;
};

// The library reads only the fields that comp_mask selects, so the structure may be cut short.
struct ibv_qp_init_attr_ex {
	void *qp_context;
	struct ibv_cq *send_cq;
	struct ibv_cq *recv_cq;
	struct ibv_srq *srq;
	struct ibv_qp_cap cap;
	unsigned int qp_type;
	int sq_sig_all;
	uint32_t comp_mask;
	struct ibv_pd *pd;
	struct ibv_xrcd *xrcd;
	uint32_t create_flags;
	uint16_t max_tso_header;
	struct ibv_rwq_ind_table *rwq_ind_tbl;
	struct ibv_rx_hash_conf rx_hash_conf;
	uint32_t source_qpn;
	uint64_t send_ops_flags;
};

struct ibv_qp_attr {
	unsigned int qp_state;
	unsigned int cur_qp_state;
	unsigned int path_mtu;
	unsigned int path_mig_state;
	uint32_t qkey;
	uint32_t rq_psn;
	uint32_t sq_psn;
	uint32_t dest_qp_num;
	unsigned int qp_access_flags;
	struct ibv_qp_cap cap;
	struct ibv_ah_attr ah_attr;
	struct ibv_ah_attr alt_ah_attr;
	uint16_t pkey_index;
	uint16_t alt_pkey_index;
	uint8_t en_sqd_async_notify;
	uint8_t sq_draining;
	uint8_t max_rd_atomic;
	uint8_t max_dest_rd_atomic;
	uint8_t min_rnr_timer;
	uint8_t port_num;
	uint8_t timeout;
	uint8_t retry_cnt;
	uint8_t rnr_retry;
	uint8_t alt_port_num;
	uint8_t alt_timeout;
	uint32_t rate_limit;
};

struct ibv_srq_attr {
	uint32_t max_wr;
	uint32_t max_sge;
	uint32_t srq_limit;
};

struct ibv_srq_init_attr {
	void *srq_context;
	struct ibv_srq_attr attr;
};

struct ibv_device_attr {
	char fw_ver[64];
	uint64_t node_guid;	 // network byte order
	uint64_t sys_image_guid; // network byte order
	uint64_t max_mr_size;
	uint64_t page_size_cap;
	uint32_t vendor_id;
	uint32_t vendor_part_id;
	uint32_t hw_ver;
	int max_qp;
	int max_qp_wr;
	unsigned int device_cap_flags;
	int max_sge;
	int max_sge_rd;
	int max_cq;
	int max_cqe;
	int max_mr;
	int max_pd;
	int max_qp_rd_atom;
	int max_ee_rd_atom;
	int max_res_rd_atom;
	int max_qp_init_rd_atom;
	int max_ee_init_rd_atom;
	unsigned int atomic_cap;
	int max_ee;
	int max_rdd;
	int max_mw;
	int max_raw_ipv6_qp;
	int max_raw_ethy_qp;
	int max_mcast_grp;
	int max_mcast_qp_attach;
	int max_total_mcast_qp_attach;
	int max_ah;
	int max_fmr;
	int max_map_per_fmr;
	int max_srq;
	int max_srq_wr;
	int max_srq_sge;
	uint16_t max_pkeys;
	uint8_t local_ca_ack_delay;
	uint8_t phys_port_cnt;
};

struct ibv_odp_caps {
	uint64_t general_caps;
	struct {
		uint32_t rc_odp_caps;
		uint32_t uc_odp_caps;
		uint32_t ud_odp_caps;
	} per_transport_caps;
};

struct ibv_tso_caps {
	uint32_t max_tso;
	uint32_t supported_qpts;
};

struct ibv_rss_caps {
	uint32_t supported_qpts;
	uint32_t max_rwq_indirection_tables;
	uint32_t max_rwq_indirection_table_size;
	uint64_t rx_hash_fields_mask;
	uint8_t rx_hash_function;
};

struct ibv_packet_pacing_caps {
	uint32_t qp_rate_limit_min;
	uint32_t qp_rate_limit_max;
	uint32_t supported_qpts;
};

struct ibv_tm_caps {
	uint32_t max_rndv_hdr_size;
	uint32_t max_num_tags;
	uint32_t flags;
	uint32_t max_ops;
	uint32_t max_sge;
};

struct ibv_cq_moderation_caps {
	uint16_t max_cq_count;
	uint16_t max_cq_period;
};

struct ibv_pci_atomic_caps {
	uint16_t fetch_add;
	uint16_t swap;
	uint16_t compare_swap;
};

// The caller passes the size, so the structure may be cut short; an older library fills in less of
// it.
struct ibv_device_attr_ex {
	struct ibv_device_attr orig_attr;
	uint32_t comp_mask;
	struct ibv_odp_caps odp_caps;
	uint64_t completion_timestamp_mask;
	uint64_t hca_core_clock;
	uint64_t device_cap_flags_ex;
	struct ibv_tso_caps tso_caps;
	struct ibv_rss_caps rss_caps;
	uint32_t max_wq_type_rq;
	struct ibv_packet_pacing_caps packet_pacing_caps;
	uint32_t raw_packet_caps;
	struct ibv_tm_caps tm_caps;
	struct ibv_cq_moderation_caps cq_mod_caps;
	uint64_t max_dm_size;
	struct ibv_pci_atomic_caps pci_atomic_caps;
	uint32_t xrc_odp_caps;
};

struct ibv_port_attr {
	unsigned int state;
	unsigned int max_mtu;
	unsigned int active_mtu;
	int gid_tbl_len;
	uint32_t port_cap_flags;
	uint32_t max_msg_sz;
	uint32_t bad_pkey_cntr;
	uint32_t qkey_viol_cntr;
	uint16_t pkey_tbl_len;
	uint16_t lid;
	uint16_t sm_lid;
	uint8_t lmc;
	uint8_t max_vl_num;
	uint8_t sm_sl;
	uint8_t subnet_timeout;
	uint8_t init_type_reply;
	uint8_t active_width;
	uint8_t active_speed;
	uint8_t phys_state;
	uint8_t link_layer;
	uint8_t flags;
	uint16_t port_cap_flags2;
};

struct ibv_gid_entry {
	union ibv_gid gid;
	uint32_t gid_index;
	uint32_t port_num;
	uint32_t gid_type;
	uint32_t ndev_ifindex;
};

struct ibv_async_event {
	union {
		struct ibv_cq *cq;
		struct ibv_qp *qp;
		struct ibv_srq *srq;
		int port_num;
	} element;
	unsigned int event_type;
};

// Objects. The library allocates them.

struct ibv_pd;

struct ibv_device {
	struct {
		void (*_dummy1)(void);
		void (*_dummy2)(void);
	} _ops;
	unsigned int node_type;
	unsigned int transport_type;
	char name[64];
};

struct ibv_context_ops {
	void (*_compat_query_device)(void);
	void (*_compat_query_port)(void);
	void (*_compat_alloc_pd)(void);
	void (*_compat_dealloc_pd)(void);
	void (*_compat_reg_mr)(void);
	void (*_compat_rereg_mr)(void);
	void (*_compat_dereg_mr)(void);
	struct ibv_mw *(*alloc_mw)(struct ibv_pd *pd, enum ibv_mw_type type);
	int (*bind_mw)(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);
	int (*dealloc_mw)(struct ibv_mw *mw);
	void (*_compat_create_cq)(void);
	int (*poll_cq)(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc);
	int (*req_notify_cq)(struct ibv_cq *cq, int solicited_only);
	void (*_compat_cq_event)(void);
	void (*_compat_resize_cq)(void);
	void (*_compat_destroy_cq)(void);
	void (*_compat_create_srq)(void);
	void (*_compat_modify_srq)(void);
	void (*_compat_query_srq)(void);
	void (*_compat_destroy_srq)(void);
	int (*post_srq_recv)(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
	void (*_compat_create_qp)(void);
	void (*_compat_query_qp)(void);
	void (*_compat_modify_qp)(void);
	void (*_compat_destroy_qp)(void);
	int (*post_send)(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
	int (*post_recv)(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
	void (*_compat_create_ah)(void);
	void (*_compat_destroy_ah)(void);
	void (*_compat_attach_mcast)(void);
	void (*_compat_detach_mcast)(void);
	void (*_compat_async_event)(void);
};

struct ibv_context {
	struct ibv_device *device;
	struct ibv_context_ops ops;
	int cmd_fd;
	int async_fd;
	int num_comp_vectors;
	pthread_mutex_t mutex;
	void *abi_compat;
};

#define __VERBS_ABI_IS_EXTENDED ((void *)UINTPTR_MAX)

// verbs_context contains a context and grows at its beginning; sz is its size. Unused fields are
// left out.
struct verbs_context {
	int (*query_port)(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t size);
	void (*unused1[26])(void);
	int (*query_device_ex)(struct ibv_context *context, const void *input, struct ibv_device_attr_ex *attr, size_t size);
	void (*unused2[5])(void);
	struct ibv_qp *(*create_qp_ex)(struct ibv_context *context, struct ibv_qp_init_attr_ex *init);
	void (*unused3[4])(void);
	uint64_t _ABI_placeholder3;
	size_t sz;
	struct ibv_context context;
};

struct ibv_pd {
	struct ibv_context *context;
	uint32_t handle;
};

struct ibv_mr {
	struct ibv_context *context;
	struct ibv_pd *pd;
	void *addr;
	size_t length;
	uint32_t handle;
	uint32_t lkey;
	uint32_t rkey;
};

struct ibv_mw {
	struct ibv_context *context;
	struct ibv_pd *pd;
	uint32_t rkey;
	uint32_t handle;
	unsigned int type;
};

struct ibv_comp_channel {
	struct ibv_context *context;
	int fd;
};

struct ibv_cq {
	struct ibv_context *context;
	struct ibv_comp_channel *channel;
	void *cq_context;
	uint32_t handle;
	int cqe;
};

struct ibv_srq {
	struct ibv_context *context;
	void *srq_context;
};

struct ibv_qp {
	struct ibv_context *context;
	void *qp_context;
	struct ibv_pd *pd;
	struct ibv_cq *send_cq;
	struct ibv_cq *recv_cq;
	struct ibv_srq *srq;
	uint32_t handle;
	uint32_t qp_num;
	unsigned int state;
	unsigned int qp_type;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t events_completed;
};

// ibv_qp_ex contains a QP created by create_qp_ex for operations that ibv_post_send does not
// support. The builder of an operation that was not requested may be missing.
struct ibv_qp_ex {
	struct ibv_qp qp_base;
	uint64_t comp_mask;
	uint64_t wr_id;
	unsigned int wr_flags;
	void (*unused4[17])(void);
	void (*wr_start)(struct ibv_qp_ex *qp);
	int (*wr_complete)(struct ibv_qp_ex *qp);
	void (*wr_abort)(struct ibv_qp_ex *qp);
	void (*wr_atomic_write)(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr, const void *atomic_wr);
};

#endif // GOVERBS_SYSTEM_HEADERS

struct _compat_ibv_port_attr;

// The functions to look up: result, name, parameters. OPTIONAL functions are missing from some
// libraries in use; the version that introduced each is noted beside it.
#define IBV_FUNCTIONS(NEEDED, OPTIONAL) \
	NEEDED(struct ibv_device **, ibv_get_device_list, (int *)) \
	NEEDED(void, ibv_free_device_list, (struct ibv_device **)) \
	NEEDED(const char *, ibv_get_device_name, (struct ibv_device *)) \
	NEEDED(unsigned long long, ibv_get_device_guid, (struct ibv_device *)) \
	NEEDED(struct ibv_context *, ibv_open_device, (struct ibv_device *)) \
	NEEDED(int, ibv_close_device, (struct ibv_context *)) \
	NEEDED(int, ibv_fork_init, (void)) \
	NEEDED(int, ibv_query_device, (struct ibv_context *, struct ibv_device_attr *)) \
	NEEDED(int, ibv_query_port, (struct ibv_context *, uint8_t, struct _compat_ibv_port_attr *)) \
	NEEDED(int, ibv_query_pkey, (struct ibv_context *, uint8_t, int, uint16_t *)) \
	NEEDED(int, ibv_get_async_event, (struct ibv_context *, struct ibv_async_event *)) \
	NEEDED(void, ibv_ack_async_event, (struct ibv_async_event *)) \
	NEEDED(struct ibv_pd *, ibv_alloc_pd, (struct ibv_context *)) \
	NEEDED(int, ibv_dealloc_pd, (struct ibv_pd *)) \
	NEEDED(struct ibv_mr *, ibv_reg_mr, (struct ibv_pd *, void *, size_t, int)) \
	NEEDED(int, ibv_rereg_mr, (struct ibv_mr *, int, struct ibv_pd *, void *, size_t, int)) \
	NEEDED(int, ibv_dereg_mr, (struct ibv_mr *)) \
	NEEDED(struct ibv_comp_channel *, ibv_create_comp_channel, (struct ibv_context *)) \
	NEEDED(int, ibv_destroy_comp_channel, (struct ibv_comp_channel *)) \
	NEEDED(struct ibv_cq *, ibv_create_cq, (struct ibv_context *, int, void *, struct ibv_comp_channel *, int)) \
	NEEDED(int, ibv_resize_cq, (struct ibv_cq *, int)) \
	NEEDED(int, ibv_destroy_cq, (struct ibv_cq *)) \
	NEEDED(int, ibv_get_cq_event, (struct ibv_comp_channel *, struct ibv_cq **, void **)) \
	NEEDED(void, ibv_ack_cq_events, (struct ibv_cq *, unsigned int)) \
	NEEDED(struct ibv_srq *, ibv_create_srq, (struct ibv_pd *, struct ibv_srq_init_attr *)) \
	NEEDED(int, ibv_modify_srq, (struct ibv_srq *, struct ibv_srq_attr *, int)) \
	NEEDED(int, ibv_query_srq, (struct ibv_srq *, struct ibv_srq_attr *)) \
	NEEDED(int, ibv_destroy_srq, (struct ibv_srq *)) \
	NEEDED(struct ibv_qp *, ibv_create_qp, (struct ibv_pd *, struct ibv_qp_init_attr *)) \
	NEEDED(int, ibv_modify_qp, (struct ibv_qp *, struct ibv_qp_attr *, int)) \
	NEEDED(int, ibv_query_qp, (struct ibv_qp *, struct ibv_qp_attr *, int, struct ibv_qp_init_attr *)) \
	NEEDED(int, ibv_destroy_qp, (struct ibv_qp *)) \
	NEEDED(struct ibv_ah *, ibv_create_ah, (struct ibv_pd *, struct ibv_ah_attr *)) \
	NEEDED(int, ibv_destroy_ah, (struct ibv_ah *)) \
	NEEDED(int, ibv_attach_mcast, (struct ibv_qp *, const union ibv_gid *, uint16_t)) \
	NEEDED(int, ibv_detach_mcast, (struct ibv_qp *, const union ibv_gid *, uint16_t)) \
	OPTIONAL(struct ibv_qp_ex *, ibv_qp_to_qp_ex, (struct ibv_qp *)) /* IBVERBS_1.6 */ \
	OPTIONAL(struct ibv_mr *, ibv_reg_mr_iova, (struct ibv_pd *, void *, size_t, uint64_t, int)) /* IBVERBS_1.7 */ \
	OPTIONAL(struct ibv_mr *, ibv_reg_mr_iova2, (struct ibv_pd *, void *, size_t, uint64_t, unsigned int)) /* 1.8 */ \
	OPTIONAL(int, _ibv_query_gid_ex, (struct ibv_context *, uint32_t, uint32_t, struct ibv_gid_entry *, uint32_t, size_t)) /* 1.11 */ \
	OPTIONAL(struct ibv_mr *, ibv_reg_dmabuf_mr, (struct ibv_pd *, uint64_t, size_t, uint64_t, int, int)) /* 1.12 */

#endif
