// SPDX-License-Identifier: BSD-3-Clause

// usage: private ADDRESS PORT BYTES
//
// Connects with BYTES bytes of private data, 0, 1, 2, ..., as a librdmacm program does, and prints
// the result.
#include <errno.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// failed prints which call failed.
static int failed(const char *call)
{
	printf("%s: %s\n", call, strerror(errno));
	return 1;
}

int main(int argc, char **argv)
{
	struct ibv_qp_init_attr attr = {.cap = {1, 1, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	struct rdma_conn_param param = {.responder_resources = 4, .initiator_depth = 4};
	struct rdma_addrinfo *to;
	struct rdma_cm_id *id;
	uint8_t data[255];

	if (argc != 4)
		return 2;
	for (int i = 0; i < (int)sizeof(data); i++)
		data[i] = i;
	param.private_data = data;
	param.private_data_len = atoi(argv[3]);
	// Without an event channel the calls wait for their events.
	if (rdma_getaddrinfo(argv[1], argv[2], NULL, &to))
		return failed("rdma_getaddrinfo");
	if (rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP))
		return failed("rdma_create_id");
	if (rdma_resolve_addr(id, NULL, to->ai_dst_addr, 5000))
		return failed("rdma_resolve_addr");
	if (rdma_resolve_route(id, 5000))
		return failed("rdma_resolve_route");
	if (rdma_create_qp(id, NULL, &attr))
		return failed("rdma_create_qp");
	if (rdma_connect(id, &param))
		return failed("rdma_connect");
	printf("connected\n");
	return 0;
}
