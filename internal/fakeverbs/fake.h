// SPDX-License-Identifier: BSD-3-Clause

// Shared by the C files of this package: the registry of objects, the list of calls, queues of
// events with real descriptors, and the two devices.

#ifndef FAKEVERBS_FAKE_H
#define FAKEVERBS_FAKE_H

#if !__has_include(<infiniband/verbs.h>) || !__has_include(<rdma/rdma_cma.h>)
#error "libibverbs-dev and librdmacm-dev are needed, or build with -tags noibverbs or CGO_ENABLED=0"
#endif

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

// The functions whose calls are counted and can be made to fail. Those inline in verbs.h are
// reached through the operations of a context, and listed by their public names.
#define FAKE_FUNCS(X) \
	X(ibv_get_device_list) X(ibv_free_device_list) X(ibv_get_device_name) X(ibv_get_device_guid) \
	X(ibv_get_device_index) X(ibv_open_device) X(ibv_close_device) X(ibv_query_device) X(ibv_query_device_ex) \
	X(ibv_query_port) X(ibv_query_gid) X(ibv_query_gid_ex) X(ibv_query_gid_table) X(ibv_query_pkey) \
	X(ibv_get_pkey_index) X(ibv_alloc_pd) X(ibv_dealloc_pd) X(ibv_reg_mr) X(ibv_reg_mr_iova) X(ibv_reg_mr_iova2) \
	X(ibv_reg_dmabuf_mr) X(ibv_rereg_mr) X(ibv_dereg_mr) X(ibv_alloc_mw) X(ibv_dealloc_mw) X(ibv_bind_mw) \
	X(ibv_advise_mr) X(ibv_create_comp_channel) X(ibv_destroy_comp_channel) X(ibv_create_cq) X(ibv_resize_cq) \
	X(ibv_destroy_cq) X(ibv_poll_cq) X(ibv_req_notify_cq) X(ibv_modify_cq) X(ibv_get_cq_event) X(ibv_ack_cq_events) \
	X(ibv_create_qp) X(ibv_create_qp_ex) X(ibv_qp_to_qp_ex) X(ibv_modify_qp) X(ibv_query_qp) X(ibv_destroy_qp) \
	X(ibv_post_send) X(ibv_post_recv) X(ibv_wr_start) X(ibv_wr_atomic_write) X(ibv_wr_complete) X(ibv_wr_abort) \
	X(ibv_create_srq) X(ibv_modify_srq) X(ibv_query_srq) X(ibv_destroy_srq) X(ibv_post_srq_recv) X(ibv_create_ah) \
	X(ibv_init_ah_from_wc) X(ibv_create_ah_from_wc) X(ibv_destroy_ah) X(ibv_attach_mcast) X(ibv_detach_mcast) \
	X(ibv_get_async_event) X(ibv_ack_async_event) X(ibv_fork_init) X(ibv_is_fork_initialized) \
	X(rdma_create_event_channel) X(rdma_destroy_event_channel) X(rdma_create_id) X(rdma_destroy_id) \
	X(rdma_bind_addr) X(rdma_resolve_addr) X(rdma_resolve_route) X(rdma_connect) X(rdma_listen) X(rdma_accept) \
	X(rdma_reject) X(rdma_establish) X(rdma_disconnect) X(rdma_notify) X(rdma_init_qp_attr) X(rdma_get_cm_event) \
	X(rdma_ack_cm_event) X(rdma_set_option) X(rdma_get_devices) X(rdma_free_devices) X(rdma_join_multicast) \
	X(rdma_join_multicast_ex) X(rdma_leave_multicast) X(rdma_get_src_port) X(rdma_get_dst_port) \
	X(rdma_getaddrinfo) X(rdma_freeaddrinfo) X(rdma_migrate_id)

enum fake_fn {
#define X(name) FN_##name,
	FAKE_FUNCS(X)
#undef X
	FN_COUNT
};

enum fake_kind {
	K_CONTEXT, K_PD, K_MR, K_MW, K_CHANNEL, K_CQ, K_QP, K_SRQ, K_AH, K_EVENT_CHANNEL, K_ID, K_EVENT, K_COUNT
};

// An obj precedes the public part of each object. Destroyed ones are kept until fake_reset, to
// distinguish a call on one of them from a call on a newer object at the same address.
struct obj {
	enum fake_kind kind;
	uint32_t id; // 1, 2, ... for each kind
	bool dying;  // its destroying call waits for acknowledgements
	bool dead;
	bool own; // owned by the library, not the program: not counted as live
	int refs; // live children and users
	struct obj *up[5];
	struct obj *next; // in its bucket
	void *pub;
	size_t len;
};

// Descriptors of events are readable while events are queued.
struct ev {
	struct ev *next;
	struct obj *about; // the event's object; destroying it drops the event
};

struct evq {
	int fd;
	struct ev *head, **tail;
};

#define FAKE_GIDS 16
#define FAKE_PORTS 2
#define FAKE_PKEYS 64
#define FAKE_GROUPS 8

struct fake_gid {
	uint8_t raw[16];
	uint32_t index, type, ifindex, port;
};

struct dev {
	struct ibv_device pub;
	bool hidden, iwarp;
	int index;
	__be64 guid;
	struct ibv_device_attr_ex attr;
	int vectors; // num_comp_vectors of contexts
	struct ibv_port_attr port[FAKE_PORTS];
	struct fake_gid gid[FAKE_GIDS];
	int gids;
	uint16_t pkey[FAKE_PKEYS]; // host byte order
	struct ibv_context *cma; // librdmacm's own context
	char net4[16], net6[INET6_ADDRSTRLEN];
};

struct ctx {
	struct obj o;
	struct dev *dev;
	struct evq async;
	struct verbs_context pub;
};

struct pd {
	struct obj o;
	struct ibv_pd pub;
};

struct mr {
	struct obj o;
	int access, fd;
	uint64_t iova, offset;
	struct ibv_mr pub;
};

struct mw {
	struct obj o;
	bool bound;
	uint32_t key;                  // the newest key, even while pub has an older one
	uint32_t lkey, qpn, access; // of the region; of the QP, for a type 2 window
	uint64_t addr, length;
	struct ibv_mw pub;
};

struct channel {
	struct obj o;
	struct evq q;
	struct ibv_comp_channel pub;
};

struct fake_wc {
	uint64_t wr_id;
	uint32_t status, opcode, vendor_err, byte_len, imm, qp_num, src_qp, flags, pkey_index, slid, sl, path_bits;
	bool solicited;
};

struct cq {
	struct obj o;
	struct fake_wc *wc; // a ring of room entries
	int room, head, count;
	int armed; // 1 any, 2 solicited only
	bool overrun;
	unsigned comp_reported, async_reported;
	struct qp *hot;
	uint64_t hot_count;
	struct ibv_cq pub;
};

#define FAKE_SGES 32
#define FAKE_INLINE 512

// A work request as posted. imm is as in the request, in network byte order.
struct fake_wr {
	uint64_t call; // number of the posting call
	uint32_t qpn, srq;
	uint64_t wr_id;
	uint32_t recv, opcode, flags;
	int32_t num_sge;
	uint32_t imm, rkey, remote_qpn, remote_qkey, ah;
	uint64_t remote_addr, compare_add, swap;
	uint32_t mw, bind_rkey, bind_lkey, bind_access;
	uint64_t bind_addr, bind_length;
	struct ibv_sge sge[FAKE_SGES];
	uint32_t inline_len; // over all SGEs; the first FAKE_INLINE bytes are kept
	uint8_t data[FAKE_INLINE];
};

struct pending {
	uint64_t wr_id;
	uint32_t opcode, flags, bytes;
	bool sig;
	struct fake_wr *wr; // the whole request, only in loopback
};

struct wq {
	struct pending *wr;
	int room, head, count, max_sge;
};

struct qp_group {
	uint8_t gid[16];
	uint16_t lid;
};

struct qp {
	struct obj o;
	struct dev *dev;
	enum ibv_qp_state state;
	bool sig_all, connected;
	int ord; // -1 until a connection sets it
	struct qp_group group[FAKE_GROUPS];
	int groups;
	uint32_t peer;   // the other QP of an iWARP connection
	bool running, failed; // see loop.c
	struct ibv_qp_cap cap;
	struct ibv_qp_attr attr;
	int mask, modifies;
	struct wq sq, rq;
	unsigned async_reported;
	uint8_t *wqe; // for the hot path
	uint64_t wqe_posted, wqe_polled;
	bool extended;              // created by ibv_create_qp_ex
	bool open;                  // between ibv_wr_start and ibv_wr_complete
	struct ibv_send_wr *built; // since ibv_wr_start
	int builds;
	union {
		struct ibv_qp pub;
		struct ibv_qp_ex ex;
	};
};

struct srq {
	struct obj o;
	struct ibv_srq_attr attr;
	struct wq rq;
	unsigned async_reported;
	struct ibv_srq pub;
};

struct ah {
	struct obj o;
	struct ibv_ah_attr attr;
	struct ibv_ah pub;
};

// Not in any header: a flag bit and an event type. The access flags are those that Linux 6.12
// requests on rxe, FLUSH_GLOBAL and FLUSH_PERSISTENT.
#define UNKNOWN_BIT (fake_newer ? 1u << 30 : 0)
#define UNKNOWN_ACCESS (fake_newer ? 3u << 8 : 0)
#define UNKNOWN_EVENT 99

// A device with this vendor has two of rxe's faults: it reports an invalidated key with the
// kernel's flag, and a QP cannot be destroyed while a window is bound on it.
#define is_rxe(dev) ((dev)->attr.orig_attr.vendor_id == 0xffffff)
#define RXE_WC_WITH_INV (1 << 2)

// The bit of device_cap_flags_ex that announces Atomic Writes, the kernel's
// IB_UVERBS_DEVICE_ATOMIC_WRITE.
#define ATOMIC_WRITE_CAP (1ULL << 40)

#define OUTER(type, ptr) ((struct type *)((char *)(ptr) - offsetof(struct type, pub)))

extern pthread_mutex_t fake_mu; // guards everything here except the hot paths
extern struct dev fake_dev[2];
extern int fake_hot;  // 0 off, 1 endless completions, 2 one for each signaled request
extern int fake_auto; // requests complete as soon as they are posted
extern int fake_late_flush; // a QP in error keeps its requests until fake_flush
extern int fake_loop; // requests are executed between QPs of the process
extern int fake_newer; // the kernel is newer than the libraries' headers: see SetNewer
extern int fake_block_ms;
extern int fake_fork_result, fake_fork_status;

// begin takes fake_mu, counts and records the call, and returns the errno with which the call is to
// fail, or 0. Each end function releases the lock and returns the result by one error convention.
#define P(x) ((uint64_t)(uintptr_t)(x))
#define ARGS(...) (sizeof((uint64_t[]){__VA_ARGS__}) / 8), (const uint64_t[]){__VA_ARGS__}
int fake_begin(enum fake_fn fn, int nargs, const uint64_t *args);
#define begin(fn, ...) fake_begin(FN_##fn, ARGS(__VA_ARGS__))
void fake_note(enum fake_fn fn, uint64_t arg0); // corrects the first recorded argument
int end_errno(int err);             // 0 or a positive errno
int end_rc(int err);                // 0 or -1 and errno
void *end_ptr(void *pub, int err);  // NULL and errno
void fault(const char *format, ...) __attribute__((format(printf, 1, 2)));

void *obj_new(enum fake_kind kind, size_t size, size_t pub_at, size_t pub_len);
void obj_up(struct obj *o, int i, struct obj *parent);
// obj_get returns NULL and records a fault if pub is not a live object of that kind.
struct obj *obj_get(const char *fn, enum fake_kind kind, const void *pub);
struct obj *obj_get_dying(const char *fn, enum fake_kind kind, const void *pub); // also while it is being destroyed
struct obj *obj_peek(enum fake_kind kind, const void *pub);                       // records nothing, finds destroyed ones
struct obj *obj_find(enum fake_kind kind, bool (*match)(const struct obj *, uint32_t), uint32_t what); // live ones
struct obj *obj_by_id(enum fake_kind kind, uint32_t id);
struct obj *obj_next(enum fake_kind kind, const struct obj *after); // live ones, by increasing id
int obj_busy(const char *fn, struct obj *o);                         // EBUSY and a fault if it has children
void obj_kill(struct obj *o);
const char *kind_name(enum fake_kind kind);

// wait_acked waits until all events delivered are acknowledged; waiting too long is a fault.
void wait_acked(const char *fn, struct obj *o, const uint32_t *completed, const unsigned *reported);
void acked(void);

int evq_open(struct evq *q);
void evq_close(struct evq *q);
void evq_push(struct evq *q, struct ev *e);
struct ev *evq_get(const char *fn, struct evq *q, struct obj *owner); // fake_mu is held; NULL sets errno
int evq_drop(struct evq *q, struct obj *about, struct evq *into);      // returns how many were dropped; into may be NULL

struct ctx *ctx_of(struct ibv_context *c);
struct ibv_context *ctx_open(struct dev *d, bool own);
void ctx_hot(struct ibv_context *c);
struct qp *qp_by_num(uint32_t qpn);
void qp_to_error(struct qp *q);
void cq_add(struct cq *c, const struct fake_wc *wc);
void async_push(struct ctx *c, struct obj *about, struct ibv_async_event ev);
void wq_init(struct wq *w, int room, int max_sge);
void wq_free(struct wq *w);
void wq_clear(struct wq *w);
bool wq_take(struct qp *q, bool recv, struct pending *p);
void loop_run(struct qp *q);
void loop_recv(uint32_t qpn, const struct ibv_srq *srq);
void cm_lost(uint32_t qpn);
bool cm_left(uint32_t qpn);
int wq_complete(struct qp *q, bool recv, int n, uint32_t status, uint32_t bytes);

struct ibv_qp *fake_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *init);
void extend_qp(struct qp *q);
int post_built(struct qp *q);
int fake_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int fake_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int fake_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int fake_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);
int fake_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
int fake_req_notify_cq(struct ibv_cq *cq, int solicited_only);
struct ibv_mw *fake_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int fake_dealloc_mw(struct ibv_mw *mw);
int fake_modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr);
int fake_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags, struct ibv_sge *sge, uint32_t n);
int hot_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int hot_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int hot_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);

// Posting functions can be made to fail within a list, with any result, and with or without bad_wr.
struct post_fail {
	bool on, no_bad;
	int index, result;
};
struct post_fail fake_post_fail(enum fake_fn fn);

// Called by the Go side.
struct fake_call {
	uint32_t fn, nargs;
	uint64_t args[8];
};

uintptr_t fake_symbol(const char *name);
int fake_fn_by_name(const char *name);
const char *fake_fn_name(int fn);
uint64_t fake_count(int fn);
void fake_fail(int fn, uint64_t nth, int err);
void fake_fail_after(int fn, uint64_t nth, int err);
void fake_delay(int fn, int us);
bool fake_delaying(void);
void fake_hold(int fn);
void fake_release(void);
bool fake_holding(void);
void fake_fail_post(int fn, uint64_t nth, int index, int result, bool no_bad);
int fake_last_call(int fn, struct fake_call *call);
int fake_take_fault(char *text, size_t len);
int fake_live(int kind);
uint32_t fake_last_id(int kind);
void fake_reset(void);
void fake_reset_cm(void);
void fake_reset_devices(void);
void fake_reset_posted(void);
int fake_lists(void);
void fake_set_hot(int mode);
void fake_set(int *what, int value);
int fake_posted(uint64_t from, struct fake_wr *out, int n, uint64_t *total);
int fake_inject_wc(uint32_t qpn, int recv, const struct fake_wc *wc);
int fake_complete(uint32_t qpn, int recv, int n, uint32_t status, uint32_t bytes);
int fake_inject_async(int dev, uint32_t type, uint32_t id);
int fake_qp_info(uint32_t qpn, struct ibv_qp_attr *attr, struct ibv_qp_init_attr *init, int *mask, int *modifies);
uint32_t fake_qp_nth(int nth);
int fake_flush(uint32_t qpn);
bool fake_move_qp(uint32_t qpn, int state);
bool fake_set_depths(uint32_t qpn, int ord, int ird);
int fake_ah_info(uint32_t id, struct ibv_ah_attr *attr);
int fake_mr_info(uint32_t lkey, struct fake_call *out);
void fake_lock(void);
void fake_unlock(void);

// Connections.
struct fake_cm_event {
	uint32_t event;
	int32_t status;
	int32_t err; // errno when the event is read
	uint32_t ud;
	uint32_t qp_num, qkey;
	uint8_t responder_resources, initiator_depth, flow_control, retry_count, rnr_retry_count, srq;
	uint16_t len;
	uint8_t data[256];
};

struct fake_cm_id {
	uint32_t id, channel, state, ps, listening, peer, device; // device: 0 none, 1 fake0, 2 fake1
	uint16_t src_port, dst_port;
	uint32_t tos, tos_set, reuseaddr, afonly, afonly_set, ack_timeout, backlog;
	uint32_t disconnects, established;
	struct fake_cm_event param; // of the last rdma_connect, rdma_accept or rdma_reject
};

int fake_cm_next(int fn, const struct fake_cm_event *ev);
int fake_cm_inject(uint32_t id, const struct fake_cm_event *ev);
int fake_cm_info(uint32_t id, struct fake_cm_id *out);
uint32_t fake_cm_last(void);

// Measurements.
uint64_t fake_bench_post(int n, int iters);
uint64_t fake_bench_poll(int n, int iters);
int fake_nop(int x);

#endif
