// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

// The hot path: a list of requests or completions crosses from Go to C in one call and is converted
// here.

#include "cgo_verbs.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#include "ibv_abi.h"

// Number of requests converted at once, on the stack.
#define CHUNK 64

_Static_assert(sizeof(struct gv_sge) == sizeof(struct ibv_sge) && offsetof(struct gv_sge, lkey) == offsetof(struct ibv_sge, lkey),
	"elements cross as they are");

static inline uint64_t outcome(int rc, uint32_t taken) { return (uint64_t)(rc < 0 ? GV_NO_ERRNO : rc) << 32 | taken; }

// settle computes the result of a posting function. i is how many of the m requests of a chunk were
// accepted before bad, or -1 if bad is not set.
static inline uint64_t settle(int rc, int done, long i, int m) {
	if (i >= 0 && i < m)
		// If a list is too long for its ring, libsiw returns success after posting part of it, or
		// -ENOMEM if it posted none.
		return outcome(rc == 0 || rc == -ENOMEM ? ENOMEM : rc, (uint32_t)(done + i));
	return outcome(rc, (uint32_t)done) | (uint64_t)GV_BROKEN << 32;
}

// post_atomic_write posts a request that ibv_post_send does not support, to a QP created by
// gv_create_qp_ex. It returns 0, or an errno if nothing was posted (ibv_wr_complete(3)).
static int post_atomic_write(struct ibv_qp *q, const struct ibv_send_wr *v) {
	struct ibv_qp_ex *x = (struct ibv_qp_ex *)q;
	x->wr_start(x);
	x->wr_id = v->wr_id;
	x->wr_flags = v->send_flags;
	x->wr_atomic_write(x, v->wr.atomic.rkey, v->wr.atomic.remote_addr, &v->wr.atomic.swap);
	return x->wr_complete(x);
}

static inline uint64_t post_send(uintptr_t qp, const struct gv_wr *w, const struct gv_sge *sge, const struct gv_ext *ext, int n) {
	struct ibv_qp *q = (struct ibv_qp *)qp;
	struct ibv_send_wr list[CHUNK];
	for (int done = 0; done < n;) {
		int m = n - done < CHUNK ? n - done : CHUNK;
		for (int i = 0; i < m; i++, w++) {
			struct ibv_send_wr *v = &list[i];
			uint32_t opcode = w->op & 0xff, num_sge = w->op >> GV_SGES_SHIFT;
			v->wr_id = w->id;
			v->next = v + 1;
			v->sg_list = (struct ibv_sge *)sge;
			v->num_sge = (int)num_sge;
			v->opcode = opcode;
			v->send_flags = w->op >> GV_FLAGS_SHIFT & 0xff;
			v->imm_data = htobe32(w->imm);
			v->wr.rdma.remote_addr = w->remote_addr;
			v->wr.rdma.rkey = w->rkey;
			sge += num_sge;
			if (opcode >= IBV_WR_LOCAL_INV && opcode <= IBV_WR_SEND_WITH_INV)
				v->invalidate_rkey = w->imm;
			if (w->ext == 0)
				continue;
			const struct gv_ext *x = &ext[w->ext - 1];
			switch (opcode) {
			case IBV_WR_ATOMIC_CMP_AND_SWP:
			case IBV_WR_ATOMIC_FETCH_AND_ADD:
				v->wr.atomic.remote_addr = w->remote_addr;
				v->wr.atomic.rkey = w->rkey;
				v->wr.atomic.compare_add = x->a;
				v->wr.atomic.swap = x->b;
				break;
			case IBV_WR_ATOMIC_WRITE:
				v->wr.atomic.remote_addr = w->remote_addr;
				v->wr.atomic.rkey = w->rkey;
				v->wr.atomic.swap = x->a;
				m = i + 1; // it is posted on its own
				break;
			case IBV_WR_BIND_MW:
				v->bind_mw.mw = (struct ibv_mw *)(uintptr_t)x->p;
				v->bind_mw.rkey = x->c;
				v->bind_mw.bind_info.mr = (struct ibv_mr *)(uintptr_t)x->q;
				v->bind_mw.bind_info.addr = x->a;
				v->bind_mw.bind_info.length = x->b;
				v->bind_mw.bind_info.mw_access_flags = x->d;
				m = i + 1; // mw must hold the new key when the next bind is posted
				break;
			default:
				v->wr.ud.ah = (struct ibv_ah *)(uintptr_t)x->p;
				v->wr.ud.remote_qpn = x->c;
				v->wr.ud.remote_qkey = x->d;
			}
		}
		struct ibv_send_wr *last = &list[m - 1];
		int plain = last->opcode == IBV_WR_ATOMIC_WRITE ? m - 1 : m;
		if (plain > 0) {
			list[plain - 1].next = NULL;
			struct ibv_send_wr *bad = NULL;
			// The man page says 0 or an errno; libsiw returns a negative errno, or -1 without bad
			// if the doorbell failed.
			int rc = q->context->ops.post_send(q, list, &bad);
			if (rc || bad)
				return settle(rc, done, bad ? bad - list : -1, plain);
		}
		done += m;
		if (plain < m) {
			int rc = post_atomic_write(q, last);
			if (rc)
				return outcome(rc, (uint32_t)done - 1);
		}
		// Drivers identify the window by its last key, which only ibv_bind_mw keeps up to date.
		if (last->opcode == IBV_WR_BIND_MW)
			last->bind_mw.mw->rkey = last->bind_mw.rkey;
	}
	return outcome(0, (uint32_t)n);
}

static inline void give_back(uint32_t *held) {
	if (held)
		__atomic_store_n(held, 0, __ATOMIC_RELEASE);
}

void gv_gather(void *to, const struct gv_sge *sge, int n) {
	for (; n > 0; n--, sge++) {
		memcpy(to, (const void *)(uintptr_t)sge->addr, sge->length);
		to = (char *)to + sge->length;
	}
}

uint64_t gv_post_send(uintptr_t qp, const struct gv_wr *w, const struct gv_sge *sge, const struct gv_ext *ext, int n,
		      uint32_t *held) {
	uint64_t res = post_send(qp, w, sge, ext, n);
	give_back(held);
	return res;
}

static inline void convert_recv(struct ibv_recv_wr *list, const struct gv_recv *w, const struct gv_sge **sge, int m) {
	for (int i = 0; i < m; i++) {
		list[i].wr_id = w[i].id;
		list[i].next = &list[i + 1];
		list[i].sg_list = (struct ibv_sge *)*sge;
		list[i].num_sge = (int)w[i].num_sge;
		*sge += w[i].num_sge;
	}
	list[m - 1].next = NULL;
}

static inline uint64_t post_recv(uintptr_t qp, const struct gv_recv *w, const struct gv_sge *sge, int n) {
	struct ibv_qp *q = (struct ibv_qp *)qp;
	struct ibv_recv_wr list[CHUNK];
	for (int done = 0; done < n;) {
		int m = n - done < CHUNK ? n - done : CHUNK;
		convert_recv(list, w + done, &sge, m);
		struct ibv_recv_wr *bad = NULL;
		int rc = q->context->ops.post_recv(q, list, &bad); // as ibv_post_send
		if (rc || bad)
			return settle(rc, done, bad ? bad - list : -1, m);
		done += m;
	}
	return outcome(0, (uint32_t)n);
}

uint64_t gv_post_recv(uintptr_t qp, const struct gv_recv *w, const struct gv_sge *sge, int n, uint32_t *held) {
	uint64_t res = post_recv(qp, w, sge, n);
	give_back(held);
	return res;
}

uint64_t gv_post_srq_recv(uintptr_t srq, const struct gv_recv *w, const struct gv_sge *sge, int n) {
	struct ibv_srq *q = (struct ibv_srq *)srq;
	struct ibv_recv_wr list[CHUNK];
	for (int done = 0; done < n;) {
		int m = n - done < CHUNK ? n - done : CHUNK;
		convert_recv(list, w + done, &sge, m);
		struct ibv_recv_wr *bad = NULL;
		int rc = q->context->ops.post_srq_recv(q, list, &bad); // as ibv_post_send
		if (rc || bad)
			return settle(rc, done, bad ? bad - list : -1, m);
		done += m;
	}
	return outcome(0, (uint32_t)n);
}

// convert_wc sets the fields that ibv_poll_cq(3) defines: after an error only id, status and the QP
// number. with_inv is the flag of a completion that carries an invalidated key.
static inline void convert_wc(struct gv_wc *o, const struct ibv_wc *v, unsigned int with_inv) {
	o->id = v->wr_id;
	o->status = (uint8_t)v->status;
	o->vendor_err = v->vendor_err;
	o->qp_num = v->qp_num;
	o->imm = o->invalidated_rkey = 0;
	o->imm64 = o->posted = 0;
	if (v->status != IBV_WC_SUCCESS) {
		o->opcode = o->flags = o->sl = o->dlid_path_bits = 0;
		o->byte_len = o->src_qp = 0;
		o->pkey_index = o->slid = 0;
		return;
	}
	o->opcode = (uint8_t)v->opcode;
	// rxe also sets WITH_IMM on the sender's side, without an immediate.
	o->flags = v->opcode & IBV_WC_RECV ? v->wc_flags & (IBV_WC_GRH | IBV_WC_WITH_IMM) : 0;
	o->byte_len = v->byte_len;
	o->src_qp = v->src_qp;
	o->pkey_index = v->pkey_index;
	o->slid = v->slid;
	o->sl = v->sl;
	o->dlid_path_bits = v->dlid_path_bits;
	if (o->flags & IBV_WC_WITH_IMM) {
		o->imm = be32toh(v->imm_data);
		o->imm64 = (uint64_t)o->imm << 32;
	} else if (v->opcode & IBV_WC_RECV && v->wc_flags & with_inv) {
		o->flags |= IBV_WC_WITH_INV;
		o->invalidated_rkey = v->invalidated_rkey;
	}
}

static inline int poll(uintptr_t cq, struct gv_wc *out, int n, unsigned int with_inv) {
	struct ibv_cq *q = (struct ibv_cq *)cq;
	struct ibv_wc list[CHUNK];
	int done = 0, errors = 0;
	while (done < n) {
		int m = n - done < CHUNK ? n - done : CHUNK;
		// It returns a count, or a negative number that is not an errno.
		int got = q->context->ops.poll_cq(q, m, list);
		if (got < 0)
			return done > 0 ? done | errors : got;
		for (int i = 0; i < got; i++) {
			convert_wc(&out[done + i], &list[i], with_inv);
			if (list[i].status != IBV_WC_SUCCESS)
				errors = GV_ERRORS;
		}
		done += got;
		if (got < m)
			break;
	}
	return done | errors;
}

int gv_poll(uintptr_t cq, struct gv_wc *out, int n, unsigned int with_inv, uint32_t *held) {
	int got = poll(cq, out, n, with_inv);
	give_back(held);
	return got;
}
