// SPDX-License-Identifier: BSD-3-Clause

// Shared by the test programs.

#ifndef PROGRAM_H
#define PROGRAM_H

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <infiniband/verbs.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>
#include <rdma/rdma_verbs.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what) \
	do { \
		if (!(what)) { \
			fprintf(stderr, "%s:%d: %s: errno %d, %s\n", __func__, __LINE__, #what, errno, strerror(errno)); \
			_exit(1); \
		} \
	} while (0)

#define SIZE 4096

// end is one end of a connection.
struct end {
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_comp_channel *ch;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	char *buf;
};

struct pair {
	struct rdma_event_channel *sch, *cch;
	struct rdma_cm_id *listen;
	struct end s, c;
	struct rdma_conn_param request, accepted, connected; // of the events CONNECT_REQUEST, and ESTABLISHED of s and c
};

// make creates the objects in struct end except the ID, before it connects, and posts a receive of
// the whole buffer.
void make(struct end *e);
void make_by(struct end *e, struct ibv_qp_init_attr *a); // without the receive; also creates the domain if there is none
void connect_pair(struct pair *p);
void connect_pair_by(struct pair *p, void (*make)(struct end *e), struct rdma_conn_param *connect, struct rdma_conn_param *accept);
void close_pair(struct pair *p);
void ended(struct pair *p); // consumes the events of the disconnect
void destroy_pair(struct pair *p);

struct sockaddr_in loopback(int port);
struct rdma_cm_event *expect(struct rdma_event_channel *ch, enum rdma_cm_event_type type); // waits for it, does not acknowledge it
void take(struct rdma_event_channel *ch, enum rdma_cm_event_type type);
struct ibv_wc completion(struct end *e); // waits for one, using the completion channel

// requests.c
void sends(void);
void one_sided(void);
void refused_keys(void);
void fence(void);
void bad_sends(void);
void bad_receives(void);
void signaled(void);
void solicited(void);
void windows(void);
void shared(void);

// attributes.c
void depths(void);
void retries(void);
void by_hand(void);
void sizes(void);
void describe(void);

#endif // PROGRAM_H
