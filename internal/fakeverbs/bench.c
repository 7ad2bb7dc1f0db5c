// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

// The hot path, without locks and records: a post writes 64 bytes for each request, a poll fills
// ibv_wc from a counter. On top of it, for comparison, a C program that handles the same requests.

#include "fake.h"

#include <time.h>

#define WQES 1024
#define WQE 64

struct wqe {
	uint64_t wr_id, addr, remote_addr;
	uint32_t length, lkey, rkey, opcode, flags, num_sge, imm, seq;
	uint64_t atomic;
};

_Static_assert(sizeof(struct wqe) == WQE, "64 bytes for each request");

int hot_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad) {
	struct qp *q = OUTER(qp, qp);
	uint64_t n = q->wqe_posted;

	(void)bad;
	if (!q->wqe)
		q->wqe = aligned_alloc(WQE, WQES * WQE);
	for (; wr; wr = wr->next, n++) {
		struct wqe *w = (struct wqe *)q->wqe + n % WQES;

		w->wr_id = wr->wr_id;
		w->remote_addr = wr->wr.rdma.remote_addr;
		w->rkey = wr->wr.rdma.rkey;
		w->opcode = wr->opcode;
		w->flags = wr->send_flags;
		w->num_sge = wr->num_sge;
		w->imm = wr->imm_data;
		w->seq = n;
		if (wr->num_sge > 0) {
			w->addr = wr->sg_list[0].addr;
			w->length = wr->sg_list[0].length;
			w->lkey = wr->sg_list[0].lkey;
		}
	}
	__atomic_store_n(&q->wqe_posted, n, __ATOMIC_RELEASE); // where hardware has its doorbell
	return 0;
}

int hot_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
	(void)qp;
	(void)wr;
	(void)bad;
	return 0;
}

int hot_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc) {
	struct cq *c = OUTER(cq, cq);
	struct qp *q = c->hot;

	if (!q)
		return 0;
	if (fake_hot == 2) {
		uint64_t left = __atomic_load_n(&q->wqe_posted, __ATOMIC_ACQUIRE) - q->wqe_polled;

		if ((uint64_t)n > left)
			n = left;
	}
	for (int i = 0; i < n; i++) {
		wc[i].wr_id = fake_hot == 2 ? ((struct wqe *)q->wqe)[q->wqe_polled++ % WQES].wr_id : c->hot_count++;
		wc[i].status = IBV_WC_SUCCESS;
		wc[i].opcode = IBV_WC_RDMA_WRITE;
		wc[i].vendor_err = 0;
		wc[i].byte_len = 64;
		wc[i].imm_data = 0;
		wc[i].qp_num = q->pub.qp_num;
		wc[i].src_qp = 0;
		wc[i].wc_flags = 0;
	}
	return n;
}

static uint64_t now(void) {
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ULL + t.tv_nsec;
}

// A separate device for measurements, which is in no registry.
static struct {
	struct verbs_context v;
	struct cq cq;
	struct qp qp;
} own;

static void own_init(void) {
	own.v.context.ops.post_send = hot_post_send;
	own.v.context.ops.poll_cq = hot_poll_cq;
	own.qp.pub.context = own.cq.pub.context = &own.v.context;
	own.cq.hot = &own.qp;
}

struct flat {
	uint64_t wr_id, remote_addr;
	uint32_t opcode, flags, rkey, imm, num_sge, pad;
	struct ibv_sge sge;
};

#define CHUNK 64

__attribute__((noinline)) static int post_flat(struct ibv_qp *qp, const struct flat *f, int n) {
	struct ibv_send_wr wr[CHUNK], *bad = NULL;
	struct ibv_sge sge[CHUNK];

	for (int i = 0; i < n; i++) {
		wr[i].wr_id = f[i].wr_id;
		wr[i].next = i + 1 < n ? &wr[i + 1] : NULL;
		wr[i].sg_list = &sge[i];
		wr[i].num_sge = f[i].num_sge;
		wr[i].opcode = f[i].opcode;
		wr[i].send_flags = f[i].flags;
		wr[i].imm_data = f[i].imm;
		wr[i].wr.rdma.remote_addr = f[i].remote_addr;
		wr[i].wr.rdma.rkey = f[i].rkey;
		sge[i] = f[i].sge;
	}
	return ibv_post_send(qp, wr, &bad);
}

uint64_t fake_bench_post(int n, int iters) {
	struct flat f[CHUNK] = {{0}};
	volatile uint64_t addr = P(&own); // keep the compiler from precomputing anything
	uint64_t start;

	own_init();
	if (n > CHUNK)
		return 0;
	post_flat(&own.qp.pub, f, n);
	start = now();
	for (int i = 0; i < iters; i++) {
		for (int j = 0; j < n; j++)
			f[j] = (struct flat){i + j, addr + j, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 17, 0, 1, 0, {addr, 64, 3}};
		post_flat(&own.qp.pub, f, n);
	}
	return now() - start;
}

uint64_t fake_bench_poll(int n, int iters) {
	struct ibv_wc wc[CHUNK];
	volatile uint64_t sink = 0;
	int hot = fake_hot;
	uint64_t start;

	own_init();
	if (n > CHUNK)
		return 0;
	fake_hot = 1;
	start = now();
	for (int i = 0; i < iters; i++) {
		int got = ibv_poll_cq(&own.cq.pub, n, wc);

		for (int j = 0; j < got; j++)
			if (wc[j].status != IBV_WC_SUCCESS)
				sink += wc[j].wr_id;
	}
	start = now() - start;
	fake_hot = hot;
	(void)sink;
	return start;
}

int fake_nop(int x) {
	return x;
}
