// SPDX-License-Identifier: BSD-3-Clause

// What the device does not have. Each fails with the errno that a driver without it gives.

#include "shim.h"

#include <infiniband/sa.h>
#include <poll.h>

#define NULL_OF(type, name, args) PUBLIC type *name args { refused(#name); errno = EOPNOTSUPP; return NULL; }
#define ERR_OF(name, args) PUBLIC int name args { refused(#name); return EOPNOTSUPP; }

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
NULL_OF(struct ibv_ah, ibv_create_ah, (struct ibv_pd *pd, struct ibv_ah_attr *attr))
NULL_OF(struct ibv_ah, ibv_create_ah_from_wc, (struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh, uint8_t port))
ERR_OF(ibv_init_ah_from_wc, (struct ibv_context *c, uint8_t port, struct ibv_wc *wc, struct ibv_grh *grh, struct ibv_ah_attr *attr))
ERR_OF(ibv_destroy_ah, (struct ibv_ah *ah))
ERR_OF(ibv_resolve_eth_l2_from_gid, (struct ibv_context *c, struct ibv_ah_attr *attr, uint8_t mac[6], uint16_t *vid))
ERR_OF(ibv_attach_mcast, (struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid))
ERR_OF(ibv_detach_mcast, (struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid))
NULL_OF(struct ibv_mr, ibv_reg_dmabuf_mr, (struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access))
NULL_OF(struct ibv_context, ibv_import_device, (int fd))
NULL_OF(struct ibv_pd, ibv_import_pd, (struct ibv_context *c, uint32_t handle))
NULL_OF(struct ibv_mr, ibv_import_mr, (struct ibv_pd *pd, uint32_t handle))
NULL_OF(struct ibv_dm, ibv_import_dm, (struct ibv_context *c, uint32_t handle))
PUBLIC void ibv_unimport_pd(struct ibv_pd *pd) { refused("ibv_unimport_pd"); }
PUBLIC void ibv_unimport_mr(struct ibv_mr *mr) { refused("ibv_unimport_mr"); }
PUBLIC void ibv_unimport_dm(struct ibv_dm *dm) { refused("ibv_unimport_dm"); }
ERR_OF(ibv_query_ece, (struct ibv_qp *qp, struct ibv_ece *ece))
ERR_OF(ibv_set_ece, (struct ibv_qp *qp, struct ibv_ece *ece))
PUBLIC int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags) { return 0; } // not promised

// rsockets are streams of librdmacm over its own, private objects, which this device does not have.
PUBLIC int rsocket(int domain, int type, int protocol) { refused("rsocket"); return fail(ENODEV); }
#pragma GCC diagnostic pop

PUBLIC int rpoll(struct pollfd *fds, nfds_t n, int timeout_ms) { return poll(fds, n, timeout_ms); } // of other descriptors
