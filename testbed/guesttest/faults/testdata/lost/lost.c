// SPDX-License-Identifier: BSD-3-Clause

// usage: lost FROM FROM-ADDRESS TO TO-ADDRESS LIST SECONDS
//
// Connects two RC QPs of two devices of this machine, posts a list of requests in one call, waits
// SECONDS for their completions and prints how many there were. LIST has a letter for each request:
// R a Read, W a Write, B the bind of a window; a preceding f makes it fenced.
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { remote = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };

struct end {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	union ibv_gid gid;
	int index;
	uint64_t mem[512];
};

static void need(int ok, const char *what)
{
	if (!ok) {
		printf("%s: %s\n", what, strerror(errno));
		exit(1);
	}
}

static struct ibv_context *device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	for (int i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			return ibv_open_device(list[i]);
	return NULL;
}

static void make(struct end *e, const char *name, const char *address)
{
	struct ibv_qp_init_attr init = {.cap = {32, 32, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = remote};
	union ibv_gid want = {.raw = {[10] = 0xff, [11] = 0xff}};

	need(inet_pton(AF_INET, address, &want.raw[12]) == 1, address);
	need((e->ctx = device(name)) != NULL, name);
	for (e->index = 0; e->index < 16; e->index++)
		if (!ibv_query_gid(e->ctx, 1, e->index, &e->gid) && !memcmp(&e->gid, &want, sizeof(want)))
			break;
	need(e->index < 16, "no such address");
	need((e->pd = ibv_alloc_pd(e->ctx)) != NULL, "ibv_alloc_pd");
	need((e->cq = ibv_create_cq(e->ctx, 64, NULL, NULL, 0)) != NULL, "ibv_create_cq");
	need((e->mr = ibv_reg_mr(e->pd, e->mem, sizeof(e->mem), remote | IBV_ACCESS_MW_BIND)) != NULL, "ibv_reg_mr");
	init.send_cq = init.recv_cq = e->cq;
	need((e->qp = ibv_create_qp(e->pd, &init)) != NULL, "ibv_create_qp");
	need(!ibv_modify_qp(e->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "to INIT");
}

static void join(struct end *e, struct end *to)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = to->qp->qp_num, .max_dest_rd_atomic = 4,
		.min_rnr_timer = 12, .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = to->gid, .sgid_index = e->index, .hop_limit = 64}}};
	need(!ibv_modify_qp(e->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "to RTR");
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 4};
	need(!ibv_modify_qp(e->qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		IBV_QP_MAX_QP_RD_ATOMIC), "to RTS");
}

int main(int argc, char **argv)
{
	static struct end a, b;
	struct ibv_send_wr wrs[16], *bad;
	struct ibv_sge sges[16];
	struct ibv_mw *mw;
	struct ibv_wc wc;
	int n = 0, flags = IBV_SEND_SIGNALED, open;
	time_t end;

	if (argc != 7)
		return 2;
	make(&a, argv[1], argv[2]);
	make(&b, argv[3], argv[4]);
	join(&a, &b);
	join(&b, &a);
	need((mw = ibv_alloc_mw(a.pd, IBV_MW_TYPE_2)) != NULL, "ibv_alloc_mw");
	memset(wrs, 0, sizeof(wrs));
	for (const char *c = argv[5]; *c && n < 16; c++) {
		struct ibv_send_wr *w = &wrs[n];
		if (*c == 'f') {
			flags |= IBV_SEND_FENCE;
			continue;
		}
		sges[n] = (struct ibv_sge){(uintptr_t)&a.mem[n], 8, a.mr->lkey};
		*w = (struct ibv_send_wr){.wr_id = n, .sg_list = &sges[n], .num_sge = 1, .send_flags = flags};
		w->wr.rdma.remote_addr = (uintptr_t)&b.mem[n];
		w->wr.rdma.rkey = b.mr->rkey;
		switch (*c) {
		case 'R':
			w->opcode = IBV_WR_RDMA_READ;
			break;
		case 'W':
			w->opcode = IBV_WR_RDMA_WRITE;
			break;
		case 'B':
			w->num_sge = 0;
			w->opcode = IBV_WR_BIND_MW;
			w->bind_mw.mw = mw;
			w->bind_mw.rkey = ibv_inc_rkey(mw->rkey);
			w->bind_mw.bind_info = (struct ibv_mw_bind_info){a.mr, (uintptr_t)a.mem, sizeof(a.mem), IBV_ACCESS_REMOTE_READ};
		}
		if (n > 0)
			wrs[n - 1].next = w;
		flags = IBV_SEND_SIGNALED;
		n++;
	}
	need(!ibv_post_send(a.qp, wrs, &bad), "ibv_post_send");
	for (open = n, end = time(NULL) + atoi(argv[6]); open > 0 && time(NULL) < end;) {
		if (ibv_poll_cq(a.cq, 1, &wc) != 1)
			continue;
		if (wc.status != IBV_WC_SUCCESS)
			printf("request %d: %s\n", (int)wc.wr_id, ibv_wc_status_str(wc.status));
		open--;
	}
	printf("%d of %d\n", n - open, n);
	return 0;
}
