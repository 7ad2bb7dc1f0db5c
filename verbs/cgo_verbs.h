// SPDX-License-Identifier: BSD-3-Clause

// What the Go files of the cgo provider call. The functions bring the error conventions of libibverbs, of which there
// are three, to one: 0 or a positive errno, and ERR_NO_ERRNO where the library gave none.

#ifndef GOVERBS_CGO_VERBS_H
#define GOVERBS_CGO_VERBS_H

#if !__has_include(<infiniband/verbs.h>)
#error "infiniband/verbs.h is missing: install libibverbs-dev and librdmacm-dev, or build with -tags noibverbs"
#else

#include <endian.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <infiniband/verbs.h>

#define GV_NO_ERRNO 4096 // larger than any errno

// gv_result is for functions that return 0 or an errno. A negative value breaks the manual pages' rule.
static inline int gv_result(int rc) { return rc < 0 ? GV_NO_ERRNO : rc; }

// gv_errno is for functions that set errno.
static inline int gv_errno(void) { return errno > 0 ? errno : GV_NO_ERRNO; }

static inline uint64_t gv_be64(uint64_t v) { return be64toh(v); }

// gv_wr is a send request without pointers: what every request has, and where in the list of gv_ext the rest is.
struct gv_wr {
	uint64_t id, remote_addr;
	uint32_t rkey;
	uint32_t imm; // host order; with the opcodes *_INV the key to invalidate
	uint32_t op;  // GV_OP
	uint32_t ext;
};

// An opcode, the flags and the number of elements in one number.
#define GV_FLAGS_SHIFT 8
#define GV_SGES_SHIFT 16

// gv_ext is what few requests have. Atomics: a compare or add, b swap. Datagrams: p address handle, c number, d key of the
// receiver. Binds: p window, q region, a address, b length, c key, d rights.
struct gv_ext {
	uint64_t p, q, a, b;
	uint32_t c, d;
};

// gv_recv is a receive request without pointers.
struct gv_recv {
	uint64_t id;
	uint32_t num_sge, unused;
};

// gv_wc has the layout of type WC, into which completions are written directly.
struct gv_wc {
	uint64_t id;
	uint8_t status, opcode, flags;
	uint32_t byte_len;
	uint32_t imm;
	uint64_t imm64;
	uint32_t invalidated_rkey, vendor_err, qp_num, src_qp;
	uint16_t pkey_index, slid;
	uint8_t sl, dlid_path_bits;
};

// The posting functions return how many requests were taken in the low half, and in the upper half 0 or the reason why not
// all: an errno or GV_NO_ERRNO. GV_BROKEN is set if the library did not tell how many it took.
#define GV_BROKEN (1u << 31)
// Objects come as numbers here: Go checks pointers to what may hold pointers, which costs as much as the work.
uint64_t gv_post_send(uintptr_t qp, const struct gv_wr *wrs, const struct ibv_sge *sges, const struct gv_ext *ext, int n, uint32_t *held);
uint64_t gv_post_recv(uintptr_t qp, const struct gv_recv *wrs, const struct ibv_sge *sges, int n, uint32_t *held);
uint64_t gv_post_srq_recv(uintptr_t srq, const struct gv_recv *wrs, const struct ibv_sge *sges, int n);
// gv_gather copies what n elements name to a place.
void gv_gather(void *to, const struct ibv_sge *sges, int n);

// gv_poll returns the number of completions, with GV_ERRORS if one of them is not a success, or a negative number that
// means nothing but failure. with_inv is the device's flag for what IBV_WC_WITH_INV says.
#define GV_ERRORS (1 << 30)
int gv_poll(uintptr_t cq, struct gv_wc *out, int n, unsigned int with_inv, uint32_t *held);

// Devices.

struct gv_device {
	char name[IBV_SYSFS_NAME_MAX];
	uint64_t guid; // host order
	int node_type, transport;
};

int gv_devices(struct gv_device **out, int *n); // the caller frees out
int gv_open(const char *name, uint64_t guid, struct ibv_context **out);

// Events.

struct gv_async {
	int type, port;
	uint64_t cookie; // of the object, 0 = none
};

int gv_async_event(struct ibv_context *ctx, struct gv_async *out);
int gv_cq_event(struct ibv_comp_channel *ch, uint64_t *cookie);

// Control path.

static inline int gv_query_port(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *out) {
	memset(out, 0, sizeof *out);
	return gv_result(ibv_query_port(ctx, port, out)); // 0 or an errno
}

// gv_has_odp reports whether the device says that it has on-demand paging.
static inline int gv_has_odp(struct ibv_context *ctx) {
	struct ibv_device_attr_ex attr;
	memset(&attr, 0, sizeof attr);
	// 0 or an errno: EOPNOTSUPP from libraries and kernels that know no extended attributes, and so no paging.
	return !ibv_query_device_ex(ctx, NULL, &attr) && attr.odp_caps.general_caps & IBV_ODP_SUPPORT;
}

struct gv_gid {
	uint8_t raw[16];
	int type;
	char netdev[64]; // "" = none
};

int gv_query_gid(struct ibv_context *ctx, uint32_t port, uint32_t index, struct gv_gid *out);
int gv_query_pkey(struct ibv_context *ctx, uint8_t port, int index, uint16_t *out);

static inline int gv_alloc_pd(struct ibv_context *ctx, struct ibv_pd **out) {
	errno = 0;
	return (*out = ibv_alloc_pd(ctx)) ? 0 : gv_errno(); // NULL and errno
}

static inline int gv_reg_mr(struct ibv_pd *pd, uintptr_t addr, size_t len, uint64_t iova, unsigned access, struct ibv_mr **out) {
	errno = 0;
	if (iova == addr)
		*out = ibv_reg_mr(pd, (void *)addr, len, access); // NULL and errno
	else
		*out = ibv_reg_mr_iova(pd, (void *)addr, len, iova, access); // NULL and errno
	return *out ? 0 : gv_errno();
}

static inline int gv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t len, uint64_t iova, int fd, int access,
	struct ibv_mr **out) {
	errno = 0;
	return (*out = ibv_reg_dmabuf_mr(pd, offset, len, iova, fd, access)) ? 0 : gv_errno(); // NULL and errno
}

static inline int gv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, uintptr_t addr, size_t len, int access, int *err) {
	errno = 0;
	int rc = ibv_rereg_mr(mr, flags, pd, (void *)addr, len, access);
	*err = rc ? gv_errno() : 0;
	return rc;
}

static inline int gv_alloc_mw(struct ibv_pd *pd, int type, struct ibv_mw **out) {
	errno = 0;
	return (*out = ibv_alloc_mw(pd, type)) ? 0 : gv_errno(); // NULL and errno
}

static inline int gv_create_comp_channel(struct ibv_context *ctx, struct ibv_comp_channel **out) {
	errno = 0;
	return (*out = ibv_create_comp_channel(ctx)) ? 0 : gv_errno(); // NULL and errno
}

static inline int gv_create_cq(struct ibv_context *ctx, int cqe, uint64_t cookie, struct ibv_comp_channel *ch, struct ibv_cq **out) {
	errno = 0;
	return (*out = ibv_create_cq(ctx, cqe, (void *)(uintptr_t)cookie, ch, 0)) ? 0 : gv_errno(); // NULL and errno
}

static inline int gv_create_srq(struct ibv_pd *pd, uint64_t cookie, struct ibv_srq_attr *attr, struct ibv_srq **out) {
	struct ibv_srq_init_attr init = {.srq_context = (void *)(uintptr_t)cookie, .attr = *attr};
	errno = 0;
	*out = ibv_create_srq(pd, &init); // NULL and errno
	*attr = init.attr;
	return *out ? 0 : gv_errno();
}

int gv_create_qp(struct ibv_pd *pd, uint64_t cookie, struct ibv_cq *send_cq, struct ibv_cq *recv_cq, struct ibv_srq *srq,
	int type, int sig_all, struct ibv_qp_cap *cap, struct ibv_qp **out);
int gv_bind_mw(struct ibv_qp *qp, uint64_t id, unsigned flags, struct ibv_mw *mw, struct ibv_mr *mr, uint64_t addr,
	uint64_t length, unsigned access);

static inline int gv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr, struct ibv_ah **out) {
	errno = 0;
	return (*out = ibv_create_ah(pd, attr)) ? 0 : gv_errno(); // NULL and errno
}

static inline int gv_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid, int attach) {
	return gv_result(attach ? ibv_attach_mcast(qp, gid, lid) : ibv_detach_mcast(qp, gid, lid)); // 0 or an errno
}

static inline int gv_req_notify_cq(struct ibv_cq *cq, int solicited_only) {
	return gv_result(ibv_req_notify_cq(cq, solicited_only)); // 0 or an errno
}

#endif
#endif
