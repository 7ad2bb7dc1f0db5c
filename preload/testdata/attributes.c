// SPDX-License-Identifier: BSD-3-Clause

// Programs that test attributes of devices, connections and queue pairs.
#include "program.h"

#include <endian.h>

// depths: of Reads and atomics, as responder and as initiator. Each side receives the other's.
void depths(void)
{
	struct rdma_conn_param connect = {.private_data = "hello", .private_data_len = 5, .responder_resources = 4, .initiator_depth = 16};
	struct rdma_conn_param accept = {.private_data = "welcome", .private_data_len = 7, .responder_resources = 8, .initiator_depth = 2};
	struct pair p = {0};
	connect_pair_by(&p, make, &connect, &accept);
	CHECK(p.request.responder_resources == 16 && p.request.initiator_depth == 4);
	CHECK(p.accepted.responder_resources == 8 && p.accepted.initiator_depth == 2);
	CHECK(p.connected.responder_resources == 2 && p.connected.initiator_depth == 8);
	close_pair(&p);
}

// retries: how often a Send without a receive is retried. The passive side sets it, and 7 is
// infinite. For ib: devices.
void retries(void)
{
	struct rdma_conn_param connect = {.private_data = "hello", .private_data_len = 5, .retry_count = 7, .rnr_retry_count = 7};
	for (int often = 0; often < 2; often++) {
		struct rdma_conn_param accept = {.retry_count = often ? 1 : 7, .rnr_retry_count = often ? 7 : 1};
		struct pair p = {0};
		connect_pair_by(&p, make, &connect, &accept);
		struct ibv_sge s = {(uintptr_t)p.c.buf, 8, p.c.mr->lkey};
		struct ibv_send_wr w = {.wr_id = 1, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
		CHECK(!ibv_post_send(p.c.id->qp, &w, &bad));
		CHECK(completion(&p.c).status == IBV_WC_SUCCESS); // the first one has a receive
		CHECK(!ibv_post_send(p.c.id->qp, &w, &bad));
		if (!often) {
			CHECK(completion(&p.c).status == IBV_WC_RNR_RETRY_EXC_ERR);
			ended(&p);
			destroy_pair(&p);
			continue;
		}
		usleep(50000); // longer than the interval of a retry
		struct ibv_sge to = {(uintptr_t)p.s.buf, SIZE, p.s.mr->lkey};
		struct ibv_recv_wr r = {.wr_id = 8, .sg_list = &to, .num_sge = 1}, *none;
		CHECK(!ibv_post_recv(p.s.id->qp, &r, &none));
		CHECK(completion(&p.c).status == IBV_WC_SUCCESS);
		close_pair(&p);
	}
}

static struct ibv_context *open_device(void)
{
	int n;
	struct ibv_device **l = ibv_get_device_list(&n);
	CHECK(l && n == 1);
	struct ibv_context *c = ibv_open_device(l[0]);
	CHECK(c);
	ibv_free_device_list(l);
	return c;
}

// by_hand: a queue pair that the program brings up returns the attributes that the program set. For
// ib: devices.
void by_hand(void)
{
	struct ibv_context *c = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(c);
	struct ibv_cq *cq = ibv_create_cq(c, 64, NULL, NULL, 0);
	struct ibv_qp_init_attr a = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .qp_context = &a,
		.cap = {.max_send_wr = 9, .max_recv_wr = 11, .max_send_sge = 3, .max_recv_sge = 2, .max_inline_data = 40}};
	struct ibv_qp *qp = ibv_create_qp(pd, &a), *peer = ibv_create_qp(pd, &a);
	CHECK(qp && peer);
	CHECK(a.cap.max_send_wr >= 9 && a.cap.max_recv_wr >= 11 && a.cap.max_send_sge >= 3 && a.cap.max_recv_sge >= 2 && a.cap.max_inline_data >= 40);
	struct ibv_qp_attr set = {.qp_state = IBV_QPS_INIT, .port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_RELAXED_ORDERING}, got;
	CHECK(!ibv_modify_qp(qp, &set, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	set.qp_state = IBV_QPS_RTR;
	set.path_mtu = IBV_MTU_2048;
	set.dest_qp_num = peer->qp_num;
	set.rq_psn = 0x123456;
	set.max_dest_rd_atomic = 6;
	set.min_rnr_timer = 13;
	set.ah_attr = (struct ibv_ah_attr){.grh = {.flow_label = 0x12345, .sgid_index = 0, .hop_limit = 64, .traffic_class = 32},
		.dlid = 0x321, .sl = 3, .src_path_bits = 2, .static_rate = 5, .is_global = 1, .port_num = 1};
	CHECK(!ibv_query_gid(c, 1, 0, &set.ah_attr.grh.dgid));
	CHECK(!ibv_modify_qp(qp, &set, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
		IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	set.qp_state = IBV_QPS_RTS;
	set.sq_psn = 0x654321;
	set.timeout = 17;
	set.retry_cnt = 5;
	set.rnr_retry = 4;
	set.max_rd_atomic = 3;
	CHECK(!ibv_modify_qp(qp, &set, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
	struct ibv_qp_init_attr init;
	CHECK(!ibv_query_qp(qp, &got, -1, &init));
#define SAME(field) CHECK(got.field == set.field)
	SAME(qp_state);
	CHECK(got.cur_qp_state == IBV_QPS_RTS && qp->state == IBV_QPS_RTS);
	SAME(path_mtu);
	SAME(rq_psn);
	SAME(sq_psn);
	SAME(dest_qp_num);
	CHECK(got.qp_access_flags == (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)); // without the hint
	SAME(pkey_index);
	SAME(port_num);
	SAME(max_rd_atomic);
	SAME(max_dest_rd_atomic);
	SAME(min_rnr_timer);
	SAME(timeout);
	SAME(retry_cnt);
	SAME(rnr_retry);
	SAME(ah_attr.dlid);
	SAME(ah_attr.sl);
	SAME(ah_attr.src_path_bits);
	SAME(ah_attr.static_rate);
	SAME(ah_attr.is_global);
	SAME(ah_attr.port_num);
	SAME(ah_attr.grh.flow_label);
	SAME(ah_attr.grh.sgid_index);
	SAME(ah_attr.grh.hop_limit);
	SAME(ah_attr.grh.traffic_class);
	CHECK(!memcmp(&got.ah_attr.grh.dgid, &set.ah_attr.grh.dgid, 16));
	CHECK(!memcmp(&got.cap, &a.cap, sizeof a.cap) && !memcmp(&init.cap, &a.cap, sizeof a.cap));
	CHECK(init.qp_context == &a && init.send_cq == cq && init.recv_cq == cq && !init.srq && init.qp_type == IBV_QPT_RC && !init.sq_sig_all);
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_qp(peer) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd) && !ibv_close_device(c));
}

// sizes: a CQ has at least the length it was created with or resized to, and holds no more than it
// reports.
void sizes(void)
{
	struct ibv_context *c = open_device();
	struct ibv_cq *cq = ibv_create_cq(c, 10, NULL, NULL, 0);
	CHECK(cq && cq->cqe >= 10);
	int before = cq->cqe;
	CHECK(!ibv_resize_cq(cq, before + 1000) && cq->cqe >= before + 1000);
	before = cq->cqe;
	CHECK(ibv_resize_cq(cq, 0) == EINVAL && ibv_resize_cq(cq, -1) == EINVAL && cq->cqe == before);
	CHECK(!ibv_create_cq(c, 0, NULL, NULL, 0) && errno == EINVAL);
	CHECK(!ibv_create_cq(c, 10, NULL, NULL, 1) && errno == EINVAL); // there is a single vector
	CHECK(!ibv_destroy_cq(cq) && !ibv_close_device(c));
}

// describe prints the device's attributes, one field per line, for the test to compare.
void describe(void)
{
	struct ibv_context *c = open_device();
	struct ibv_device_attr a;
	struct ibv_port_attr p;
	CHECK(!ibv_query_device(c, &a) && !ibv_query_port(c, 1, &p));
#define GUID(v) (unsigned long long)be64toh(v)
	fprintf(stderr, "name %s\nnode_type %d\ntransport_type %d\nguid %016llx\n", ibv_get_device_name(c->device), c->device->node_type,
		c->device->transport_type, GUID(ibv_get_device_guid(c->device)));
	fprintf(stderr, "fw_ver %s\nnode_guid %016llx\nsys_image_guid %016llx\n", a.fw_ver, GUID(a.node_guid), GUID(a.sys_image_guid));
#define A(field) fprintf(stderr, #field " %llu\n", (unsigned long long)a.field);
	A(max_mr_size) A(page_size_cap) A(vendor_id) A(vendor_part_id) A(hw_ver) A(max_qp) A(max_qp_wr) A(device_cap_flags) A(max_sge)
	A(max_sge_rd) A(max_cq) A(max_cqe) A(max_mr) A(max_pd) A(max_qp_rd_atom) A(max_res_rd_atom) A(max_qp_init_rd_atom) A(atomic_cap)
	A(max_mw) A(max_srq) A(max_srq_wr) A(max_srq_sge) A(max_pkeys) A(local_ca_ack_delay) A(phys_port_cnt)
#define P(field) fprintf(stderr, "port." #field " %llu\n", (unsigned long long)p.field);
	P(state) P(max_mtu) P(active_mtu) P(gid_tbl_len) P(port_cap_flags) P(max_msg_sz) P(bad_pkey_cntr) P(qkey_viol_cntr)
	P(pkey_tbl_len) P(lid) P(sm_lid) P(lmc) P(max_vl_num) P(sm_sl) P(subnet_timeout) P(init_type_reply) P(active_width) P(active_speed)
	P(phys_state) P(link_layer) P(flags) P(port_cap_flags2)
	CHECK(!ibv_close_device(c));
}
