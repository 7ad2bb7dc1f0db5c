// SPDX-License-Identifier: BSD-3-Clause

// The part of librdmacm's ABI that package cm uses, with the types of libibverbs that it needs: see
// verbs/ibv_abi.h. TestABI compares it with the headers of rdma-core.

#ifndef GOVERBS_RDMA_ABI_H
#define GOVERBS_RDMA_ABI_H

#ifdef GOVERBS_SYSTEM_HEADERS
#include <rdma/rdma_cma.h>
#else

#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

// Of libibverbs.

union ibv_gid {
	uint8_t raw[16];
	uint64_t words[2]; // for the alignment
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

struct ibv_device {
	struct {
		void (*_dummy1)(void);
		void (*_dummy2)(void);
	} _ops;
	unsigned int node_type;
	unsigned int transport_type;
	char name[64];
};

struct ibv_context {
	struct ibv_device *device;
};

// Of librdmacm.

enum rdma_port_space {
	RDMA_PS_UDP = 0x0111,
};

enum rdma_cm_event_type {
	RDMA_CM_EVENT_CONNECT_REQUEST = 4,
	RDMA_CM_EVENT_MULTICAST_JOIN = 12,
	RDMA_CM_EVENT_MULTICAST_ERROR = 13,
};

enum {
	RDMA_OPTION_ID = 0,
};

enum {
	RDMA_OPTION_ID_TOS = 0,
	RDMA_OPTION_ID_REUSEADDR = 1,
	RDMA_OPTION_ID_AFONLY = 2,
	RDMA_OPTION_ID_ACK_TIMEOUT = 3,
};

struct rdma_event_channel {
	int fd;
};

struct rdma_ib_addr {
	union ibv_gid sgid;
	union ibv_gid dgid;
	uint16_t pkey;
};

struct rdma_addr {
	union {
		struct sockaddr src_addr;
		struct sockaddr_storage src_storage;
	};
	union {
		struct sockaddr dst_addr;
		struct sockaddr_storage dst_storage;
	};
	union {
		struct rdma_ib_addr ibaddr;
	} addr;
};

struct rdma_route {
	struct rdma_addr addr;
	void *path_rec;
	int num_paths;
};

// The library allocates it, so unused fields at the end are left out.
struct rdma_cm_id {
	struct ibv_context *verbs;
	struct rdma_event_channel *channel;
	void *context;
	void *qp;
	struct rdma_route route;
	unsigned int ps;
	uint8_t port_num;
};

struct rdma_conn_param {
	const void *private_data;
	uint8_t private_data_len;
	uint8_t responder_resources;
	uint8_t initiator_depth;
	uint8_t flow_control;
	uint8_t retry_count;
	uint8_t rnr_retry_count;
	uint8_t srq;
	uint32_t qp_num;
};

struct rdma_ud_param {
	const void *private_data;
	uint8_t private_data_len;
	struct ibv_ah_attr ah_attr;
	uint32_t qp_num;
	uint32_t qkey;
};

struct rdma_cm_event {
	struct rdma_cm_id *id;
	struct rdma_cm_id *listen_id;
	unsigned int event;
	int status;
	union {
		struct rdma_conn_param conn;
		struct rdma_ud_param ud;
	} param;
};

#endif // GOVERBS_SYSTEM_HEADERS

// The functions that are looked up: result, name, parameters.
#define RDMA_FUNCTIONS(NEEDED) \
	NEEDED(struct rdma_event_channel *, rdma_create_event_channel, (void)) \
	NEEDED(void, rdma_destroy_event_channel, (struct rdma_event_channel *)) \
	NEEDED(int, rdma_create_id, (struct rdma_event_channel *, struct rdma_cm_id **, void *, enum rdma_port_space)) \
	NEEDED(int, rdma_destroy_id, (struct rdma_cm_id *)) \
	NEEDED(int, rdma_bind_addr, (struct rdma_cm_id *, struct sockaddr *)) \
	NEEDED(int, rdma_resolve_addr, (struct rdma_cm_id *, struct sockaddr *, struct sockaddr *, int)) \
	NEEDED(int, rdma_resolve_route, (struct rdma_cm_id *, int)) \
	NEEDED(int, rdma_connect, (struct rdma_cm_id *, struct rdma_conn_param *)) \
	NEEDED(int, rdma_listen, (struct rdma_cm_id *, int)) \
	NEEDED(int, rdma_accept, (struct rdma_cm_id *, struct rdma_conn_param *)) \
	NEEDED(int, rdma_reject, (struct rdma_cm_id *, const void *, uint8_t)) \
	NEEDED(int, rdma_establish, (struct rdma_cm_id *)) \
	NEEDED(int, rdma_disconnect, (struct rdma_cm_id *)) \
	NEEDED(int, rdma_init_qp_attr, (struct rdma_cm_id *, struct ibv_qp_attr *, int *)) \
	NEEDED(int, rdma_get_cm_event, (struct rdma_event_channel *, struct rdma_cm_event **)) \
	NEEDED(int, rdma_ack_cm_event, (struct rdma_cm_event *)) \
	NEEDED(int, rdma_set_option, (struct rdma_cm_id *, int, int, void *, size_t)) \
	NEEDED(int, rdma_join_multicast, (struct rdma_cm_id *, struct sockaddr *, void *)) \
	NEEDED(int, rdma_leave_multicast, (struct rdma_cm_id *, struct sockaddr *))

#endif
