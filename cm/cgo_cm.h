// SPDX-License-Identifier: BSD-3-Clause

// librdmacm for Go: events are copied and acknowledged in one call, addresses cross as plain octets, and every function
// returns 0 or a negative errno.

#ifndef GOVERBS_CM_H
#define GOVERBS_CM_H

#if !defined(__has_include)
#error "package cm needs a C compiler with __has_include, or the build tag noibverbs"
#elif !__has_include(<infiniband/verbs.h>) || !__has_include(<rdma/rdma_cma.h>)
#error "package cm needs the headers of rdma-core: apt-get install libibverbs-dev librdmacm-dev, or build with -tags noibverbs"
#else

#include <stdint.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

// gocm_addr is an IP address with a port in host order; family 0 = none.
struct gocm_addr {
	uint16_t family;
	uint16_t port;
	uint32_t scope;
	uint8_t ip[16]; // the first 4 for IPv4
};

struct gocm_event {
	uint32_t event;
	int32_t status;
	uintptr_t key;         // of the ID that the event is for; of the listener for a request
	uintptr_t group;       // of the multicast group that the event is about
	struct rdma_cm_id *id; // the new ID of a request, else NULL
	uint8_t responder_resources, initiator_depth;
	uint16_t len; // of data
	uint32_t qp_num, qkey;
	struct ibv_ah_attr ah; // datagrams
	uint8_t data[256];
};

// gocm_device names the device that an ID is bound to; name is empty for none.
struct gocm_device {
	char name[IBV_SYSFS_NAME_MAX];
	int port;
};

// gocm_param is what both struct rdma_conn_param and a refusal are made of.
struct gocm_param {
	uint32_t qp_num;
	uint8_t responder_resources, initiator_depth, retry_count, rnr_retry_count, srq;
	uint8_t len; // of data
	uint8_t data[256];
};

int gocm_open(struct rdma_event_channel **ch, int *fd);
int gocm_next(struct rdma_event_channel *ch, struct gocm_event *out);
int gocm_create(struct rdma_event_channel *ch, uintptr_t key, int ps, struct rdma_cm_id **id);
void gocm_set_key(struct rdma_cm_id *id, uintptr_t key);
int gocm_bind(struct rdma_cm_id *id, const struct gocm_addr *a);
int gocm_resolve_addr(struct rdma_cm_id *id, const struct gocm_addr *from, const struct gocm_addr *to, int ms);
int gocm_resolve_route(struct rdma_cm_id *id, int ms);
int gocm_set_tos(struct rdma_cm_id *id, uint8_t tos);
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
int gocm_qp_attr(struct rdma_cm_id *id, int state, struct ibv_qp_attr *attr, int *mask);
void gocm_where(struct rdma_cm_id *id, struct gocm_addr *local, struct gocm_addr *remote, struct gocm_device *dev);

#endif
#endif
