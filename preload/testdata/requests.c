// SPDX-License-Identifier: BSD-3-Clause

// Programs that test every field of requests and completions, and bad_wr.
#include "program.h"

#define ID(n) (0x1122334455660000 + (n)) // a wr_id that needs 64 bits
#define IMM htonl(0x01020304)
#define BAD_KEY 0x5a5a5a00
#define RECV_ROOM 64

// ib reports whether the device is an ib: device. These support messages with immediate, but
// neither memory windows nor shared receive queues.
static bool ib(struct end *e) { return !strncmp(ibv_get_device_name(e->id->verbs->device), "ib:", 3); }

static struct ibv_sge at(struct end *e, int off, int n) { return (struct ibv_sge){(uintptr_t)e->buf + off, n, e->mr->lkey}; }

static void receive(struct end *e, uint64_t id, int off, int n)
{
	struct ibv_sge s = at(e, off, n);
	struct ibv_recv_wr r = {.wr_id = id, .sg_list = &s, .num_sge = 1}, *bad;
	CHECK(!ibv_post_recv(e->id->qp, &r, &bad));
}

static void deep(struct end *e)
{
	struct ibv_qp_init_attr a = {.cap = {.max_send_wr = 40, .max_recv_wr = 24, .max_send_sge = 3, .max_recv_sge = 2, .max_inline_data = 64}};
	make_by(e, &a);
}

static void connect_deep(struct pair *p)
{
	struct rdma_conn_param param = {.private_data = "hello", .private_data_len = 5, .responder_resources = 4, .initiator_depth = 4};
	connect_pair_by(p, deep, &param, NULL);
}

// is compares all fields of a completion. In a successful one, fields that do not apply are 0; a
// failed one has only four fields.
static void is(struct ibv_wc got, struct ibv_wc want)
{
	CHECK(got.wr_id == want.wr_id);
	if (got.status != want.status)
		fprintf(stderr, "%s instead of %s\n", ibv_wc_status_str(got.status), ibv_wc_status_str(want.status));
	CHECK(got.status == want.status);
	CHECK(got.vendor_err == want.vendor_err);
	CHECK(got.qp_num == want.qp_num);
	if (want.status)
		return;
	CHECK(got.opcode == want.opcode);
	CHECK(got.byte_len == want.byte_len);
	CHECK(got.imm_data == want.imm_data); // or invalidated_rkey
	CHECK(got.src_qp == want.src_qp);
	CHECK(got.wc_flags == want.wc_flags);
	CHECK(got.pkey_index == want.pkey_index && got.slid == want.slid && got.sl == want.sl && got.dlid_path_bits == want.dlid_path_bits);
}

// done waits for the completion of a request posted by a test.
static void done(struct end *e, uint64_t id, enum ibv_wc_status status, enum ibv_wc_opcode opcode, uint32_t length)
{
	is(completion(e), (struct ibv_wc){.wr_id = id, .status = status, .opcode = opcode, .byte_len = length, .qp_num = e->id->qp->qp_num});
}

// poll_one polls for a single completion and leaves any others.
static struct ibv_wc poll_one(struct end *e)
{
	struct ibv_wc wc[2];
	memset(wc, 0xee, sizeof wc);
	for (int n = 0; !n;) {
		n = ibv_poll_cq(e->cq, 1, wc);
		CHECK(n == 0 || n == 1);
	}
	for (size_t i = 0; i < sizeof *wc; i++)
		CHECK(((unsigned char *)&wc[1])[i] == 0xee);
	return wc[0];
}

// sends: messages, plain, with an immediate in network byte order, and with a key to invalidate
// (windows). The receiver's completion describes exactly what was sent.
void sends(void)
{
	struct pair p = {0};
	connect_deep(&p);
	for (int i = 0; i < 3; i++) { // before they arrive, so that several can be polled at once
		receive(&p.s, ID(10 + i), 1000 + 100 * i, RECV_ROOM);
		strcpy(p.c.buf + 10 * i, "abcdefghi");
	}
	struct ibv_sge s[3][2] = {{at(&p.c, 0, 4), at(&p.c, 15, 3)}, {at(&p.c, 10, 8)}, {at(&p.c, 20, 9)}};
	struct ibv_send_wr w[3] = {0}, *bad = NULL;
	for (int i = 0; i < 3; i++) // the immediates of the others are ignored
		w[i] = (struct ibv_send_wr){.wr_id = ID(i), .next = i < 2 ? &w[i + 1] : NULL, .sg_list = s[i], .num_sge = i ? 1 : 2,
			.opcode = i == 1 ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED, .imm_data = IMM};
	if (!ib(&p.c)) {
		CHECK(ibv_post_send(p.c.id->qp, w, &bad) == EOPNOTSUPP && bad == &w[1]); // the first one is posted
		w[1].opcode = IBV_WR_SEND;
		CHECK(!ibv_post_send(p.c.id->qp, &w[1], &bad));
	} else {
		CHECK(!ibv_post_send(p.c.id->qp, w, &bad));
	}
	static const char *texts[3] = {"abcdfgh", "abcdefgh", "abcdefghi"};
	for (int i = 0; i < 3; i++) {
		struct ibv_wc want = {.wr_id = ID(10 + i), .opcode = IBV_WC_RECV, .byte_len = 7 + i, .qp_num = p.s.id->qp->qp_num};
		if (w[i].opcode == IBV_WR_SEND_WITH_IMM) {
			want.imm_data = IMM;
			want.wc_flags = IBV_WC_WITH_IMM;
		}
		is(poll_one(&p.s), want);
		CHECK(!strcmp(p.s.buf + 1000 + 100 * i, texts[i]));
		is(poll_one(&p.c), (struct ibv_wc){.wr_id = ID(i), .opcode = IBV_WC_SEND, .qp_num = p.c.id->qp->qp_num});
	}
	close_pair(&p);
}

// one_sided: where the data of Writes, Reads and atomics go, and what stays untouched.
void one_sided(void)
{
	struct pair p = {0};
	static char model[SIZE];
	connect_deep(&p);
	for (int i = 0; i < SIZE; i++) {
		p.c.buf[i] = i * 7;
		p.s.buf[i] = model[i] = i * 11;
	}
	struct ibv_sge two[2] = {at(&p.c, 100, 5), at(&p.c, 300, 7)};
	struct ibv_send_wr w = {.wr_id = ID(1), .sg_list = two, .num_sge = 2, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {(uintptr_t)p.s.buf + 503, p.s.mr->rkey}}, *bad;
	CHECK(!ibv_post_send(p.c.id->qp, &w, &bad));
	done(&p.c, ID(1), IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE, 0);
	memcpy(model + 503, p.c.buf + 100, 5);
	memcpy(model + 508, p.c.buf + 300, 7);

	receive(&p.s, ID(20), 1000, RECV_ROOM);
	receive(&p.s, ID(21), 1100, RECV_ROOM);
	w.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	w.wr.rdma.remote_addr += 100;
	w.imm_data = IMM;
	for (int i = 0; i < 2; i++) {
		w.num_sge = 2 - 2 * i; // the second Write is empty
		w.imm_data = i ? htonl(0xfffefdfc) : IMM;
		CHECK(!ibv_post_send(p.c.id->qp, &w, &bad));
		done(&p.c, ID(1), IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE, 0);
		is(completion(&p.s), (struct ibv_wc){.wr_id = ID(20 + i), .opcode = IBV_WC_RECV_RDMA_WITH_IMM, .byte_len = i ? 0 : 12,
			.qp_num = p.s.id->qp->qp_num, .imm_data = w.imm_data, .wc_flags = IBV_WC_WITH_IMM});
	}
	memcpy(model + 603, p.c.buf + 100, 5);
	memcpy(model + 608, p.c.buf + 300, 7);

	struct ibv_sge one = at(&p.c, 700, 13);
	w = (struct ibv_send_wr){.wr_id = ID(2), .sg_list = &one, .num_sge = 1, .opcode = IBV_WR_RDMA_READ, .send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {(uintptr_t)p.s.buf + 601, p.s.mr->rkey}};
	CHECK(!ibv_post_send(p.c.id->qp, &w, &bad));
	done(&p.c, ID(2), IBV_WC_SUCCESS, IBV_WC_RDMA_READ, 13);
	CHECK(!memcmp(p.c.buf + 700, model + 601, 13) && p.c.buf[699] == (char)(699 * 7) && p.c.buf[713] == (char)(713 * 7));

	uint64_t *word = (uint64_t *)(p.s.buf + 2048), *result = (uint64_t *)(p.c.buf + 800);
	*word = 0x1111;
	one = at(&p.c, 800, 8);
	w.wr.atomic.remote_addr = (uintptr_t)word;
	w.wr.atomic.rkey = p.s.mr->rkey;
	static const struct { enum ibv_wr_opcode op; uint64_t compare_add, swap, before, after; } words[] = {
		{IBV_WR_ATOMIC_CMP_AND_SWP, 0x1111, 0x2222, 0x1111, 0x2222}, // equal
		{IBV_WR_ATOMIC_CMP_AND_SWP, 0x3333, 0x4444, 0x2222, 0x2222}, // not equal
		{IBV_WR_ATOMIC_CMP_AND_SWP, 0x4444, 0x2222, 0x2222, 0x2222}, // nor is the swap value compared
		{IBV_WR_ATOMIC_FETCH_AND_ADD, 0x100000001, 0x7777, 0x2222, 0x100002223}, // ignores the other operand
	};
	for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
		w.wr_id = ID(30 + i);
		w.opcode = words[i].op;
		w.wr.atomic.compare_add = words[i].compare_add;
		w.wr.atomic.swap = words[i].swap;
		*result = 0;
		CHECK(!ibv_post_send(p.c.id->qp, &w, &bad));
		done(&p.c, w.wr_id, IBV_WC_SUCCESS, words[i].op == IBV_WR_ATOMIC_CMP_AND_SWP ? IBV_WC_COMP_SWAP : IBV_WC_FETCH_ADD, 8);
		CHECK(*result == words[i].before && *word == words[i].after);
	}
	memcpy(model + 2048, word, 8);
	CHECK(!memcmp(p.s.buf, model, SIZE)); // nothing else is written
	close_pair(&p);
}

// refused_keys: a key must allow the operation, for local memory and for the peer's. The status
// tells what is wrong.
void refused_keys(void)
{
	static const enum ibv_wr_opcode ops[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP,
		IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_SEND};
	for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
		for (int ours = 0; ours < 2; ours++) {
			struct pair p = {0};
			connect_deep(&p);
			receive(&p.s, ID(9), 0, RECV_ROOM);
			struct ibv_sge s = at(&p.c, 8, 8);
			struct ibv_send_wr w = {.wr_id = ID(1), .sg_list = &s, .num_sge = 1, .opcode = ops[i], .send_flags = IBV_SEND_SIGNALED}, *bad;
			uint32_t key = p.s.mr->rkey;
			if (ours)
				s.lkey ^= BAD_KEY;
			else
				key ^= BAD_KEY;
			if (ops[i] == IBV_WR_ATOMIC_CMP_AND_SWP || ops[i] == IBV_WR_ATOMIC_FETCH_AND_ADD) {
				w.wr.atomic.remote_addr = (uintptr_t)p.s.buf;
				w.wr.atomic.rkey = key;
			} else {
				w.wr.rdma.remote_addr = (uintptr_t)p.s.buf;
				w.wr.rdma.rkey = key;
			}
			CHECK(!ibv_post_send(p.c.id->qp, &w, &bad));
			if (ops[i] == IBV_WR_SEND && !ours) { // a Send has no such key
				done(&p.c, ID(1), IBV_WC_SUCCESS, IBV_WC_SEND, 0);
				close_pair(&p);
				continue;
			}
			if (ours) {
				done(&p.c, ID(1), IBV_WC_LOC_PROT_ERR, 0, 0);
			} else if (!ib(&p.c) && (ops[i] == IBV_WR_RDMA_WRITE || ops[i] == IBV_WR_RDMA_WRITE_WITH_IMM)) {
				done(&p.c, ID(1), IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE, 0); // iWARP completes it when it is sent
			} else {
				done(&p.c, ID(1), IBV_WC_REM_ACCESS_ERR, 0, 0);
			}
			ended(&p);
			destroy_pair(&p);
		}
}

// fence: a fenced request is sent after earlier Reads have completed, so it sends the data that
// they returned.
void fence(void)
{
	struct pair p = {0};
	connect_deep(&p);
	for (int i = 0; i < 20; i++) {
		receive(&p.s, ID(9), 2048, 2048);
		memset(p.c.buf, 'o', 2048);
		memset(p.s.buf, 'a' + i, 2048);
		struct ibv_sge s = at(&p.c, 0, 2048);
		struct ibv_send_wr w[2] = {{.wr_id = ID(1), .next = &w[1], .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_RDMA_READ,
				.wr.rdma = {(uintptr_t)p.s.buf, p.s.mr->rkey}},
			{.wr_id = ID(2), .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE}}, *bad;
		CHECK(!ibv_post_send(p.c.id->qp, w, &bad));
		done(&p.c, ID(2), IBV_WC_SUCCESS, IBV_WC_SEND, 0);
		done(&p.s, ID(9), IBV_WC_SUCCESS, IBV_WC_RECV, 2048);
		CHECK(!memcmp(p.s.buf, p.s.buf + 2048, 2048));
	}
	close_pair(&p);
}

enum { LIST = 20 }; // requests, more than the bridge converts at once

// bad_sends: bad_wr is the first request not posted, wherever it is in the list and for whatever
// reason. Those before it are executed.
void bad_sends(void)
{
	enum { SGES, NEGATIVE, NO_LIST, OPCODE, INLINE_TOO_LONG, NO_WINDOW, KINDS };
	for (int kind = 0; kind < KINDS; kind++) {
		struct pair p = {0};
		connect_deep(&p);
		struct ibv_sge s[8];
		for (int i = 0; i < 8; i++)
			s[i] = at(&p.c, 0, 16);
		static const int places[] = {0, 1, 15, 16, 17, LIST - 1};
		for (size_t k = 0; k < sizeof places / sizeof *places; k++) {
			struct ibv_send_wr w[LIST] = {0}, *bad = NULL;
			for (int i = 0; i < LIST; i++) {
				w[i] = (struct ibv_send_wr){.wr_id = ID(i), .next = i + 1 < LIST ? &w[i + 1] : NULL, .sg_list = s, .num_sge = 1,
					.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED, .wr.rdma = {(uintptr_t)p.s.buf, p.s.mr->rkey}};
			}
			struct ibv_send_wr *wrong = &w[places[k]];
			switch (kind) {
			case SGES: wrong->num_sge = 8; break;
			case NEGATIVE: wrong->num_sge = -1; break;
			case NO_LIST: wrong->sg_list = NULL; break;
			case OPCODE: wrong->opcode = 99; break;
			case INLINE_TOO_LONG: wrong->send_flags |= IBV_SEND_INLINE; wrong->num_sge = 3; s[1].length = s[2].length = 2000; break;
			case NO_WINDOW: wrong->opcode = IBV_WR_BIND_MW; wrong->bind_mw.mw = NULL; break;
			}
			CHECK(ibv_post_send(p.c.id->qp, w, &bad) == EINVAL);
			CHECK(bad == wrong);
			for (int i = 0; i < places[k]; i++)
				done(&p.c, ID(i), IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE, 0);
		}
		struct ibv_wc wc;
		CHECK(ibv_poll_cq(p.c.cq, 1, &wc) == 0);
		close_pair(&p);
	}

	// A full queue: without a receive, nothing leaves the send queue on devices that wait for one,
	// as ib: devices do.
	struct pair p = {0};
	connect_deep(&p);
	if (ib(&p.c)) {
		struct ibv_qp_init_attr init;
		struct ibv_qp_attr attr;
		struct ibv_sge s = at(&p.c, 0, 16);
		struct ibv_send_wr w[64] = {0}, *bad = NULL;
		CHECK(!ibv_query_qp(p.c.id->qp, &attr, IBV_QP_CAP, &init) && init.cap.max_send_wr < 60);
		for (int i = 0; i < 64; i++)
			w[i] = (struct ibv_send_wr){.wr_id = ID(i), .next = i < 63 ? &w[i + 1] : NULL, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND};
		CHECK(ibv_post_send(p.c.id->qp, w, &bad) == ENOMEM && bad == &w[init.cap.max_send_wr]);
	}
	close_pair(&p);
}

// bad_receives: the same for receives, and the length of the queue.
void bad_receives(void)
{
	enum { SGES, NEGATIVE, NO_LIST, KINDS };
	static const int places[] = {0, 1, 15, 16, 17, LIST - 1};
	for (int kind = 0; kind < KINDS; kind++)
		for (size_t k = 0; k < sizeof places / sizeof *places; k++) {
			struct pair p = {0};
			connect_deep(&p);
			struct ibv_sge s[8];
			for (int i = 0; i < 8; i++)
				s[i] = at(&p.s, 100 * i, RECV_ROOM);
			struct ibv_recv_wr w[LIST] = {0}, *bad = NULL;
			for (int i = 0; i < LIST; i++)
				w[i] = (struct ibv_recv_wr){.wr_id = ID(i), .next = i + 1 < LIST ? &w[i + 1] : NULL, .sg_list = &s[i % 7], .num_sge = 1 + i % 2};
			struct ibv_recv_wr *wrong = &w[places[k]];
			switch (kind) {
			case SGES: wrong->num_sge = 8; break;
			case NEGATIVE: wrong->num_sge = -1; break;
			case NO_LIST: wrong->sg_list = NULL; wrong->num_sge = 1; break;
			}
			CHECK(ibv_post_recv(p.s.id->qp, w, &bad) == EINVAL);
			CHECK(bad == wrong);
			for (int i = 0; i < places[k]; i++) { // those before it are posted, with their elements
				struct ibv_sge from = at(&p.c, 0, 64 + i % 2);
				struct ibv_send_wr send = {.sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *none;
				memset(p.c.buf, 'a' + i, 65);
				memset(p.s.buf, 0, SIZE);
				CHECK(!ibv_post_send(p.c.id->qp, &send, &none));
				done(&p.c, 0, IBV_WC_SUCCESS, IBV_WC_SEND, 0);
				done(&p.s, ID(i), IBV_WC_SUCCESS, IBV_WC_RECV, 64 + i % 2);
				CHECK(!memcmp(p.s.buf + 100 * (i % 7), p.c.buf, 64) && p.s.buf[100 * (i % 7 + 1)] == (i % 2 ? 'a' + i : 0));
			}
			close_pair(&p);
		}
	struct pair p = {0};
	connect_deep(&p);
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_recv_wr w[64] = {0}, *bad = NULL;
	CHECK(!ibv_query_qp(p.s.id->qp, &attr, IBV_QP_CAP, &init) && init.cap.max_recv_wr < 60);
	for (int i = 0; i < 63; i++)
		w[i].next = &w[i + 1];
	CHECK(ibv_post_recv(p.s.id->qp, w, &bad) == ENOMEM && bad == &w[init.cap.max_recv_wr]);
	close_pair(&p);
}

static void all_signaled(struct end *e)
{
	struct ibv_qp_init_attr a = {.cap = {.max_send_wr = 40, .max_recv_wr = 24, .max_send_sge = 3, .max_recv_sge = 2}, .sq_sig_all = 1};
	make_by(e, &a);
}

// signaled: requests without IBV_SEND_SIGNALED have no completion, unless all requests of the QP
// are signaled.
void signaled(void)
{
	struct rdma_conn_param param = {.private_data = "hello", .private_data_len = 5};
	for (int all = 0; all < 2; all++) {
		struct pair p = {0};
		connect_pair_by(&p, all ? all_signaled : deep, &param, NULL);
		struct ibv_sge s = at(&p.c, 0, 8);
		struct ibv_send_wr w[3] = {0}, *bad;
		for (int i = 0; i < 3; i++)
			w[i] = (struct ibv_send_wr){.wr_id = ID(i), .next = i < 2 ? &w[i + 1] : NULL, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				.send_flags = i == 1 ? 0 : IBV_SEND_SIGNALED, .wr.rdma = {(uintptr_t)p.s.buf, p.s.mr->rkey}};
		CHECK(!ibv_post_send(p.c.id->qp, w, &bad));
		for (int i = 0; i < 3; i++)
			if (all || i != 1)
				done(&p.c, ID(i), IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE, 0);
		struct ibv_qp_init_attr init;
		struct ibv_qp_attr attr;
		CHECK(!ibv_query_qp(p.c.id->qp, &attr, IBV_QP_CAP, &init) && init.sq_sig_all == all);
		close_pair(&p);
	}
}

static struct end *other; // the end of a pair that is not being tested
static struct ibv_cq *send_cq, *recv_cq; // of the end being tested, in solicited: they share a channel

static void two_cqs(struct end *e)
{
	struct ibv_qp_init_attr a = {.qp_type = IBV_QPT_RC, .cap = {.max_send_wr = 40, .max_recv_wr = 24, .max_send_sge = 3, .max_recv_sge = 2}};
	deep(e);
	if (e == other)
		return;
	rdma_destroy_qp(e->id);
	a.send_cq = send_cq = ibv_create_cq(e->id->verbs, 64, NULL, e->ch, 0);
	a.recv_cq = recv_cq = ibv_create_cq(e->id->verbs, 64, NULL, e->ch, 0);
	CHECK(send_cq && recv_cq);
	CHECK(!rdma_create_qp(e->id, e->pd, &a));
}

static void poll_until(struct ibv_cq *cq, uint64_t id)
{
	struct ibv_wc wc;
	int n;
	while (!(n = ibv_poll_cq(cq, 1, &wc)))
		;
	CHECK(n == 1 && wc.status == IBV_WC_SUCCESS && wc.wr_id == id);
}

static struct ibv_cq *next_event(struct end *e)
{
	struct ibv_cq *cq;
	void *context;
	CHECK(!ibv_get_cq_event(e->ch, &cq, &context));
	ibv_ack_cq_events(cq, 1);
	return cq;
}

// solicited: a CQ armed for solicited completions generates events only for messages with
// IBV_SEND_SOLICITED; one armed for all, for every completion. Events of a channel arrive in order,
// so the other CQ's event shows that there was none before it.
void solicited(void)
{
	struct rdma_conn_param param = {.private_data = "hello", .private_data_len = 5};
	for (int only = 0; only < 2; only++)
		for (int flag = 0; flag < 2; flag++)
			for (int imm = 0; imm < 2; imm++) {
				struct pair p = {0};
				other = &p.c;
				connect_pair_by(&p, two_cqs, &param, NULL);
				receive(&p.s, ID(9), 0, RECV_ROOM);
				CHECK(!ibv_req_notify_cq(recv_cq, only));
				CHECK(!ibv_req_notify_cq(send_cq, 0));
				struct ibv_sge s = at(&p.c, 0, 8);
				struct ibv_send_wr w = {.wr_id = ID(1), .sg_list = &s, .num_sge = 1, .opcode = imm ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_SEND,
					.send_flags = IBV_SEND_SIGNALED | (flag ? IBV_SEND_SOLICITED : 0), .wr.rdma = {(uintptr_t)p.s.buf + 1024, p.s.mr->rkey}}, *bad;
				CHECK(!ibv_post_send(p.c.id->qp, &w, &bad));
				poll_until(recv_cq, ID(9));
				s = at(&p.s, 0, 8);
				w = (struct ibv_send_wr){.wr_id = ID(2), .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
					.wr.rdma = {(uintptr_t)p.c.buf, p.c.mr->rkey}};
				CHECK(!ibv_post_send(p.s.id->qp, &w, &bad));
				poll_until(send_cq, ID(2));
				if (!only || flag)
					CHECK(next_event(&p.s) == recv_cq);
				CHECK(next_event(&p.s) == send_cq);
				rdma_destroy_qp(p.s.id);
				CHECK(!ibv_destroy_cq(send_cq) && !ibv_destroy_cq(recv_cq));
				ended(&p);
				destroy_pair(&p);
			}
}

static struct ibv_mr *bindable; // the server's memory

static void with_windows(struct end *e)
{
	deep(e);
	if (e != other)
		bindable = ibv_reg_mr(e->pd, e->buf, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
}

static void close_windows(struct pair *p, struct ibv_mw *mw)
{
	CHECK(!ibv_dealloc_mw(mw) && !ibv_dereg_mr(bindable));
	destroy_pair(p);
}

// window creates a window on the server's memory; a type 2 window is bound by a request.
static struct ibv_mw *window(struct end *e, enum ibv_mw_type type, int off, int n, unsigned int rights)
{
	struct ibv_mw *mw = ibv_alloc_mw(e->pd, type);
	CHECK(mw);
	struct ibv_mw_bind_info info = {.mr = bindable, .addr = (uintptr_t)e->buf + off, .length = n, .mw_access_flags = rights};
	if (type == IBV_MW_TYPE_1) {
		struct ibv_mw_bind b = {.wr_id = ID(50), .send_flags = IBV_SEND_SIGNALED, .bind_info = info};
		uint32_t before = mw->rkey;
		CHECK(!ibv_bind_mw(e->id->qp, mw, &b));
		CHECK(mw->rkey != before);
	} else {
		struct ibv_send_wr w = {.wr_id = ID(50), .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED,
			.bind_mw = {.mw = mw, .rkey = ibv_inc_rkey(mw->rkey), .bind_info = info}}, *bad;
		CHECK(!ibv_post_send(e->id->qp, &w, &bad));
		mw->rkey = ibv_inc_rkey(mw->rkey);
	}
	done(e, ID(50), IBV_WC_SUCCESS, IBV_WC_BIND_MW, 0);
	return mw;
}

// reach makes the client access a window: it is allowed to, or the connection ends.
static void reach(struct pair *p, enum ibv_wr_opcode op, uint32_t rkey, int off, int n, bool may)
{
	struct ibv_sge s = at(&p->c, 0, n);
	struct ibv_send_wr w = {.wr_id = ID(60), .sg_list = &s, .num_sge = 1, .opcode = op, .send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {(uintptr_t)p->s.buf + off, rkey}}, *bad;
	memset(p->c.buf, 'w', n);
	CHECK(!ibv_post_send(p->c.id->qp, &w, &bad));
	if (op == IBV_WR_RDMA_READ) {
		done(&p->c, ID(60), may ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR, IBV_WC_RDMA_READ, n);
		CHECK(!may || !memcmp(p->c.buf, p->s.buf + off, n));
		return;
	}
	done(&p->c, ID(60), IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE, 0);
	if (may) { // a Read after it shows that it has arrived
		reach(p, IBV_WR_RDMA_READ, p->s.mr->rkey, off, n, true);
		CHECK(p->s.buf[off] == 'w' && p->s.buf[off + n - 1] == 'w');
	}
}

// windows: their bounds and rights, who can invalidate them, and how that is reported. ib: devices
// have none.
void windows(void)
{
	enum { OFF = 512, LEN = 128 };
	static const struct { enum ibv_wr_opcode op; unsigned int rights; int off, n; bool may; } uses[] = {
		{IBV_WR_RDMA_READ, IBV_ACCESS_REMOTE_READ, OFF, LEN, true},
		{IBV_WR_RDMA_READ, IBV_ACCESS_REMOTE_READ, OFF - 1, 1, false},
		{IBV_WR_RDMA_READ, IBV_ACCESS_REMOTE_READ, OFF + LEN, 1, false},
		{IBV_WR_RDMA_READ, IBV_ACCESS_REMOTE_WRITE, OFF, LEN, false},
		{IBV_WR_RDMA_WRITE, IBV_ACCESS_REMOTE_WRITE, OFF, LEN, true},
		{IBV_WR_RDMA_WRITE, IBV_ACCESS_REMOTE_READ, OFF, LEN, false},
	};
	struct rdma_conn_param param = {.private_data = "hello", .private_data_len = 5, .responder_resources = 4, .initiator_depth = 4};
	for (int type = IBV_MW_TYPE_1; type <= IBV_MW_TYPE_2; type++)
		for (size_t i = 0; i < sizeof uses / sizeof *uses; i++) {
			struct pair p = {0};
			other = &p.c;
			connect_pair_by(&p, with_windows, &param, NULL);
			memset(p.s.buf, 's', SIZE);
			struct ibv_mw *mw = window(&p.s, type, OFF, LEN, uses[i].rights);
			reach(&p, uses[i].op, mw->rkey, uses[i].off, uses[i].n, uses[i].may);
			if (uses[i].may)
				CHECK(!rdma_disconnect(p.c.id));
			ended(&p);
			CHECK(uses[i].may || (p.s.buf[OFF] == 's' && p.s.buf[OFF + LEN - 1] == 's'));
			close_windows(&p, mw);
		}

	// Either side invalidates a window; if the peer does, the completion tells the key. Afterwards
	// the window cannot be used.
	for (int remote = 0; remote < 2; remote++)
		for (int wrong = 0; wrong < 2; wrong++) {
			struct pair p = {0};
			other = &p.c;
			connect_pair_by(&p, with_windows, &param, NULL);
			struct ibv_mw *mw = window(&p.s, IBV_MW_TYPE_2, OFF, LEN, IBV_ACCESS_REMOTE_READ);
			struct end *e = remote ? &p.c : &p.s;
			struct ibv_sge s = at(e, 0, 8);
			struct ibv_send_wr w = {.wr_id = ID(70), .sg_list = &s, .num_sge = remote, .opcode = remote ? IBV_WR_SEND_WITH_INV : IBV_WR_LOCAL_INV,
				.send_flags = IBV_SEND_SIGNALED, .invalidate_rkey = mw->rkey ^ (wrong ? BAD_KEY : 0)}, *bad;
			receive(&p.s, ID(71), 0, RECV_ROOM);
			CHECK(!ibv_post_send(e->id->qp, &w, &bad));
			if (wrong && !remote) {
				done(e, ID(70), IBV_WC_MW_BIND_ERR, 0, 0);
			} else {
				done(e, ID(70), IBV_WC_SUCCESS, remote ? IBV_WC_SEND : IBV_WC_LOCAL_INV, 0);
				if (remote && !wrong)
					is(completion(&p.s), (struct ibv_wc){.wr_id = ID(71), .opcode = IBV_WC_RECV, .byte_len = 8, .qp_num = p.s.id->qp->qp_num,
						.invalidated_rkey = mw->rkey, .wc_flags = IBV_WC_WITH_INV});
				if (!wrong)
					reach(&p, IBV_WR_RDMA_READ, mw->rkey, OFF, LEN, false);
			}
			ended(&p);
			close_windows(&p, mw);
		}
}

static void of_shared(struct end *e)
{
	struct ibv_qp_init_attr a = {.cap = {.max_send_wr = 40, .max_recv_wr = 24, .max_send_sge = 3, .max_recv_sge = 2}};
	if (e != other) {
		struct ibv_srq_init_attr init = {.attr = {.max_wr = 30, .max_sge = 2, .srq_limit = 7}};
		e->pd = ibv_alloc_pd(e->id->verbs);
		CHECK(e->pd && (a.srq = ibv_create_srq(e->pd, &init)));
		CHECK(init.attr.max_wr >= 30 && init.attr.max_wr < 60 && init.attr.max_sge >= 2 && init.attr.max_sge < 30);
	}
	make_by(e, &a);
}

// shared: a shared receive queue: its attributes, its length, bad_wr, and the completions of its
// receives.
void shared(void)
{
	struct rdma_conn_param param = {.private_data = "hello", .private_data_len = 5};
	struct pair p = {0};
	other = &p.c;
	connect_pair_by(&p, of_shared, &param, NULL);
	struct ibv_srq *srq = p.s.id->qp->srq;
	struct ibv_srq_attr attr, before;
	CHECK(srq && !ibv_query_srq(srq, &before) && before.srq_limit == 0); // not set on creation
	struct ibv_recv_wr r = {.wr_id = 1}, *bad = NULL;
	CHECK(ibv_post_recv(p.s.id->qp, &r, &bad) == EINVAL && bad == &r); // the QP's receives come from the SRQ

	struct ibv_recv_wr w[64] = {0};
	struct ibv_sge s[8];
	for (int i = 0; i < 8; i++)
		s[i] = at(&p.s, 100 * i, RECV_ROOM);
	for (int i = 0; i < 64; i++)
		w[i] = (struct ibv_recv_wr){.wr_id = ID(i), .next = i < 63 ? &w[i + 1] : NULL, .sg_list = &s[i % 7], .num_sge = 1 + i % 2};
	w[17].num_sge = 8;
	CHECK(ibv_post_srq_recv(srq, w, &bad) == EINVAL && bad == &w[17]);
	w[17].num_sge = 2;
	w[18].num_sge = -1;
	CHECK(ibv_post_srq_recv(srq, &w[17], &bad) == EINVAL && bad == &w[18]);
	w[18].num_sge = 1;
	CHECK(ibv_post_srq_recv(srq, &w[18], &bad) == ENOMEM && bad == &w[before.max_wr]);

	attr = (struct ibv_srq_attr){.srq_limit = 5};
	CHECK(!ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT));
	CHECK(!ibv_query_srq(srq, &attr) && attr.srq_limit == 5 && attr.max_wr == before.max_wr && attr.max_sge == before.max_sge);
	for (uint32_t i = 0; i < before.max_wr; i++) {
		struct ibv_sge from = at(&p.c, 0, 64 + i % 2);
		struct ibv_send_wr send = {.wr_id = ID(99), .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *none;
		memset(p.c.buf, 'a' + i, 65);
		memset(p.s.buf, 0, SIZE);
		CHECK(!ibv_post_send(p.c.id->qp, &send, &none));
		done(&p.c, ID(99), IBV_WC_SUCCESS, IBV_WC_SEND, 0);
		done(&p.s, ID(i), IBV_WC_SUCCESS, IBV_WC_RECV, 64 + i % 2);
		CHECK(!memcmp(p.s.buf + 100 * (i % 7), p.c.buf, 64) && p.s.buf[100 * (i % 7 + 1)] == (char)(i % 2 ? 'a' + i : 0));
	}
	struct ibv_async_event e;
	CHECK(!ibv_get_async_event(p.s.id->verbs, &e) && e.event_type == IBV_EVENT_SRQ_LIMIT_REACHED && e.element.srq == srq);
	ibv_ack_async_event(&e);
	CHECK(!ibv_query_srq(srq, &attr) && attr.srq_limit == 0); // reported once
	CHECK(ibv_destroy_srq(srq) == EBUSY);
	rdma_destroy_qp(p.s.id);
	CHECK(!ibv_destroy_srq(srq));
	ended(&p);
	destroy_pair(&p);
}
