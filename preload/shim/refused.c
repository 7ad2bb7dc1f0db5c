// SPDX-License-Identifier: BSD-3-Clause

// Unsupported functions. Each fails with the errno of a driver that lacks it.

#include "shim.h"

#include <infiniband/sa.h>
#include <poll.h>

#define NULL_OF(type, name, args, context, ...) \
	PUBLIC type *name args { REAL(context, name, __VA_ARGS__); refused(#name); errno = EOPNOTSUPP; return NULL; }
#define ERR_OF(name, args, context, ...) \
	PUBLIC int name args { REAL(context, name, __VA_ARGS__); refused(#name); return EOPNOTSUPP; }
#define VOID_OF(name, args, context, ...) \
	PUBLIC void name args { REAL(context, name, __VA_ARGS__); refused(#name); }

NULL_OF(struct ibv_ah, ibv_create_ah, (struct ibv_pd *pd, struct ibv_ah_attr *attr), pd->context, pd, attr)
NULL_OF(struct ibv_ah, ibv_create_ah_from_wc, (struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh, uint8_t port), pd->context, pd, wc, grh, port)
ERR_OF(ibv_init_ah_from_wc, (struct ibv_context *c, uint8_t port, struct ibv_wc *wc, struct ibv_grh *grh, struct ibv_ah_attr *attr), c, c, port, wc, grh, attr)
ERR_OF(ibv_destroy_ah, (struct ibv_ah *ah), ah->context, ah)
ERR_OF(ibv_resolve_eth_l2_from_gid, (struct ibv_context *c, struct ibv_ah_attr *attr, uint8_t mac[6], uint16_t *vid), c, c, attr, mac, vid)
ERR_OF(ibv_attach_mcast, (struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid), qp->context, qp, gid, lid)
ERR_OF(ibv_detach_mcast, (struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid), qp->context, qp, gid, lid)
NULL_OF(struct ibv_mr, ibv_reg_dmabuf_mr, (struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access), \
	pd->context, pd, offset, length, iova, fd, access)
NULL_OF(struct ibv_pd, ibv_import_pd, (struct ibv_context *c, uint32_t handle), c, c, handle)
NULL_OF(struct ibv_mr, ibv_import_mr, (struct ibv_pd *pd, uint32_t handle), pd->context, pd, handle)
NULL_OF(struct ibv_dm, ibv_import_dm, (struct ibv_context *c, uint32_t handle), c, c, handle)
VOID_OF(ibv_unimport_pd, (struct ibv_pd *pd), pd->context, pd)
VOID_OF(ibv_unimport_mr, (struct ibv_mr *mr), mr->context, mr)
VOID_OF(ibv_unimport_dm, (struct ibv_dm *dm), dm->context, dm)
ERR_OF(ibv_query_ece, (struct ibv_qp *qp, struct ibv_ece *ece), qp->context, qp, ece)
ERR_OF(ibv_set_ece, (struct ibv_qp *qp, struct ibv_ece *ece), qp->context, qp, ece)

PUBLIC struct ibv_context *ibv_import_device(int fd)
{
	if (kept())
		return kept()->ibv_import_device(fd); // the RNIC has no descriptor to share between processes
	refused("ibv_import_device");
	errno = EOPNOTSUPP;
	return NULL;
}

PUBLIC int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
	REAL(qp->context, ibv_query_qp_data_in_order, qp, op, flags);
	return 0; // not guaranteed
}

// rsockets are streams of librdmacm on its own private objects, which this device lacks.
PUBLIC int rsocket(UNUSED int domain, UNUSED int type, UNUSED int protocol) { say_once("rsocket", "the device does not have it; with librspreload the program goes on over TCP"); return fail(ENODEV); }

PUBLIC int rpoll(struct pollfd *fds, nfds_t n, int timeout_ms) { return poll(fds, n, timeout_ms); } // of other descriptors
