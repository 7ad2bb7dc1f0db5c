// SPDX-License-Identifier: BSD-3-Clause

// The programs of the tests of package preload: "program NAME" runs one of them. If everything is
// as expected it prints nothing and exits with 0; otherwise it prints what is wrong.
#include "program.h"

struct sockaddr_in loopback(int port)
{
	return (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

// expect waits for an event and returns it unacknowledged.
struct rdma_cm_event *expect(struct rdma_event_channel *ch, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *e;
	CHECK(!rdma_get_cm_event(ch, &e));
	if (e->event != type)
		fprintf(stderr, "%s (status %d) instead of %s\n", rdma_event_str(e->event), e->status, rdma_event_str(type));
	CHECK(e->event == type);
	return e;
}

void take(struct rdma_event_channel *ch, enum rdma_cm_event_type type) { CHECK(!rdma_ack_cm_event(expect(ch, type))); }

void make_by(struct end *e, struct ibv_qp_init_attr *a)
{
	if (!e->pd)
		e->pd = ibv_alloc_pd(e->id->verbs);
	CHECK(e->pd);
	e->ch = ibv_create_comp_channel(e->id->verbs);
	CHECK(e->ch);
	e->cq = ibv_create_cq(e->id->verbs, 64, e, e->ch, 0);
	CHECK(e->cq);
	CHECK(!ibv_req_notify_cq(e->cq, 0));
	a->qp_type = IBV_QPT_RC;
	if (!a->send_cq)
		a->send_cq = e->cq;
	if (!a->recv_cq)
		a->recv_cq = e->cq;
	CHECK(!rdma_create_qp(e->id, e->pd, a));
	e->buf = calloc(1, SIZE);
	e->mr = ibv_reg_mr(e->pd, e->buf, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	CHECK(e->mr);
}

void make(struct end *e)
{
	struct ibv_qp_init_attr a = {.cap = {.max_send_wr = 24, .max_recv_wr = 8, .max_send_sge = 2, .max_recv_sge = 1, .max_inline_data = 64}};
	make_by(e, &a);
	struct ibv_sge s = {(uintptr_t)e->buf, SIZE, e->mr->lkey};
	struct ibv_recv_wr r = {.wr_id = 7, .sg_list = &s, .num_sge = 1}, *bad;
	CHECK(!ibv_post_recv(e->id->qp, &r, &bad));
}

static void destroy(struct end *e)
{
	rdma_destroy_qp(e->id);
	CHECK(!ibv_destroy_cq(e->cq));
	CHECK(!ibv_destroy_comp_channel(e->ch));
	CHECK(!ibv_dereg_mr(e->mr));
	CHECK(!ibv_dealloc_pd(e->pd));
	CHECK(!rdma_destroy_id(e->id));
	free(e->buf);
}

// completion waits for one completion, using the completion channel.
struct ibv_wc completion(struct end *e)
{
	struct ibv_wc wc;
	for (;;) {
		int n = ibv_poll_cq(e->cq, 1, &wc);
		CHECK(n >= 0);
		if (n)
			return wc;
		struct ibv_cq *cq;
		void *context;
		CHECK(!ibv_get_cq_event(e->ch, &cq, &context));
		CHECK(cq == e->cq && context == e);
		ibv_ack_cq_events(cq, 1);
		CHECK(!ibv_req_notify_cq(cq, 0));
	}
}

static void post(struct end *e, enum ibv_wr_opcode op, struct end *peer)
{
	struct ibv_sge s = {(uintptr_t)e->buf, op == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : SIZE, e->mr->lkey};
	struct ibv_send_wr w = {.wr_id = op, .opcode = op, .send_flags = IBV_SEND_SIGNALED, .sg_list = &s, .num_sge = 1}, *bad;
	w.wr.rdma.remote_addr = (uintptr_t)peer->buf;
	w.wr.rdma.rkey = peer->mr->rkey;
	if (op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		w.wr.atomic.remote_addr = (uintptr_t)peer->buf;
		w.wr.atomic.compare_add = 5;
		w.wr.atomic.rkey = peer->mr->rkey;
	}
	CHECK(!ibv_post_send(e->id->qp, &w, &bad));
}

void connect_pair_by(struct pair *p, void (*make)(struct end *e), struct rdma_conn_param *connect, struct rdma_conn_param *accept)
{
	struct sockaddr_in at = loopback(0);
	p->sch = rdma_create_event_channel();
	p->cch = rdma_create_event_channel();
	CHECK(p->sch && p->cch);
	CHECK(!rdma_create_id(p->sch, &p->listen, NULL, RDMA_PS_TCP));
	CHECK(!rdma_bind_addr(p->listen, (struct sockaddr *)&at));
	CHECK(!rdma_listen(p->listen, 4));
	at.sin_port = rdma_get_src_port(p->listen);
	CHECK(at.sin_port);
	CHECK(!rdma_create_id(p->cch, &p->c.id, p, RDMA_PS_TCP));
	CHECK(!rdma_resolve_addr(p->c.id, NULL, (struct sockaddr *)&at, 2000));
	take(p->cch, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(!rdma_resolve_route(p->c.id, 2000));
	take(p->cch, RDMA_CM_EVENT_ROUTE_RESOLVED);
	make(&p->c);
	CHECK(!rdma_connect(p->c.id, connect));
	struct rdma_cm_event *e = expect(p->sch, RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(e->listen_id == p->listen && e->param.conn.private_data_len >= 5 && !memcmp(e->param.conn.private_data, "hello", 5)); // InfiniBand pads it
	p->s.id = e->id;
	p->request = e->param.conn;
	CHECK(!rdma_ack_cm_event(e));
	make(&p->s);
	CHECK(!rdma_accept(p->s.id, accept));
	e = expect(p->sch, RDMA_CM_EVENT_ESTABLISHED);
	p->accepted = e->param.conn;
	CHECK(!rdma_ack_cm_event(e));
	e = expect(p->cch, RDMA_CM_EVENT_ESTABLISHED);
	p->connected = e->param.conn;
	CHECK(!rdma_ack_cm_event(e));
}

void connect_pair(struct pair *p)
{
	struct rdma_conn_param param = {.private_data = "hello", .private_data_len = 5, .responder_resources = 4, .initiator_depth = 4};
	connect_pair_by(p, make, &param, NULL);
}

void ended(struct pair *p)
{
	take(p->cch, RDMA_CM_EVENT_DISCONNECTED);
	take(p->sch, RDMA_CM_EVENT_DISCONNECTED);
}

void destroy_pair(struct pair *p)
{
	destroy(&p->c);
	destroy(&p->s);
	CHECK(!rdma_destroy_id(p->listen));
	rdma_destroy_event_channel(p->sch);
	rdma_destroy_event_channel(p->cch);
}

void close_pair(struct pair *p)
{
	CHECK(!rdma_disconnect(p->c.id));
	ended(p);
	destroy_pair(p);
}

static void traffic(struct pair *p)
{
	struct ibv_wc wc;
	strcpy(p->c.buf, "a message");
	post(&p->c, IBV_WR_SEND, &p->s);
	wc = completion(&p->c);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == IBV_WR_SEND);
	wc = completion(&p->s);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV && wc.wr_id == 7 && wc.byte_len == SIZE);
	CHECK(!strcmp(p->s.buf, "a message"));
	strcpy(p->s.buf, "to be read");
	post(&p->c, IBV_WR_RDMA_READ, &p->s);
	wc = completion(&p->c);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RDMA_READ);
	CHECK(!strcmp(p->c.buf, "to be read"));
	*(uint64_t *)p->s.buf = 37;
	post(&p->c, IBV_WR_ATOMIC_FETCH_AND_ADD, &p->s);
	wc = completion(&p->c);
	CHECK(wc.status == IBV_WC_SUCCESS && *(uint64_t *)p->c.buf == 37 && *(uint64_t *)p->s.buf == 42);
}

static void pair(void)
{
	struct pair p = {0};
	connect_pair(&p);
	traffic(&p);
	close_pair(&p);
}

// inline_data: the device copies inline data during the post and ignores their keys. It checks the
// keys of other data.
static void inline_data(void)
{
	enum { MANY = 20 };
	struct pair p = {0};
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_wc wc;
	char text[16] = "from the stack";
	struct ibv_sge two[2] = {{(uintptr_t)"two ", 4, 0}, {(uintptr_t)"constants", 10, 12345}};
	struct ibv_sge one = {(uintptr_t)text, sizeof text, 0};
	struct ibv_send_wr w[MANY] = {0}, *bad;
	connect_pair(&p);
	CHECK(!ibv_query_qp(p.c.id->qp, &attr, IBV_QP_CAP, &init) && attr.cap.max_inline_data >= 64);
	for (int i = 0; i < MANY; i++) {
		w[i] = (struct ibv_send_wr){.wr_id = i, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_INLINE,
			.sg_list = i % 2 ? two : &one, .num_sge = 1 + i % 2, .next = i + 1 < MANY ? &w[i + 1] : NULL};
		w[i].wr.rdma.remote_addr = (uintptr_t)p.s.buf + 16 * i;
		w[i].wr.rdma.rkey = p.s.mr->rkey;
	}
	w[MANY - 1].send_flags |= IBV_SEND_SIGNALED;
	CHECK(!ibv_post_send(p.c.id->qp, w, &bad));
	memset(text, 'x', sizeof text);
	wc = completion(&p.c);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == MANY - 1);
	memcpy(p.c.buf, "read", 5);
	post(&p.c, IBV_WR_RDMA_READ, &p.s); // after the Writes
	wc = completion(&p.c);
	CHECK(wc.status == IBV_WC_SUCCESS);
	for (int i = 0; i < MANY; i++)
		CHECK(!strcmp(p.c.buf + 16 * i, i % 2 ? "two constants" : "from the stack"));

	one.length = attr.cap.max_inline_data + 1;
	w[0].next = NULL;
	CHECK(ibv_post_send(p.c.id->qp, w, &bad) == EINVAL && bad == w);

	one.length = 5; // not inline: the key is checked
	w[0].send_flags = IBV_SEND_SIGNALED;
	CHECK(!ibv_post_send(p.c.id->qp, w, &bad));
	do
		wc = completion(&p.c);
	while (wc.wr_id == 7); // the receive
	CHECK(wc.wr_id == 0 && wc.status == IBV_WC_LOC_PROT_ERR);
	close_pair(&p);
}

static void *pair_thread(void *arg)
{
	(void)arg;
	pair();
	return NULL;
}

// threads: each thread has its own event channels.
static void threads(void)
{
	pthread_t t[4];
	for (int i = 0; i < 4; i++)
		CHECK(!pthread_create(&t[i], NULL, pair_thread, NULL));
	for (int i = 0; i < 4; i++)
		CHECK(!pthread_join(t[i], NULL));
}

static int descriptors(void)
{
	int n = 0;
	DIR *d = opendir("/proc/self/fd");
	CHECK(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

// leak: the resources of a connection are released, some of them shortly after it ends. Resources
// that the process has only once may be allocated after the first connection.
static void leak(void)
{
	enum { N = 20, ONCE = 4 };
	pair();
	int before = descriptors();
	for (int i = 0; i < N; i++)
		pair();
	for (int ms = 0; descriptors() > before + ONCE; ms++) {
		CHECK(ms < 30000);
		usleep(1000);
	}
}

// order: connection requests arrive in the order of the calls.
static void order(void)
{
	enum { N = 24 };
	struct rdma_event_channel *sch = rdma_create_event_channel(), *cch = rdma_create_event_channel();
	struct rdma_cm_id *listen, *ids[N];
	struct ibv_pd *pd = NULL;
	struct sockaddr_in at = loopback(0);
	CHECK(!rdma_create_id(sch, &listen, NULL, RDMA_PS_TCP));
	CHECK(!rdma_bind_addr(listen, (struct sockaddr *)&at));
	CHECK(!rdma_listen(listen, N));
	at.sin_port = rdma_get_src_port(listen);
	for (int i = 0; i < N; i++) {
		CHECK(!rdma_create_id(cch, &ids[i], NULL, RDMA_PS_TCP));
		CHECK(!rdma_resolve_addr(ids[i], NULL, (struct sockaddr *)&at, 2000));
		take(cch, RDMA_CM_EVENT_ADDR_RESOLVED);
		CHECK(!rdma_resolve_route(ids[i], 2000));
		take(cch, RDMA_CM_EVENT_ROUTE_RESOLVED);
		struct ibv_qp_init_attr a = {.qp_type = IBV_QPT_RC, .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
		CHECK(!rdma_create_qp(ids[i], pd, &a));
	}
	for (int i = 0; i < N; i++) {
		unsigned char n = i;
		struct rdma_conn_param param = {.private_data = &n, .private_data_len = 1};
		CHECK(!rdma_connect(ids[i], &param));
	}
	for (int i = 0; i < N; i++) {
		struct rdma_cm_event *e = expect(sch, RDMA_CM_EVENT_CONNECT_REQUEST);
		CHECK(*(unsigned char *)e->param.conn.private_data == i);
		struct rdma_cm_id *id = e->id;
		CHECK(!rdma_ack_cm_event(e));
		CHECK(!rdma_reject(id, "no", 2));
		CHECK(!rdma_destroy_id(id));
	}
	for (int i = 0; i < N; i++) {
		struct rdma_cm_event *e = expect(cch, RDMA_CM_EVENT_REJECTED);
		CHECK(e->param.conn.private_data_len == 2 && !memcmp(e->param.conn.private_data, "no", 2));
		CHECK(!rdma_ack_cm_event(e));
	}
}

// port: the port belongs to the ID from bind on.
static void port(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_id *a, *b;
	struct sockaddr_in at = loopback(0);
	CHECK(!rdma_create_id(ch, &a, NULL, RDMA_PS_TCP) && !rdma_create_id(ch, &b, NULL, RDMA_PS_TCP));
	CHECK(!rdma_bind_addr(a, (struct sockaddr *)&at));
	at.sin_port = rdma_get_src_port(a);
	CHECK(rdma_bind_addr(b, (struct sockaddr *)&at) == -1 && errno == EADDRINUSE);
	CHECK(!rdma_listen(a, 1));
	CHECK(rdma_bind_addr(b, (struct sockaddr *)&at) == -1 && errno == EADDRINUSE);
	CHECK(!rdma_destroy_id(a));
	CHECK(!rdma_bind_addr(b, (struct sockaddr *)&at));
	CHECK(!rdma_destroy_id(b));
	struct sockaddr_in far = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0xc0000201)}; // 192.0.2.1 (RFC 5737)
	CHECK(!rdma_create_id(ch, &a, NULL, RDMA_PS_TCP));
	CHECK(rdma_bind_addr(a, (struct sockaddr *)&far) == -1 && errno == ENODEV);
}

// waiting: descriptors behave like the kernel's.
static void waiting(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_event *e;
	struct rdma_cm_id *id;
	struct sockaddr_in to = loopback(9);
	struct pollfd p = {ch->fd, POLLIN, 0};
	CHECK(!fcntl(ch->fd, F_SETFL, O_NONBLOCK));
	CHECK(rdma_get_cm_event(ch, &e) == -1 && errno == EAGAIN);
	CHECK(poll(&p, 1, 0) == 0);
	CHECK(!rdma_create_id(ch, &id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 2000));
	CHECK(!rdma_resolve_route(id, 2000));
	int ep = epoll_create1(0);
	struct epoll_event ev = {.events = EPOLLIN};
	CHECK(!epoll_ctl(ep, EPOLL_CTL_ADD, ch->fd, &ev));
	CHECK(epoll_wait(ep, &ev, 1, 30000) == 1);
	take(ch, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(poll(&p, 1, 0) == 1); // another event is queued
	struct rdma_event_channel *other = rdma_create_event_channel();
	CHECK(!rdma_migrate_id(id, other)); // which moves with the ID
	CHECK(poll(&p, 1, 0) == 0);
	take(other, RDMA_CM_EVENT_ROUTE_RESOLVED);
	CHECK(!rdma_destroy_id(id));
}

static volatile sig_atomic_t alarms;
static void count(int s) { (void)s; alarms++; }

static void *later(void *arg)
{
	usleep(300000); // so that the alarm comes first
	struct rdma_cm_id *id = arg;
	struct sockaddr_in to = loopback(9);
	CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 2000));
	return NULL;
}

// signals: a handler with SA_RESTART does not interrupt a wait, one without does.
static void signals(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_event *e;
	struct rdma_cm_id *id;
	struct sigaction sa = {.sa_handler = count};
	struct itimerval soon = {.it_value.tv_usec = 50000}, again = {.it_value.tv_usec = 50000, .it_interval.tv_usec = 50000}, never = {0};
	CHECK(!rdma_create_id(ch, &id, NULL, RDMA_PS_TCP));
	CHECK(!sigaction(SIGALRM, &sa, NULL));
	CHECK(!setitimer(ITIMER_REAL, &again, NULL));
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	CHECK(rdma_get_cm_event(ch, &e) == -1 && errno == EINTR && alarms);
	CHECK(!setitimer(ITIMER_REAL, &never, NULL));
	sa.sa_flags = SA_RESTART;
	CHECK(!sigaction(SIGALRM, &sa, NULL));
	alarms = 0;
	CHECK(!setitimer(ITIMER_REAL, &soon, NULL));
	while (!alarms)
		pause();
	pthread_t t;
	CHECK(!pthread_sigmask(SIG_BLOCK, &set, NULL));
	CHECK(!pthread_create(&t, NULL, later, id)); // it does not get the signal
	CHECK(!pthread_sigmask(SIG_UNBLOCK, &set, NULL));
	alarms = 0;
	CHECK(!setitimer(ITIMER_REAL, &again, NULL));
	take(ch, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(!setitimer(ITIMER_REAL, &never, NULL));
	CHECK(!pthread_join(t, NULL));
}

static sigjmp_buf back;
static void fault(int s) { (void)s; siglongjmp(back, 1); }

// faults: the program's handler of SIGSEGV, installed before or after the first use, is called for
// the program's own faults.
static void faults(void)
{
	struct sigaction sa = {.sa_handler = fault};
	volatile int *nowhere = (int *)8;
	CHECK(!sigaction(SIGSEGV, &sa, NULL));
	pair();
	if (!sigsetjmp(back, 1)) {
		*nowhere = 1;
		CHECK(!"reached");
	}
	CHECK(!sigaction(SIGSEGV, &sa, NULL));
	if (!sigsetjmp(back, 1)) {
		*nowhere = 1;
		CHECK(!"reached");
	}
	pair();
}

static void child_ends_well(pid_t pid)
{
	int st;
	CHECK(pid > 0 && waitpid(pid, &st, 0) == pid);
	CHECK(WIFEXITED(st) && !WEXITSTATUS(st));
}

// fork_before: both processes can use RDMA.
static void fork_before(void)
{
	pid_t pid = fork();
	pair();
	if (!pid)
		_exit(0);
	child_ends_well(pid);
}

// fork_after: the child's calls fail, the parent continues.
static void fork_after(void)
{
	struct pair p = {0};
	connect_pair(&p);
	pid_t pid = fork();
	if (!pid) {
		alarm(30);
		struct ibv_wc wc;
		struct rdma_cm_event *e;
		struct rdma_cm_id *id;
		struct ibv_cq *cq;
		void *context;
		struct ibv_recv_wr w = {0}, *bad;
		errno = 0;
		CHECK(!ibv_alloc_pd(p.c.id->verbs) && errno == ENODEV);
		CHECK(ibv_poll_cq(p.c.cq, 1, &wc) < 0);
		CHECK(ibv_post_recv(p.c.id->qp, &w, &bad) == ENODEV);
		CHECK(rdma_get_cm_event(p.cch, &e) == -1 && errno == ENODEV);
		CHECK(ibv_get_cq_event(p.c.ch, &cq, &context) == -1 && errno == ENODEV);
		CHECK(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) == -1 && errno == ENODEV);
		CHECK(ibv_dereg_mr(p.c.mr) == ENODEV);
		CHECK(!ibv_get_device_list(NULL) && errno == ENODEV);
		exit(0);
	}
	child_ends_well(pid);
	traffic(&p);
	close_pair(&p);
}

// exec_after: a child that calls exec can use RDMA.
static void exec_after(void)
{
	pair();
	pid_t pid = fork();
	if (!pid) {
		execl("/proc/self/exe", "program", "pair", NULL);
		_exit(1);
	}
	child_ends_well(pid);
}

// exec_without: a child without the preload has no device, and runs.
static void exec_without(void)
{
	pair();
	pid_t pid = fork();
	if (!pid) {
		unsetenv("LD_PRELOAD");
		execl("/proc/self/exe", "program", "nodevice", NULL);
		_exit(1);
	}
	child_ends_well(pid);
}

static void nodevice(void)
{
	struct ibv_device **l = ibv_get_device_list(NULL);
	for (int i = 0; l && l[i]; i++)
		CHECK(strncmp(ibv_get_device_name(l[i]), "usiw", 4));
}

// memlock: regions do not count as locked memory.
static void memlock(void)
{
	struct rlimit none = {0, 0};
	CHECK(!setrlimit(RLIMIT_MEMLOCK, &none));
	CHECK(getuid() != 0 || !setgid(65534));
	CHECK(getuid() != 0 || !setuid(65534)); // nor do they need root
	pair();
}

// leaves: the program exits with everything open.
static void leaves(void)
{
	static struct pair p;
	connect_pair(&p);
	exit(0);
}

// refusals: unsupported operations.
static void refusals(void)
{
	int n;
	struct ibv_device **l = ibv_get_device_list(&n);
	CHECK(l && n == 1 && l[0] && !l[1]);
	CHECK(!strncmp(ibv_get_device_name(l[0]), "usiw0", 5));
	struct ibv_context *c = ibv_open_device(l[0]);
	CHECK(c);
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	union ibv_gid gid;
	CHECK(!ibv_query_device(c, &attr) && attr.phys_port_cnt == 1);
	CHECK(!ibv_query_port(c, 1, &port) && port.state == IBV_PORT_ACTIVE);
	CHECK(!ibv_query_gid(c, 1, 0, &gid));
	CHECK(attr.vendor_id && port.gid_tbl_len && port.active_width && port.active_speed && gid.global.subnet_prefix); // programs take 0 for broken
	CHECK(ibv_query_port(c, 2, &port) == EINVAL && ibv_query_gid(c, 1, port.gid_tbl_len, &gid) == -1);
	struct ibv_pd *pd = ibv_alloc_pd(c);
	struct ibv_cq *cq = ibv_create_cq(c, 1, NULL, NULL, 0);
	CHECK(pd && cq);
	struct ibv_alloc_dm_attr dm = {.length = 64};
	CHECK(!ibv_alloc_dm(c, &dm) && errno == EOPNOTSUPP);
	struct ibv_cq_init_attr_ex ex = {.cqe = 1};
	CHECK(!ibv_create_cq_ex(c, &ex) && errno == EOPNOTSUPP);
	struct ibv_ah_attr ah = {.port_num = 1};
	CHECK(!ibv_create_ah(pd, &ah) && errno == EOPNOTSUPP);
	struct ibv_qp_init_attr ud = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UD, .cap = {1, 1, 1, 1, 0}};
	CHECK(!ibv_create_qp(pd, &ud) && errno == EOPNOTSUPP);
	struct rdma_cm_id *id;
	CHECK(rdma_create_id(NULL, &id, NULL, RDMA_PS_UDP) == -1 && errno == EPROTONOSUPPORT);
	char b[8];
	CHECK(!ibv_reg_mr(pd, b, sizeof b, IBV_ACCESS_REMOTE_WRITE) && errno == EINVAL); // without LOCAL_WRITE
	CHECK(ibv_dealloc_pd(pd) == 0);
	struct ibv_comp_channel *ch = ibv_create_comp_channel(c);
	struct ibv_cq *of = ibv_create_cq(c, 1, NULL, ch, 0);
	CHECK(ch && of && ibv_destroy_comp_channel(ch) == EBUSY);
	CHECK(!ibv_destroy_cq(of) && !ibv_destroy_comp_channel(ch));
	CHECK(!ibv_close_device(c)); // with an object: it is destroyed too
	CHECK(!ibv_destroy_cq(cq));
	CHECK(!strcmp(ibv_wc_status_str(IBV_WC_SUCCESS), "success")); // the real library's
}

// events: a QP gets an asynchronous event, and destroying it waits for the acknowledgement.
static void async(void)
{
	struct pair p = {0};
	connect_pair(&p);
	struct pollfd fd = {p.s.id->verbs->async_fd, POLLIN, 0};
	CHECK(poll(&fd, 1, 0) == 0);
	struct ibv_mr gone = *p.s.mr;
	struct end fake = p.s;
	gone.rkey ^= 0x100;
	fake.mr = &gone; // a key without a region
	post(&p.c, IBV_WR_RDMA_WRITE, &fake);
	CHECK(poll(&fd, 1, 30000) == 1);
	struct ibv_async_event e;
	bool seen = false;
	while (!seen) { // both QPs have one, in any order
		CHECK(!ibv_get_async_event(p.s.id->verbs, &e));
		CHECK(e.element.qp == p.s.id->qp || e.element.qp == p.c.id->qp);
		CHECK(e.event_type == IBV_EVENT_QP_FATAL || e.event_type == IBV_EVENT_QP_REQ_ERR || e.event_type == IBV_EVENT_QP_ACCESS_ERR);
		seen = e.element.qp == p.s.id->qp;
		ibv_ack_async_event(&e);
	}
	take(p.sch, RDMA_CM_EVENT_DISCONNECTED);
	take(p.cch, RDMA_CM_EVENT_DISCONNECTED);
	destroy(&p.c);
	destroy(&p.s);
	CHECK(!rdma_destroy_id(p.listen));
}

// unmap: memory is unmapped while it is registered. The peer's request fails, and nothing else is
// affected.
static void unmap(void)
{
	struct pair p = {0};
	connect_pair(&p);
	char *pages = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(pages != MAP_FAILED);
	struct end gone = p.s;
	gone.buf = pages;
	gone.mr = ibv_reg_mr(p.s.pd, pages, 1 << 20, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	CHECK(gone.mr);
	post(&p.c, IBV_WR_RDMA_READ, &gone);
	CHECK(completion(&p.c).status == IBV_WC_SUCCESS);
	CHECK(!munmap(pages + 4096, 4096));
	post(&p.c, IBV_WR_RDMA_READ, &gone);
	CHECK(completion(&p.c).status == IBV_WC_REM_ACCESS_ERR);
	CHECK(!ibv_dereg_mr(gone.mr));
	take(p.cch, RDMA_CM_EVENT_DISCONNECTED);
	take(p.sch, RDMA_CM_EVENT_DISCONNECTED);
	destroy(&p.c);
	destroy(&p.s);
	pair();
}

// vanish: registered memory disappears without a call that could be noticed. As in unmap, the
// peer's request fails, and nothing else is affected. A local request on it fails too.
static void vanish(void)
{
	for (int i = 0; i < 4; i++) {
		bool file = i & 1, own = i & 2;
		struct pair p = {0};
		connect_pair(&p);
		FILE *f = tmpfile();
		CHECK(f && !ftruncate(fileno(f), 4 * SIZE));
		char *pages = mmap(NULL, 4 * SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(f), 0);
		CHECK(pages != MAP_FAILED);
		memset(pages, 'x', 4 * SIZE);
		struct end gone = own ? p.c : p.s, *peer = own ? &p.s : &gone, *end = own ? &gone : &p.c;
		gone.buf = pages;
		gone.mr = ibv_reg_mr(gone.pd, pages, 4 * SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
		CHECK(gone.mr);
		gone.buf = pages + SIZE;
		post(end, IBV_WR_RDMA_READ, peer);
		CHECK(completion(&p.c).status == IBV_WC_SUCCESS);
		CHECK(own || (p.c.buf[0] == 'x' && p.c.buf[SIZE - 1] == 'x'));
		CHECK(file ? !ftruncate(fileno(f), SIZE) : !mprotect(pages + SIZE, SIZE, PROT_NONE)); // SIGBUS, SIGSEGV
		post(end, IBV_WR_RDMA_READ, peer);
		CHECK(completion(&p.c).status == (own ? IBV_WC_LOC_PROT_ERR : IBV_WC_REM_ACCESS_ERR));
		CHECK(!ibv_dereg_mr(gone.mr));
		take(p.cch, RDMA_CM_EVENT_DISCONNECTED);
		take(p.sch, RDMA_CM_EVENT_DISCONNECTED);
		destroy(&p.c);
		destroy(&p.s);
		CHECK(!munmap(pages, 4 * SIZE) && !fclose(f));
	}
	pair();
}

static struct sigaction asked(int sig)
{
	struct sigaction sa;
	CHECK(!sigaction(sig, NULL, &sa));
	return sa;
}

static volatile int faulted;
static void *volatile fault_at;
static sigset_t fault_mask;
static void informed(int s, siginfo_t *info, void *context)
{
	(void)context;
	faulted = s;
	fault_at = info->si_addr;
	sigset_t none;
	sigemptyset(&none);
	pthread_sigmask(SIG_BLOCK, &none, &fault_mask);
	siglongjmp(back, 1);
}

static int dies(void (*of)(void))
{
	int st;
	pid_t pid = fork();
	if (!pid) {
		struct rlimit none = {0};
		setrlimit(RLIMIT_CORE, &none);
		of();
		_exit(0);
	}
	CHECK(pid > 0 && waitpid(pid, &st, 0) == pid);
	return WIFSIGNALED(st) ? WTERMSIG(st) : 0;
}

static void touch_nowhere(void) { *(volatile int *)8 = 1; }
static void send_fault(void) { kill(getpid(), SIGBUS); }

// late_faults: handlers installed after the first use get the faults of the program, but not those
// of the device.
static void late_faults(void)
{
	struct sigaction sa = {.sa_sigaction = informed, .sa_flags = SA_SIGINFO};
	volatile int *nowhere = (int *)8;
	pair();
	CHECK(asked(SIGSEGV).sa_handler == SIG_DFL && asked(SIGBUS).sa_handler == SIG_DFL);
	sigemptyset(&sa.sa_mask);
	sigaddset(&sa.sa_mask, SIGUSR1);
	CHECK(!sigaction(SIGSEGV, &sa, NULL) && !sigaction(SIGBUS, &sa, NULL));
	CHECK(asked(SIGSEGV).sa_sigaction == informed && asked(SIGSEGV).sa_flags == SA_SIGINFO);
	vanish();
	CHECK(!faulted);
	if (!sigsetjmp(back, 1)) {
		*nowhere = 1;
		CHECK(!"reached");
	}
	CHECK(faulted == SIGSEGV && fault_at == nowhere);
	CHECK(sigismember(&fault_mask, SIGUSR1) && sigismember(&fault_mask, SIGSEGV) && !sigismember(&fault_mask, SIGUSR2));
	CHECK(signal(SIGSEGV, fault) == (sighandler_t)(void *)informed && signal(SIGSEGV, fault) == fault);
	if (!sigsetjmp(back, 1)) {
		*nowhere = 1;
		CHECK(!"reached");
	}
	sa = (struct sigaction){.sa_handler = fault, .sa_flags = SA_RESETHAND};
	CHECK(!sigaction(SIGSEGV, &sa, NULL));
	if (!sigsetjmp(back, 1))
		*nowhere = 1;
	CHECK(asked(SIGSEGV).sa_handler == SIG_DFL);
	CHECK(dies(touch_nowhere) == SIGSEGV);
	CHECK(signal(SIGBUS, SIG_IGN) != SIG_ERR && dies(send_fault) == 0);
	CHECK(signal(SIGBUS, SIG_DFL) == SIG_IGN && dies(send_fault) == SIGBUS);
	vanish();
	errno = 0;
	CHECK(signal(SIGKILL, fault) == SIG_ERR && errno == EINVAL);
}

// vanish_messages: the same for the data of a Send, the memory of a receive, and the word of an
// atomic.
static void vanish_messages(void)
{
	enum { SEND, RECEIVE, ATOMIC, KINDS };
	for (int i = 0; i < 2 * KINDS; i++) {
		int kind = i / 2;
		bool file = i & 1;
		struct pair p = {0};
		connect_pair(&p);
		traffic(&p);
		FILE *f = tmpfile();
		CHECK(f && !ftruncate(fileno(f), 4 * SIZE));
		char *pages = mmap(NULL, 4 * SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(f), 0);
		CHECK(pages != MAP_FAILED);
		struct end gone = kind == SEND ? p.c : p.s, *end = kind == SEND ? &gone : &p.c;
		gone.buf = pages + SIZE;
		gone.mr = ibv_reg_mr(gone.pd, pages, 4 * SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
		CHECK(gone.mr);
		struct ibv_sge s = {(uintptr_t)(kind == RECEIVE ? gone.buf : p.s.buf), SIZE, kind == RECEIVE ? gone.mr->lkey : p.s.mr->lkey};
		struct ibv_recv_wr r = {.wr_id = 8, .sg_list = &s, .num_sge = 1}, *bad;
		CHECK(!ibv_post_recv(p.s.id->qp, &r, &bad));
		CHECK(file ? !ftruncate(fileno(f), SIZE) : !mprotect(pages + SIZE, SIZE, PROT_NONE)); // SIGBUS, SIGSEGV
		post(end, kind == ATOMIC ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_SEND, &gone);
		struct ibv_wc wc;
		if (kind == RECEIVE) {
			wc = completion(&p.s);
			CHECK(wc.wr_id == 8 && wc.status == IBV_WC_LOC_PROT_ERR);
		} else {
			do
				wc = completion(&p.c);
			while (wc.wr_id == 7); // the receive
			CHECK(wc.status == (kind == SEND ? IBV_WC_LOC_PROT_ERR : IBV_WC_REM_ACCESS_ERR));
		}
		CHECK(!ibv_dereg_mr(gone.mr));
		destroy(&p.c);
		destroy(&p.s);
		CHECK(!munmap(pages, 4 * SIZE) && !fclose(f));
	}
	pair();
}

// memory: a region needs memory that is mapped, and writable if the device is to write it.
static void memory(void)
{
	struct pair p = {0};
	connect_pair(&p);
	char *pages = mmap(NULL, 4 * SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(pages != MAP_FAILED);
	memset(pages, 'x', 2 * SIZE);
	CHECK(!mprotect(pages, 2 * SIZE, PROT_READ));
	CHECK(!munmap(pages + 3 * SIZE, SIZE));
	static const int writes[] = {IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC};
	for (size_t i = 0; i < sizeof writes / sizeof *writes; i++) {
		errno = 0;
		CHECK(!ibv_reg_mr(p.s.pd, pages + 100, SIZE, writes[i]) && errno == EFAULT);
		CHECK(!ibv_reg_mr(p.s.pd, pages + 2 * SIZE, SIZE + 1, writes[i]) && errno == EFAULT);
		struct ibv_mr *mr = ibv_reg_mr(p.s.pd, pages + 2 * SIZE, SIZE, writes[i]);
		CHECK(mr);
		CHECK(!ibv_dereg_mr(mr));
	}
	CHECK(!ibv_reg_mr(p.s.pd, pages + 3 * SIZE, SIZE, 0) && errno == EFAULT);
	CHECK(!ibv_reg_mr(p.s.pd, NULL, SIZE, 0) && !ibv_reg_mr(p.s.pd, pages, SIZE_MAX, 0));
	struct end constant = p.s; // a peer may read what nobody may write
	constant.buf = pages;
	constant.mr = ibv_reg_mr(p.s.pd, pages, 2 * SIZE, IBV_ACCESS_REMOTE_READ);
	CHECK(constant.mr);
	post(&p.c, IBV_WR_RDMA_READ, &constant);
	CHECK(completion(&p.c).status == IBV_WC_SUCCESS && p.c.buf[0] == 'x' && p.c.buf[SIZE - 1] == 'x');
	CHECK(!ibv_dereg_mr(constant.mr));
	rdma_disconnect(p.c.id);
	take(p.cch, RDMA_CM_EVENT_DISCONNECTED);
	take(p.sch, RDMA_CM_EVENT_DISCONNECTED);
	destroy(&p.c);
	destroy(&p.s);
}

// many: a thousand queue pairs.
static void many(void)
{
	enum { N = 1000 };
	static struct ibv_qp *qps[N];
	int n;
	struct ibv_device **l = ibv_get_device_list(&n);
	CHECK(l && n == 1);
	struct ibv_context *c = ibv_open_device(l[0]);
	CHECK(c);
	ibv_free_device_list(l);
	struct ibv_pd *pd = ibv_alloc_pd(c);
	struct ibv_cq *cq = ibv_create_cq(c, N, NULL, NULL, 0);
	CHECK(pd && cq);
	for (int i = 0; i < N; i++) {
		struct ibv_qp_init_attr a = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
			.cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1}};
		qps[i] = ibv_create_qp(pd, &a);
		CHECK(qps[i]);
		CHECK(!i || qps[i]->qp_num != qps[i - 1]->qp_num);
	}
	CHECK(ibv_dealloc_pd(pd) == EBUSY && ibv_destroy_cq(cq) == EBUSY);
	for (int i = 0; i < N; i++)
		CHECK(!ibv_destroy_qp(qps[i]));
	CHECK(!ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd) && !ibv_close_device(c));
}

static void *read_completions(void *arg)
{
	struct end *e = arg;
	struct ibv_cq *cq;
	void *context;
	ibv_get_cq_event(e->ch, &cq, &context); // there is none
	fprintf(stderr, "an event that nobody has caused\n");
	_exit(1);
}

static void *read_cm(void *arg)
{
	struct rdma_cm_event *e;
	rdma_get_cm_event(arg, &e);
	fprintf(stderr, "an event that nobody has caused\n");
	_exit(1);
}

// exit_reading: the program exits while threads wait for events.
static void exit_reading(void)
{
	static struct pair p;
	pthread_t t;
	connect_pair(&p);
	CHECK(!pthread_create(&t, NULL, read_completions, &p.c));
	CHECK(!pthread_create(&t, NULL, read_cm, p.sch));
	usleep(20000); // the threads may be in the call or before it
	exit(0);
}

static void *fork_here(void *arg)
{
	(void)arg;
	for (int i = 0; i < 20; i++) {
		pid_t child = fork();
		CHECK(child >= 0);
		if (!child) {
			signal(SIGCHLD, SIG_DFL);
			free(malloc(100000));
			execl("/bin/true", "true", NULL);
			_exit(1);
		}
		int status;
		CHECK(waitpid(child, &status, 0) == child && status == 0);
	}
	return NULL;
}

static volatile sig_atomic_t children;

static void on_child(int n)
{
	(void)n;
	children++;
}

// fork_thread: a thread forks children, whose exit is reported to a signal handler, while others
// use the device.
static void fork_thread(void)
{
	struct sigaction a = {.sa_handler = on_child};
	CHECK(!sigaction(SIGCHLD, &a, NULL)); // without SA_RESTART
	struct pair p = {0};
	connect_pair(&p);
	pthread_t t;
	CHECK(!pthread_create(&t, NULL, fork_here, NULL));
	for (int i = 0; i < 1000 || !children; i++) {
		struct ibv_wc wc;
		int n;
		post(&p.c, IBV_WR_RDMA_WRITE, &p.s);
		while (!(n = ibv_poll_cq(p.c.cq, 1, &wc)))
			;
		CHECK(n == 1 && wc.status == IBV_WC_SUCCESS);
	}
	CHECK(!pthread_join(t, NULL));
	CHECK(children > 0);
	rdma_disconnect(p.c.id);
	take(p.cch, RDMA_CM_EVENT_DISCONNECTED);
	take(p.sch, RDMA_CM_EVENT_DISCONNECTED);
	destroy(&p.c);
	destroy(&p.s);
}

// keep_real: calls for objects of a kernel device go to the real library, and all others do not.
// The real library is real.c.
static void keep_real(void)
{
	void *lib = dlopen(getenv("REAL_LIBRARY"), RTLD_NOW);
	CHECK(lib);
	const char **called = dlsym(lib, "real_called");
	int *lists = dlsym(lib, "real_lists"), n = 0;
	CHECK(called && lists && !*called);
	struct ibv_device **l = ibv_get_device_list(&n);
	CHECK(l && n == 2 && l[0] && l[1] && !l[2] && *lists == 1);
	struct ibv_device *ours = l[0], *real = l[1];
	struct ibv_device **again = ibv_get_device_list(NULL);
	CHECK(again && *lists == 2);
	ibv_free_device_list(again);
	CHECK(*lists == 1);

	// THEIRS is a call that goes to the real library and returns that library's result.
#define THEIRS(name, args, want) \
	do { \
		*called = NULL; \
		CHECK(name args want); \
		CHECK(*called && !strcmp(*called, #name)); \
	} while (0)
#define THEIRS_VOID(name, args) \
	do { \
		*called = NULL; \
		name args; \
		CHECK(*called && !strcmp(*called, #name)); \
	} while (0)
	THEIRS(ibv_get_device_name, (real), && !strcmp(ibv_get_device_name(real), "real0"));
	THEIRS(ibv_get_device_index, (real), == 77);
	THEIRS(ibv_get_device_guid, (real), == 77);
	THEIRS(ibv_open_device, (real), != NULL);
	struct ibv_context *c = ibv_open_device(real);
	CHECK(c->device == real);
	THEIRS(ibv_import_device, (3), == c);
	THEIRS(ibv_fork_init, (), == 77);
	THEIRS(ibv_is_fork_initialized, (), == IBV_FORK_ENABLED);
	struct ibv_device_attr attr;
	THEIRS(ibv_query_device, (c, &attr), == 77);
	struct ibv_port_attr port;
	CHECK(ibv_query_port(c, 1, &port) == 77 && !strcmp(*called, "ibv_query_port")); // a macro
	struct ibv_gid_entry entry;
	THEIRS(_ibv_query_gid_ex, (c, 1, 0, &entry, 0, sizeof entry), == 77);
	THEIRS(_ibv_query_gid_table, (c, &entry, 1, 0, sizeof entry), == 77);
	union ibv_gid gid;
	THEIRS(ibv_query_gid, (c, 1, 0, &gid), == 77);
	__be16 key;
	THEIRS(ibv_query_pkey, (c, 1, 0, &key), == 77);
	THEIRS(ibv_get_pkey_index, (c, 1, 0xffff), == 77);
	THEIRS(ibv_alloc_pd, (c), != NULL);
	struct ibv_pd *pd = ibv_alloc_pd(c);
	THEIRS(ibv_import_pd, (c, 1), == pd);
	THEIRS_VOID(ibv_unimport_pd, (pd));
	char buf[8];
	struct ibv_mr *mr = (ibv_reg_mr)(pd, buf, sizeof buf, 0); // not the macros
	CHECK(mr && mr->context == c && !strcmp(*called, "ibv_reg_mr"));
	CHECK((ibv_reg_mr_iova)(pd, buf, sizeof buf, 0, 0) == mr && !strcmp(*called, "ibv_reg_mr_iova"));
	THEIRS(ibv_reg_mr_iova2, (pd, buf, sizeof buf, 0, 0), == mr);
	THEIRS(ibv_reg_dmabuf_mr, (pd, 0, 8, 0, 3, 0), == mr);
	THEIRS(ibv_rereg_mr, (mr, 0, NULL, NULL, 0, 0), == 77);
	THEIRS(ibv_import_mr, (pd, 1), == mr);
	THEIRS_VOID(ibv_unimport_mr, (mr));
	THEIRS(ibv_import_dm, (c, 1), != NULL);
	THEIRS_VOID(ibv_unimport_dm, (ibv_import_dm(c, 1)));
	THEIRS(ibv_create_comp_channel, (c), != NULL);
	struct ibv_comp_channel *ch = ibv_create_comp_channel(c);
	THEIRS(ibv_create_cq, (c, 1, NULL, ch, 0), != NULL);
	struct ibv_cq *cq = ibv_create_cq(c, 1, NULL, ch, 0), *which;
	THEIRS(ibv_resize_cq, (cq, 2), == 77);
	void *of;
	THEIRS(ibv_get_cq_event, (ch, &which, &of), == 77);
	THEIRS_VOID(ibv_ack_cq_events, (cq, 1));
	struct ibv_srq_init_attr sattr = {.attr = {1, 1, 0}};
	THEIRS(ibv_create_srq, (pd, &sattr), != NULL);
	struct ibv_srq *srq = ibv_create_srq(pd, &sattr);
	THEIRS(ibv_modify_srq, (srq, &sattr.attr, 0), == 77);
	THEIRS(ibv_query_srq, (srq, &sattr.attr), == 77);
	struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UD};
	THEIRS(ibv_create_qp, (pd, &init), != NULL);
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	struct ibv_qp_attr qattr = {0};
	struct ibv_ece ece;
	THEIRS(ibv_qp_to_qp_ex, (qp), != NULL);
	THEIRS(ibv_modify_qp, (qp, &qattr, 0), == 77);
	THEIRS(ibv_query_qp, (qp, &qattr, 0, &init), == 77);
	THEIRS(ibv_query_qp_data_in_order, (qp, IBV_WR_SEND, 0), == 77);
	THEIRS(ibv_query_ece, (qp, &ece), == 77);
	THEIRS(ibv_set_ece, (qp, &ece), == 77);
	THEIRS(ibv_attach_mcast, (qp, &gid, 0), == 77);
	THEIRS(ibv_detach_mcast, (qp, &gid, 0), == 77);
	struct ibv_async_event e;
	THEIRS(ibv_get_async_event, (c, &e), == 77);
	static const enum ibv_event_type of_objects[] = {IBV_EVENT_CQ_ERR, IBV_EVENT_QP_FATAL, IBV_EVENT_QP_LAST_WQE_REACHED, IBV_EVENT_SRQ_LIMIT_REACHED};
	void *objects[] = {cq, qp, qp, srq};
	for (int i = 0; i < 4; i++) {
		e.event_type = of_objects[i];
		e.element.qp = objects[i];
		THEIRS_VOID(ibv_ack_async_event, (&e));
	}
	e.event_type = IBV_EVENT_WQ_FATAL;
	THEIRS_VOID(ibv_ack_async_event, (&e));
	struct ibv_ah_attr aattr = {.port_num = 1};
	uint8_t mac[6];
	uint16_t vid;
	struct ibv_wc wc = {0};
	THEIRS(ibv_create_ah, (pd, &aattr), != NULL);
	struct ibv_ah *ah = ibv_create_ah(pd, &aattr);
	THEIRS(ibv_create_ah_from_wc, (pd, &wc, NULL, 1), == ah);
	THEIRS(ibv_init_ah_from_wc, (c, 1, &wc, NULL, &aattr), == 77);
	THEIRS(ibv_resolve_eth_l2_from_gid, (c, &aattr, mac, &vid), == 77);
	THEIRS(ibv_destroy_ah, (ah), == 77);

	// Objects of different devices cannot be combined.
	*called = NULL;
	struct ibv_context *mine = ibv_open_device(ours);
	CHECK(mine && mine->device == ours && !strncmp(ibv_get_device_name(ours), "usiw0", 5) && ibv_get_device_guid(ours));
	CHECK(!ibv_create_cq(mine, 1, NULL, ch, 0) && errno == EINVAL);
	struct ibv_pd *my_pd = ibv_alloc_pd(mine);
	struct ibv_cq *my_cq = ibv_create_cq(mine, 1, NULL, NULL, 0);
	CHECK(my_pd && my_cq);
	for (int i = 0; i < 3; i++) {
		struct ibv_qp_init_attr mixed = {.send_cq = i == 0 ? cq : my_cq, .recv_cq = i == 1 ? cq : my_cq, .srq = i == 2 ? srq : NULL,
			.qp_type = IBV_QPT_RC, .cap = {1, 1, 1, 1, 0}};
		errno = 0;
		CHECK(!ibv_create_qp(my_pd, &mixed) && errno == EINVAL);
	}
	struct rdma_cm_id *id;
	struct sockaddr_in to = loopback(9);
	CHECK(!rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) && !rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 2000));
	CHECK(id->verbs && id->verbs->device == ours); // the connection manager uses the RNIC
	CHECK(rdma_create_qp(id, pd, &init) == -1 && errno == EINVAL);
	CHECK(rdma_create_srq(id, pd, &sattr) == -1 && errno == EINVAL);
	CHECK(!rdma_destroy_id(id));
	CHECK(!ibv_destroy_cq(my_cq) && !ibv_dealloc_pd(my_pd) && !ibv_close_device(mine));
	pair();
	CHECK(!*called);

	THEIRS(ibv_destroy_qp, (qp), == 77);
	THEIRS(ibv_destroy_srq, (srq), == 77);
	THEIRS(ibv_destroy_cq, (cq), == 77);
	THEIRS(ibv_destroy_comp_channel, (ch), == 77);
	THEIRS(ibv_dereg_mr, (mr), == 77);
	THEIRS(ibv_dealloc_pd, (pd), == 77);
	THEIRS(ibv_close_device, (c), == 77);
	ibv_free_device_list(l);
	CHECK(*lists == 0);
}

// bound: as in the kernel, binding to a loopback address does not select a device; connecting, or
// binding to another address, does.
static void bound(void)
{
	struct sockaddr_in at = loopback(0);
	struct sockaddr_in6 at6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	struct rdma_cm_id *id;
	CHECK(!rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) && !rdma_bind_addr(id, (struct sockaddr *)&at) && !id->verbs);
	CHECK(rdma_get_src_port(id));
	struct sockaddr_in to = loopback(9);
	CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 2000) && id->verbs && !rdma_destroy_id(id));
	CHECK(!rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_bind_addr(id, (struct sockaddr *)&at6) ? !id->verbs : errno == ENODEV); // IPv6 may be missing
	CHECK(!rdma_destroy_id(id));
	struct ifaddrs *all;
	CHECK(!getifaddrs(&all));
	for (struct ifaddrs *a = all; a; a = a->ifa_next) {
		if (!a->ifa_addr || a->ifa_addr->sa_family != AF_INET || !(a->ifa_flags & IFF_UP) || a->ifa_flags & IFF_LOOPBACK)
			continue;
		CHECK(!rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) && !rdma_bind_addr(id, a->ifa_addr) && id->verbs && !rdma_destroy_id(id));
	}
	freeifaddrs(all);
}

// unload: a program loads the library itself, and unloads it.
static void unload(void)
{
	void *lib = dlopen(getenv("LD_PRELOAD"), RTLD_NOW);
	CHECK(lib);
	pair();
	CHECK(!dlclose(lib));
	pair();
}

// title: a program writes its title over its environment, as setproctitle does, before it first
// uses RDMA.
static void title(void)
{
	char *want = strdup(getenv("WANT_DEVICE"));
	for (char **e = environ; *e; e++)
		memset(*e, 'x', strlen(*e));
	int n;
	struct ibv_device **list = ibv_get_device_list(&n);
	CHECK(list && n == 1);
	CHECK(!strcmp(ibv_get_device_name(list[0]), want));
	ibv_free_device_list(list);
	pair();
}

// aborts: a program terminates without any cleanup.
static void aborts(void)
{
	struct pair p = {0};
	connect_pair(&p);
	traffic(&p);
	signal(SIGABRT, SIG_DFL);
	struct rlimit none = {0, 0};
	setrlimit(RLIMIT_CORE, &none);
	abort();
}

// flushes: receives and a Send are flushed, and a Read fails.
static void flushes(void)
{
	struct pair p = {0};
	connect_pair(&p);
	struct ibv_recv_wr r = {0}, *bad;
	for (int i = 0; i < 6; i++)
		CHECK(!ibv_post_recv(p.c.id->qp, &r, &bad) && !ibv_post_recv(p.s.id->qp, &r, &bad));
	p.s.mr->rkey ^= 0x5a5a5a00;
	post(&p.c, IBV_WR_RDMA_READ, &p.s);
	p.s.mr->rkey ^= 0x5a5a5a00;
	post(&p.c, IBV_WR_SEND, &p.s);
	for (int i = 0; i < 9; i++)
		completion(&p.c);
	for (int i = 0; i < 7; i++)
		completion(&p.s);
	take(p.cch, RDMA_CM_EVENT_DISCONNECTED);
	take(p.sch, RDMA_CM_EVENT_DISCONNECTED);
	destroy(&p.c);
	destroy(&p.s);
}

// opens: a program opens the libraries itself, and uses a library that opens another one in its own
// directory.
static void opens(void)
{
	for (int i = 0; i < 3; i++)
		CHECK(dlopen("libibverbs.so.1", RTLD_NOW) && dlopen("librdmacm.so.1", RTLD_NOW) && dlopen("libm.so.6", RTLD_NOW) && dlopen(NULL, RTLD_NOW));
	CHECK(!dlopen("./no/such/libibverbs.so.1", RTLD_NOW) && dlerror());
	void *outer = dlopen(getenv("OUTER"), RTLD_NOW);
	CHECK(outer);
	int (*open_inner)(void);
	*(void **)&open_inner = dlsym(outer, "open_inner");
	CHECK(open_inner && open_inner() == 7);
}

// streams: a program creates an rsocket.
static void streams(void)
{
	for (int i = 0; i < 2; i++)
		CHECK(rsocket(AF_INET, SOCK_STREAM, 0) == -1 && errno == ENODEV);
}

// sockets: a TCP program, for librspreload.
static void sockets(void)
{
	for (int i = 0; i < 2; i++)
		CHECK(socket(AF_INET, SOCK_STREAM, 0) >= 0);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} programs[] = {{"pair", pair}, {"inline", inline_data}, {"threads", threads}, {"leak", leak}, {"order", order}, {"port", port}, {"waiting", waiting},
		{"signals", signals}, {"faults", faults}, {"fork-before", fork_before}, {"fork-after", fork_after}, {"exec-after", exec_after},
		{"exec-without", exec_without}, {"nodevice", nodevice}, {"memlock", memlock}, {"leaves", leaves}, {"refusals", refusals}, {"async", async}, {"unmap", unmap}, {"unload", unload}, {"keep-real", keep_real}, {"bound", bound},
		{"memory", memory}, {"vanish", vanish}, {"late-faults", late_faults}, {"vanish-messages", vanish_messages}, {"many", many}, {"exit-reading", exit_reading}, {"fork-thread", fork_thread},
		{"title", title}, {"aborts", aborts}, {"flushes", flushes}, {"opens", opens}, {"streams", streams}, {"sockets", sockets}, {"sends", sends}, {"one-sided", one_sided}, {"refused-keys", refused_keys}, {"fence", fence},
		{"bad-sends", bad_sends}, {"bad-receives", bad_receives}, {"signaled", signaled}, {"solicited", solicited}, {"windows", windows}, {"shared", shared},
		{"depths", depths}, {"retries", retries}, {"by-hand", by_hand}, {"sizes", sizes}, {"describe", describe}};
	for (size_t i = 0; argc == 2 && i < sizeof programs / sizeof *programs; i++)
		if (!strcmp(argv[1], programs[i].name)) {
			programs[i].run();
			return 0;
		}
	fprintf(stderr, "no such program\n");
	return 2;
}
