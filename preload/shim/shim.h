// SPDX-License-Identifier: BSD-3-Clause

// The C half of the preload: the public functions of libibverbs and librdmacm, the structures that
// programs see, and the queues of events. The work is done in Go, by the functions of ../bridge.h.
//
// The functions have no symbol version, so that references to any version bind to them when the
// library is preloaded. The real libraries stay loaded: driver libraries need their private
// symbols, and they provide the functions that need no device.

#ifndef GOVERBS_SHIM_H
#define GOVERBS_SHIM_H

#define _GNU_SOURCE
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// The header defines macros for them, for callers.
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

int ibv_query_gid_type(struct ibv_context *c, uint8_t port, unsigned int index, unsigned int *type); // declared in no header

#include "../bridge.h"

#define PUBLIC __attribute__((visibility("default")))
#define UNUSED __attribute__((unused))

// library.c: the Go library.

// go holds its functions. In a process without it, such as a child forked after the first use, each
// returns ENODEV.
struct rnic_calls {
#define F(name, args) int (*name) args;
	RNIC_CALLS(F)
#undef F
};
extern struct rnic_calls go;

bool ready(void); // opens the Go library if not yet done; false: there is none, errno is set
bool alive(void); // false: forked from a process that has used RDMA; sets errno and prints a message

// options.c

const struct rnic_options *options(void);
bool set(const char *option); // neither empty nor 0
void say_once(const char *what, const char *why); // prints to stderr, once for each what, a literal
void refused(const char *what); // reports an unsupported feature if the user asked for it (verbose)

// dlopen.c

void *(*real_dlopen(void))(const char *file, int flags); // for this library's own use

static inline int fail(int err) // the convention of librdmacm
{
	if (!err)
		return 0;
	errno = err;
	return -1;
}

static inline void *nothing(void *object, int err) // frees an object that could not be created
{
	free(object);
	errno = err;
	return NULL;
}

// real.c: kernel devices that the program sees next to the RNIC, if the user asks for that (goverbs
// run --keep-real). Their objects belong to the real libibverbs: each function here forwards calls
// for such an object. Functions that are inline in the header never get here.

extern struct ibv_device device; // device.c: the RNIC

static inline bool ours(const struct ibv_context *c) { return c->device == &device; }

#define REAL_CALLS(F) \
	F(ibv_get_device_list) F(ibv_free_device_list) F(ibv_get_device_name) F(ibv_get_device_index) F(ibv_get_device_guid) \
	F(ibv_open_device) F(ibv_close_device) F(ibv_import_device) F(ibv_fork_init) F(ibv_is_fork_initialized) F(ibv_query_device) \
	F(ibv_query_port) F(_ibv_query_gid_ex) F(_ibv_query_gid_table) F(ibv_query_gid) F(ibv_query_gid_type) F(ibv_query_pkey) \
	F(ibv_get_pkey_index) F(ibv_get_async_event) F(ibv_ack_async_event) F(ibv_alloc_pd) F(ibv_dealloc_pd) F(ibv_import_pd) \
	F(ibv_unimport_pd) F(ibv_reg_mr) F(ibv_reg_mr_iova) F(ibv_reg_mr_iova2) F(ibv_reg_dmabuf_mr) F(ibv_rereg_mr) F(ibv_dereg_mr) \
	F(ibv_import_mr) F(ibv_unimport_mr) F(ibv_import_dm) F(ibv_unimport_dm) F(ibv_create_comp_channel) F(ibv_destroy_comp_channel) \
	F(ibv_create_cq) F(ibv_resize_cq) F(ibv_destroy_cq) F(ibv_get_cq_event) F(ibv_ack_cq_events) F(ibv_create_srq) \
	F(ibv_modify_srq) F(ibv_query_srq) F(ibv_destroy_srq) F(ibv_create_qp) F(ibv_qp_to_qp_ex) F(ibv_modify_qp) F(ibv_query_qp) \
	F(ibv_query_qp_data_in_order) F(ibv_destroy_qp) F(ibv_query_ece) F(ibv_set_ece) F(ibv_create_ah) F(ibv_create_ah_from_wc) \
	F(ibv_init_ah_from_wc) F(ibv_destroy_ah) F(ibv_resolve_eth_l2_from_gid) F(ibv_attach_mcast) F(ibv_detach_mcast)

struct real_calls {
#define F(name) __typeof__(name) *name;
	REAL_CALLS(F)
#undef F
};

const struct real_calls *kept(void); // NULL: the program sees no kernel device
const struct real_calls *real(void); // for an object of such a device

// REAL starts a function of an object that has a context. For a kernel device it returns the result
// of the real function.
#define REAL(context, name, ...) \
	do { \
		if (!ours(context)) \
			return real()->name(__VA_ARGS__); \
	} while (0)

// queue.c: events waiting for the program.

struct node {
	struct node *next;
};

// queue is a list and an eventfd, a semaphore that counts the nodes. So poll, epoll and O_NONBLOCK
// work as with the kernel's descriptors, and signals interrupt a blocking read.
//
// Invariant: the count of the eventfd plus the number of readers that have taken from it but not
// yet from the list equals the length of the list.
struct queue {
	int fd;
	pthread_mutex_t mu; // guards the list
	struct node *head, *tail;
};

bool queue_init(struct queue *q);
void queue_free(struct queue *q); // the caller frees the nodes
void queue_push(struct queue *q, struct node *n);
struct node *queue_pull(struct queue *q); // waits unless the descriptor has O_NONBLOCK; NULL: errno is set
struct node *queue_take(struct queue *q, bool (*match)(struct node *n, void *arg), void *arg); // the first that matches, or NULL

// acks counts the events of an object delivered to the program, and those that it acknowledged. A
// call that destroys the object waits until the two are equal, as in libibverbs.
struct acks {
	pthread_mutex_t mu;
	pthread_cond_t all;
	unsigned given, acked;
};

void acks_init(struct acks *a);
void acks_give(struct acks *a);
void acks_ack(struct acks *a, unsigned n);
void acks_wait(struct acks *a);

// The objects. Each starts with the structure that the program sees.

struct context {
	struct verbs_context v;
	uint32_t h;
	struct queue async;
};

struct channel {
	struct ibv_comp_channel c;
	uint32_t h;
	struct queue events;
};

struct cq {
	struct ibv_cq c;
	uint32_t h;
	struct acks comp, async;
};

struct srq {
	struct ibv_srq s;
	uint32_t h;
	struct acks async;
};

struct qp {
	struct ibv_qp q;
	uint32_t h;
	int sig_all;
	struct acks async;
	struct qp *next; // list of all QPs
};

struct mr {
	struct ibv_mr m;
	struct mr *next; // list of all regions
};

struct mw {
	struct ibv_mw w;
	uint32_t h;
};

static inline struct context *context_of(struct ibv_context *c)
{
	return (struct context *)((char *)c - offsetof(struct context, v.context));
}

static inline uint32_t handle_of(struct ibv_context *c) { return context_of(c)->h; }

extern const struct rnic_events events;	     // library.c
void context_ops(struct verbs_context *v);   // ops.c
struct qp *qp_by_number(uint32_t num);	     // qp.c
struct ibv_context *shared_context(void);    // device.c: the connection manager's
void region_add(struct mr *m);	     // unmap.c
void region_remove(struct mr *m);

// What signals.c does before and after the Go library is opened. function is in the library.
void signals_before(void);
void signals_after(void *function);
void cq_event(void *owner);		     // cq.c
void async_event(void *owner, int type, void *element, int port); // async.c
void async_forget(struct ibv_context *c, void *element);	     // async.c: drops unread events
void cm_event(void *owner, const struct rnic_cm_event *event);	     // cm_event.c

// The connection manager.

struct event_channel {
	struct rdma_event_channel c;
	struct queue events;
};

struct event {
	struct node node;
	struct rdma_cm_event e;
	uint8_t private_data[RNIC_PRIVATE];
};

struct id {
	struct rdma_cm_id id;
	pthread_mutex_t mu;	   // guards id.channel against concurrent events while it changes
	uint32_t conn, request, listener;
	int port;		   // a socket that reserves the bound port, -1 = none
	int backlog;
	bool bound, sync;
	bool af_only, reuse;
	struct ibv_qp_init_attr *ep; // from rdma_create_ep: for the QPs of connections that a listener accepts
	struct ibv_pd *ep_pd;
	struct acks events;
};

static inline struct id *id_of(struct rdma_cm_id *id) { return (struct id *)id; }

void cm_push(struct id *id, struct event *e);
void cm_tell(struct id *id, int event, int status);
int cm_complete(struct id *id); // waits for the result if the ID is synchronous
struct id *id_new(struct rdma_event_channel *ch, void *context, enum rdma_port_space ps);
void id_bind_device(struct id *id);
struct rnic_addr to_addr(const struct sockaddr *sa);
void from_addr(const struct rnic_addr *a, struct sockaddr_storage *ss);
int port_keep(struct id *id, struct sockaddr *at); // cm_address.c; returns an errno
void port_share(struct id *id);
void port_drop(struct id *id);

#endif // GOVERBS_SHIM_H
