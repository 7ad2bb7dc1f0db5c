// SPDX-License-Identifier: BSD-3-Clause

// The interface between the two halves of the preload: the shim in C (shim/) calls the functions of
// RNIC_CALLS, which are in Go, and Go calls those of struct rnic_events. Both sides declare the
// structures of libibverbs first: the shim includes its header, Go verbs/ibv_abi.h.
//
// All functions return 0 or an errno. Objects are referred to by handles, numbers that only Go can
// resolve; 0 is no object. A structure is owned by the side that passes it, and valid only during
// the call.

#ifndef GOVERBS_BRIDGE_H
#define GOVERBS_BRIDGE_H

#include <stddef.h>
#include <stdint.h>

// rnic_device holds the constant properties of the device.
struct rnic_device {
	char name[64];
	int node_type;
	int transport;
	uint64_t guid; // in network byte order
	int comp_vectors;
};

// rnic_addr is an IP address and a port.
struct rnic_addr {
	uint8_t ip[16]; // IPv4: the first four bytes
	uint16_t family; // 0 = no address
	uint16_t port; // in host byte order
	uint32_t scope; // IPv6
};

// rnic_param holds the parameters for connecting or accepting. Depths: -1 = as much as the device
// supports.
struct rnic_param {
	const void *private_data;
	uint32_t private_len;
	int responder_resources;
	int initiator_depth;
	int retry_count;
	int rnr_retry_count;
};

#define RNIC_PRIVATE 512 // maximum length of private data; MPA has up to 512 bytes (RFC 5044 section 7.1.1)

// rnic_cm_event is an event of the connection manager (enum rdma_cm_event_type).
struct rnic_cm_event {
	int event;
	int status;
	uint32_t request; // CONNECT_REQUEST: the handle to accept or to reject
	int responder_resources;
	int initiator_depth;
	struct rnic_addr local, remote;
	uint32_t private_len;
	uint8_t private_data[RNIC_PRIVATE];
};

// rnic_events lists the functions that Go calls. They do not block, and may be called concurrently.
// owner is the pointer that the shim passed when it created the object. None of them is called for
// an object after it is closed.
struct rnic_events {
	void (*cq)(void *owner);
	void (*async)(void *owner, int type, void *element, int port);
	void (*cm)(void *owner, const struct rnic_cm_event *event);
};

// RNIC_OPTIONS lists the options of goverbs run and their environment variables; package
// internal/runenv describes them.
#define RNIC_OPTIONS(F) \
	F(device, "GOVERBS_RUN_DEVICE") F(addr, "GOVERBS_RUN_ADDR") F(mtu, "GOVERBS_RUN_MTU") F(crc, "GOVERBS_RUN_CRC") \
	F(pcap, "GOVERBS_RUN_PCAP") F(pid, "GOVERBS_RUN_PID") F(keep_real, "GOVERBS_RUN_KEEP_REAL") F(verbose, "GOVERBS_RUN_VERBOSE")

// rnic_options holds their values, "" if unset.
struct rnic_options {
#define F(name, variable) const char *name;
	RNIC_OPTIONS(F)
#undef F
};

// RNIC_CALLS lists the functions of the Go library: name, parameters. Their symbols start with
// rnic_.
#define RNIC_CALLS(F) \
	F(start, (const struct rnic_events *events, const struct rnic_options *options)) \
	F(stop, (void)) \
	F(device, (struct rnic_device *device)) \
	F(close, (uint32_t object)) \
	F(open, (void *owner, uint32_t *context)) \
	F(query_device, (uint32_t context, struct ibv_device_attr *attr)) \
	F(query_port, (uint32_t context, int port, struct ibv_port_attr *attr)) \
	F(query_gid, (uint32_t context, int port, int index, struct ibv_gid_entry *entry)) \
	F(query_pkey, (uint32_t context, int port, int index, uint16_t *pkey)) \
	F(alloc_pd, (uint32_t context, uint32_t *pd)) \
	F(reg_mr, (uint32_t pd, void *addr, size_t length, uint64_t iova, uint32_t access, uint32_t *mr, uint32_t *lkey, uint32_t *rkey)) \
	F(rereg_mr, (uint32_t mr, int flags, uint32_t pd, void *addr, size_t length, uint32_t access, uint32_t *lkey, uint32_t *rkey)) \
	F(revoke, (uint32_t mr)) \
	F(alloc_mw, (uint32_t pd, int type, uint32_t *mw, uint32_t *rkey)) \
	F(bind_mw, (uint32_t qp, uint32_t mw, uint32_t mr, const struct ibv_mw_bind *bind, uint32_t *rkey)) \
	F(create_channel, (uint32_t context, uint32_t *channel)) \
	F(create_cq, (uint32_t context, void *owner, int cqe, uint32_t channel, int vector, uint32_t *cq, int *got)) \
	F(resize_cq, (uint32_t cq, int cqe, int *got)) \
	F(req_notify, (uint32_t cq, int solicited)) \
	F(poll, (uint32_t cq, int n, struct ibv_wc *wc, int *got)) \
	F(create_srq, (uint32_t pd, void *owner, struct ibv_srq_attr *attr, uint32_t *srq)) \
	F(modify_srq, (uint32_t srq, const struct ibv_srq_attr *attr, int mask)) \
	F(query_srq, (uint32_t srq, struct ibv_srq_attr *attr)) \
	F(post_srq_recv, (uint32_t srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)) \
	F(create_qp, (uint32_t pd, void *owner, uint32_t send_cq, uint32_t recv_cq, uint32_t srq, struct ibv_qp_cap *cap, int sig_all, \
		uint32_t *qp, uint32_t *num)) \
	F(init_qp, (uint32_t qp)) \
	F(modify_qp, (uint32_t qp, const struct ibv_qp_attr *attr, int mask)) \
	F(query_qp, (uint32_t qp, struct ibv_qp_attr *attr)) \
	F(post_send, (uint32_t qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)) \
	F(post_recv, (uint32_t qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)) \
	F(connect, (void *owner, uint32_t context, uint32_t qp, const struct rnic_addr *from, const struct rnic_addr *to, \
		const struct rnic_param *param, uint32_t *conn)) \
	F(listen, (void *owner, uint32_t context, const struct rnic_addr *at, int backlog, int af_only, uint32_t *listener, int *port)) \
	F(accept, (void *owner, uint32_t request, uint32_t qp, const struct rnic_param *param, uint32_t *conn)) \
	F(reject, (uint32_t request, const void *private_data, uint32_t length)) \
	F(disconnect, (uint32_t conn))

#ifdef GOVERBS_BRIDGE_GO
// cgo cannot call through a function pointer.
static inline void rnic_event_cq(const struct rnic_events *e, void *owner) { e->cq(owner); }
static inline void rnic_event_async(const struct rnic_events *e, void *owner, int type, void *element, int port) { e->async(owner, type, element, port); }
static inline void rnic_event_cm(const struct rnic_events *e, void *owner, const struct rnic_cm_event *event) { e->cm(owner, event); }
#endif

#endif // GOVERBS_BRIDGE_H
