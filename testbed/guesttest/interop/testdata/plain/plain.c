// SPDX-License-Identifier: BSD-3-Clause

// usage: plain ADDRESS PORT [OPCODE]
//
// Accepts a connection and posts a receive, as a program on librdmacm and the driver's library does
// that does not support RFC 7306. With OPCODE it also writes a request with that siw opcode, which
// the library cannot express, to the ring of its send queue, and rings the doorbell. It prints the
// first completion.
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SENDS 64
#define RING (8 << 10) // bytes of the send queue's mapping: SENDS entries of 120 bytes in whole pages. No other queue has so many.

static char memory[4096] __attribute__((aligned(4096)));

// failed prints which call failed.
static int failed(const char *call)
{
	printf("%s: %s\n", call, strerror(errno));
	return 1;
}

// send_ring finds the ring of the send queue.
static char *send_ring(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned long from, to;
	char line[512];

	while (maps && fgets(line, sizeof(line), maps))
		if (strstr(line, "/dev/infiniband/uverbs") && sscanf(line, "%lx-%lx", &from, &to) == 2 && to - from == RING)
			return (char *)from;
	return NULL;
}

// request writes a request to the ring and rings the doorbell.
static int request(struct rdma_cm_id *id, struct ibv_mr *mr, int opcode)
{
	struct {
		uint64_t id;
		uint16_t flags; // VALID, SIGNALLED
		uint8_t num_sge, opcode;
		uint32_t rkey;
		uint64_t raddr, addr;
		uint32_t length, lkey;
		uint64_t more[10];
	} entry = {.id = 7, .flags = 1 | 4, .num_sge = 1, .opcode = opcode, .rkey = 0x200, .raddr = 0x1000, .addr = (uintptr_t)memory,
		   .length = 8, .lkey = mr->lkey};
	struct {
		uint32_t command;
		uint16_t in, out;
		uint64_t response;
		uint32_t handle, count, elements, size;
	} post = {.command = 28, .in = 8, .out = 1, .handle = id->qp->handle, .size = 56};
	uint32_t bad;
	char *ring = send_ring();

	if (!ring)
		return failed("no ring");
	memcpy(ring, &entry, sizeof(entry));
	post.response = (uintptr_t)&bad;
	if (write(id->verbs->cmd_fd, &post, sizeof(post)) != sizeof(post))
		return failed("the doorbell");
	return 0;
}

int main(int argc, char **argv)
{
	struct ibv_qp_init_attr attr = {.cap = {SENDS, 4 * SENDS, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	struct rdma_addrinfo hints = {.ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP}, *at;
	struct rdma_conn_param param = {.responder_resources = 4, .initiator_depth = 4};
	struct ibv_device_attr device;
	struct rdma_cm_id *listener, *id;
	struct ibv_mr *mr;
	struct ibv_wc wc;

	if (argc < 3)
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (rdma_getaddrinfo(argv[1], argv[2], &hints, &at))
		return failed("rdma_getaddrinfo");
	if (rdma_create_ep(&listener, at, NULL, &attr))
		return failed("rdma_create_ep");
	if (ibv_query_device(listener->verbs, &device))
		return failed("ibv_query_device");
	printf("atomic_cap %d\n", device.atomic_cap);
	if (rdma_listen(listener, 1))
		return failed("rdma_listen");
	printf("listening\n");
	if (rdma_get_request(listener, &id))
		return failed("rdma_get_request");
	mr = ibv_reg_mr(id->pd, memory, sizeof(memory),
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	if (!mr)
		return failed("ibv_reg_mr");
	if (rdma_post_recv(id, memory, memory, sizeof(memory), mr))
		return failed("rdma_post_recv");
	if (rdma_accept(id, &param))
		return failed("rdma_accept");
	printf("accepted: key %u address %lu\n", mr->rkey, (unsigned long)(uintptr_t)memory);
	if (argc > 3 && request(id, mr, atoi(argv[3])))
		return 1;
	for (;;) {
		if (argc == 3 && ibv_poll_cq(id->recv_cq, 1, &wc) > 0) {
			printf("receive: %s, %u bytes\n", ibv_wc_status_str(wc.status), wc.status ? 0 : wc.byte_len);
			return 0;
		}
		if (argc > 3 && ibv_poll_cq(id->send_cq, 1, &wc) > 0) {
			printf("request: %s\n", ibv_wc_status_str(wc.status));
			return 0;
		}
		usleep(1000);
	}
}
