// SPDX-License-Identifier: BSD-3-Clause

// librdmacm for Go: events are copied and acknowledged in one call, addresses are passed as plain
// bytes, and every function returns 0 or a negative errno.

#ifndef GOVERBS_CM_H
#define GOVERBS_CM_H

#include <stddef.h>
#include <stdint.h>

struct rdma_event_channel;
struct rdma_cm_id;

// The library's functions, whose addresses are set before anything else is called. gocm_function
// returns the name of the ith one, NULL after the last.
const char *gocm_function(int i);
void gocm_set_function(int i, uintptr_t address);

// gocm_addr is an IP address with a port in host order; family 0 = none.
struct gocm_addr {
	uint16_t family;
	uint16_t port;
	uint32_t scope;
	uint8_t ip[16]; // the first 4 for IPv4
};

struct gocm_ah { // verbs.AHAttr
	uint8_t dgid[16];
	uint32_t flow_label;
	uint8_t sgid_index, hop_limit, traffic_class;
	uint16_t dlid;
	uint8_t sl, src_path_bits, static_rate, is_global, port_num; // is_global is 0 or 1
};

struct gocm_qp_attr {
	uint32_t path_mtu, qkey, rq_psn, sq_psn, dest_qp_num, qp_access_flags;
	struct gocm_ah ah;
	uint16_t pkey_index;
	uint8_t max_rd_atomic, max_dest_rd_atomic, min_rnr_timer, port_num, timeout, retry_cnt, rnr_retry;
};

struct gocm_event {
	uint32_t event;
	int32_t status;
	uintptr_t key;         // of the ID that the event is for; for a request, of the listener
	uintptr_t group;       // of the multicast group that the event is about
	struct rdma_cm_id *id; // the new ID of a request, else NULL
	uint8_t responder_resources, initiator_depth;
	uint16_t len; // of data
	uint32_t qp_num, qkey;
	struct gocm_ah ah; // datagrams
	uint8_t data[256];
};

// gocm_device names the device to which an ID is bound; name is empty if it is not bound.
struct gocm_device {
	char name[64];
	int port;
};

// gocm_param has the parameters of struct rdma_conn_param and of a rejection.
struct gocm_param {
	uint32_t qp_num;
	uint8_t responder_resources, initiator_depth, retry_count, rnr_retry_count, srq;
	uint8_t len; // of data
	uint8_t data[256];
};

int gocm_open(struct rdma_event_channel **ch, int *fd);
void gocm_close(struct rdma_event_channel *ch);
int gocm_next(struct rdma_event_channel *ch, struct gocm_event *out);
int gocm_create(struct rdma_event_channel *ch, uintptr_t key, int ps, struct rdma_cm_id **id);
void gocm_set_key(struct rdma_cm_id *id, uintptr_t key);
int gocm_bind(struct rdma_cm_id *id, const struct gocm_addr *a);
int gocm_resolve_addr(struct rdma_cm_id *id, const struct gocm_addr *from, const struct gocm_addr *to, int ms);
int gocm_resolve_route(struct rdma_cm_id *id, int ms);
int gocm_set_tos(struct rdma_cm_id *id, uint8_t tos);
int gocm_set_ack_timeout(struct rdma_cm_id *id, uint8_t timeout);
int gocm_set_reuseaddr(struct rdma_cm_id *id);
int gocm_set_afonly(struct rdma_cm_id *id);
int gocm_connect(struct rdma_cm_id *id, const struct gocm_param *p);
int gocm_accept(struct rdma_cm_id *id, const struct gocm_param *p);
int gocm_reject(struct rdma_cm_id *id, const struct gocm_param *p);
int gocm_establish(struct rdma_cm_id *id);
int gocm_listen(struct rdma_cm_id *id, int backlog);
int gocm_disconnect(struct rdma_cm_id *id);
int gocm_destroy(struct rdma_cm_id *id);
int gocm_join(struct rdma_cm_id *id, const struct gocm_addr *group, uintptr_t key);
int gocm_leave(struct rdma_cm_id *id, const struct gocm_addr *group);
int gocm_qp_attr(struct rdma_cm_id *id, int state, struct gocm_qp_attr *attr, int *mask);
void gocm_where(struct rdma_cm_id *id, struct gocm_addr *local, struct gocm_addr *remote, struct gocm_device *dev);

#endif
