// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

// Loopback: requests are executed between QPs of the process, immediately and in order, so that
// tests of more than single calls also have a device. Limits on outstanding requests and fences
// have no meaning where nothing takes time. A Send without a receive waits for one; on iWARP it
// ends the connection. Retries outlast the notification of a disconnect, as on every device: see
// retries.

#include "fake.h"

static bool has_rkey(const struct obj *o, uint32_t rkey) {
	return o->kind == K_MR ? ((const struct mr *)o)->pub.rkey == rkey
			       : ((const struct mw *)o)->bound && ((const struct mw *)o)->key == rkey;
}

static bool has_lkey(const struct obj *o, uint32_t lkey) {
	return ((const struct mr *)o)->pub.lkey == lkey;
}

static bool inside(uint64_t at, uint64_t len, uint64_t addr, uint64_t length) {
	return addr >= at && length <= len && addr - at <= len - length;
}

static char *host(const struct mr *m, uint64_t addr) {
	return (char *)m->pub.addr + (addr - m->iova);
}

// local returns the memory of an SGE.
static char *local(struct qp *q, const struct ibv_sge *s, bool write) {
	struct mr *m = (struct mr *)obj_find(K_MR, has_lkey, s->lkey);

	if (!m || m->pub.pd != q->pub.pd || !inside(m->iova, m->pub.length, s->addr, s->length) ||
		(write && !(m->access & IBV_ACCESS_LOCAL_WRITE)))
		return NULL;
	return host(m, s->addr);
}

// remote returns the memory that a key of q's domain gives access to.
static char *remote(struct qp *q, uint32_t rkey, uint64_t addr, uint64_t len, unsigned access) {
	struct mr *m = (struct mr *)obj_find(K_MR, has_rkey, rkey);
	struct mw *w;

	if (m) {
		if (m->pub.pd != q->pub.pd || !(m->access & access) || !inside(m->iova, m->pub.length, addr, len))
			return NULL;
		return host(m, addr);
	}
	w = (struct mw *)obj_find(K_MW, has_rkey, rkey);
	if (!w || w->pub.pd != q->pub.pd || (w->qpn && w->qpn != q->pub.qp_num) || !(w->access & access) ||
		!inside(w->addr, w->length, addr, len))
		return NULL;
	m = (struct mr *)obj_find(K_MR, has_lkey, w->lkey);
	return m ? host(m, addr) : NULL;
}

// gather copies the data of a request to a buffer, which the caller frees. It returns NULL if an
// SGE is invalid.
static char *gather(struct qp *q, const struct fake_wr *wr, uint64_t *len) {
	char *buf;
	uint64_t at = 0;

	*len = 0;
	for (int i = 0; i < wr->num_sge; i++)
		*len += wr->sge[i].length;
	buf = malloc(*len + 1);
	if (wr->flags & IBV_SEND_INLINE) {
		memcpy(buf, wr->data, *len);
		return buf;
	}
	for (int i = 0; i < wr->num_sge; i++) {
		char *from;

		if (wr->sge[i].length == 0)
			continue;
		from = local(q, &wr->sge[i], false);
		if (!from) {
			free(buf);
			return NULL;
		}
		memcpy(buf + at, from, wr->sge[i].length);
		at += wr->sge[i].length;
	}
	return buf;
}

// scatter returns a completion status.
static int scatter(struct qp *q, const struct fake_wr *wr, const char *buf, uint64_t len) {
	for (int i = 0; i < wr->num_sge && len > 0; i++) {
		uint64_t n = wr->sge[i].length < len ? wr->sge[i].length : len;
		char *to;

		if (n == 0)
			continue;
		to = local(q, &wr->sge[i], true);
		if (!to)
			return IBV_WC_LOC_PROT_ERR;
		memcpy(to, buf, n);
		buf += n;
		len -= n;
	}
	return len > 0 ? IBV_WC_LOC_LEN_ERR : IBV_WC_SUCCESS;
}

static void access_error(struct qp *q) {
	struct ibv_async_event ev = {.event_type = q->dev->iwarp ? IBV_EVENT_QP_FATAL : IBV_EVENT_QP_ACCESS_ERR,
		.element.qp = &q->pub};

	async_push(ctx_of(q->pub.context), &q->o, ev);
	qp_to_error(q);
}

// invalidate ends the access that a key gives: the binding of a window.
static bool invalidate(struct qp *q, uint32_t rkey) {
	struct mw *w = (struct mw *)obj_find(K_MW, has_rkey, rkey);

	if (!w || w->pub.type != IBV_MW_TYPE_2 || w->pub.pd != q->pub.pd || w->qpn != q->pub.qp_num)
		return false;
	w->bound = false;
	return true;
}

// put_grh writes the header that precedes a datagram: for RoCE v2 over IPv4 its last 20 bytes are
// an IPv4 header.
static void put_grh(struct qp *q, const struct fake_wr *wr, char *to) {
	struct ah *a = (struct ah *)obj_by_id(K_AH, wr->ah);
	struct ibv_grh *g = (struct ibv_grh *)to;
	const uint8_t *src = q->dev->gid[0].raw, *dst = src;

	if (a) {
		dst = a->attr.grh.dgid.raw;
		for (int i = 0; i < q->dev->gids; i++)
			if (q->dev->gid[i].index == a->attr.grh.sgid_index)
				src = q->dev->gid[i].raw;
	}
	if (src[10] == 0xff && src[11] == 0xff) {
		to[20] = 0x45;
		memcpy(to + 32, src + 12, 4);
		memcpy(to + 36, dst + 12, 4);
		return;
	}
	g->version_tclass_flow = htobe32(6u << 28);
	g->next_hdr = 0x1b;
	memcpy(g->sgid.raw, src, 16);
	memcpy(g->dgid.raw, dst, 16);
}

// deliver completes the oldest receive of p with a message. It returns the sender's status, or -1
// if there is no receive.
static int deliver(struct qp *q, struct qp *p, const struct fake_wr *wr, const char *buf, uint64_t len, bool placed) {
	struct fake_wc wc = {.qp_num = p->pub.qp_num, .opcode = placed ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV};
	bool ud = p->pub.qp_type == IBV_QPT_UD;
	struct pending r;
	int status = IBV_WC_SUCCESS;

	if (!wq_take(p, true, &r))
		return -1;
	wc.wr_id = r.wr_id;
	wc.byte_len = len + (ud ? 40 : 0);
	wc.solicited = wr->flags & IBV_SEND_SOLICITED;
	if (wr->opcode == IBV_WR_SEND_WITH_IMM || wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
		wc.flags |= IBV_WC_WITH_IMM;
		wc.imm = wr->imm;
	}
	if (ud) {
		char *both = calloc(1, len + 40);

		put_grh(q, wr, both);
		memcpy(both + 40, buf, len);
		wc.flags |= IBV_WC_GRH;
		wc.src_qp = q->pub.qp_num;
		status = r.wr ? scatter(p, r.wr, both, len + 40) : IBV_WC_SUCCESS;
		free(both);
	} else if (!placed && r.wr) {
		status = scatter(p, r.wr, buf, len);
	}
	free(r.wr);
	if (status == IBV_WC_SUCCESS && wr->opcode == IBV_WR_SEND_WITH_INV) {
		if (invalidate(p, wr->imm)) {
			wc.flags |= is_rxe(q->dev) ? RXE_WC_WITH_INV : IBV_WC_WITH_INV;
			wc.imm = wr->imm;
		} else {
			status = IBV_WC_LOC_ACCESS_ERR;
		}
	}
	wc.status = status;
	cq_add(OUTER(cq, p->pub.recv_cq), &wc);
	if (status == IBV_WC_SUCCESS)
		return status;
	qp_to_error(p);
	return ud || p->pub.qp_type == IBV_QPT_UC ? IBV_WC_SUCCESS
	     : status == IBV_WC_LOC_LEN_ERR	  ? IBV_WC_REM_INV_REQ_ERR
	     : status == IBV_WC_LOC_ACCESS_ERR	  ? IBV_WC_REM_ACCESS_ERR
						  : IBV_WC_REM_OP_ERR;
}

static int atomic(struct qp *q, struct qp *p, const struct fake_wr *wr) {
	uint64_t *word = (uint64_t *)remote(p, wr->rkey, wr->remote_addr, 8, IBV_ACCESS_REMOTE_ATOMIC), old;

	if (!word || P(word) % 8) {
		access_error(p);
		return word ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_REM_ACCESS_ERR;
	}
	if (wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		old = __atomic_fetch_add(word, wr->compare_add, __ATOMIC_SEQ_CST);
	} else {
		old = wr->compare_add;
		__atomic_compare_exchange_n(word, &old, wr->swap, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	}
	return scatter(q, wr, (char *)&old, 8);
}

static int atomic_write(struct qp *p, const struct fake_wr *wr) {
	uint64_t *word = (uint64_t *)remote(p, wr->rkey, wr->remote_addr, 8, IBV_ACCESS_REMOTE_WRITE);

	if (!word || P(word) % 8) {
		access_error(p);
		return word ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_REM_ACCESS_ERR;
	}
	__atomic_store_n(word, wr->swap, __ATOMIC_RELEASE);
	return IBV_WC_SUCCESS;
}

static int bind_window(struct qp *q, const struct fake_wr *wr) {
	struct mw *w = (struct mw *)obj_by_id(K_MW, wr->mw);
	struct mr *m = (struct mr *)obj_find(K_MR, has_lkey, wr->bind_lkey);

	if (!w)
		return IBV_WC_MW_BIND_ERR;
	if (wr->bind_length == 0) {
		w->bound = false;
		return IBV_WC_SUCCESS;
	}
	if (!m || m->pub.pd != w->pub.pd || !(m->access & IBV_ACCESS_MW_BIND) || (w->bound && w->pub.type == IBV_MW_TYPE_2) ||
		!inside(m->iova, m->pub.length, wr->bind_addr, wr->bind_length) ||
		((wr->bind_access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) && !(m->access & IBV_ACCESS_LOCAL_WRITE)))
		return IBV_WC_MW_BIND_ERR;
	w->bound = true;
	w->lkey = wr->bind_lkey;
	w->qpn = w->pub.type == IBV_MW_TYPE_2 ? q->pub.qp_num : 0;
	w->access = wr->bind_access;
	w->addr = wr->bind_addr;
	w->length = wr->bind_length;
	return IBV_WC_SUCCESS;
}

static bool reached(struct qp *q, struct qp *p) {
	if (!p || p->o.dying || p->state < IBV_QPS_RTR || p->state == IBV_QPS_ERR || p->pub.qp_type != q->pub.qp_type)
		return false;
	if (q->pub.qp_type == IBV_QPT_UD)
		return true;
	return q->dev->iwarp ? p->peer == q->pub.qp_num : p->attr.dest_qp_num == q->pub.qp_num;
}

// retries reports whether an InfiniBand request that the peer does not answer is still being
// retried: as long as the peer's QP exists, and beyond that if the connection manager has reported
// the disconnect.
static bool retries(const struct qp *q, const struct qp *p) {
	if (q->dev->iwarp || q->pub.qp_type != IBV_QPT_RC)
		return false;
	return (p && !p->o.dying && p->state == IBV_QPS_ERR) || cm_left(q->pub.qp_num);
}

// on_iwarp translates a status to siw's: Sends and Writes complete when they are sent, whatever
// their outcome; requests that a Terminate ends are flushed. A missing receive causes a Terminate
// too.
static int on_iwarp(struct qp *q, struct qp *p, const struct fake_wr *wr, int status) {
	if (status == -1)
		access_error(p);
	switch (status) {
	case -1:
	case IBV_WC_REM_INV_REQ_ERR:
	case IBV_WC_REM_ACCESS_ERR:
	case IBV_WC_REM_OP_ERR:
	case IBV_WC_RETRY_EXC_ERR:
		q->failed = true;
		return wr->opcode == IBV_WR_RDMA_READ ? IBV_WC_WR_FLUSH_ERR : IBV_WC_SUCCESS;
	default:
		return status;
	}
}

// execute returns the status of a request and the byte count for its completion, or -1 if it has to
// wait.
static int execute(struct qp *q, const struct fake_wr *wr, uint32_t *bytes) {
	bool ud = q->pub.qp_type == IBV_QPT_UD, unreliable = ud || q->pub.qp_type == IBV_QPT_UC;
	struct qp *p = qp_by_num(ud ? wr->remote_qpn : q->dev->iwarp ? q->peer : q->attr.dest_qp_num);
	char *buf = NULL, *at;
	uint64_t len = 0;
	int status;

	if (wr->opcode == IBV_WR_BIND_MW)
		return bind_window(q, wr);
	if (wr->opcode == IBV_WR_LOCAL_INV)
		return invalidate(q, wr->imm) ? IBV_WC_SUCCESS : IBV_WC_LOC_QP_OP_ERR;
	if (wr->opcode != IBV_WR_RDMA_READ && wr->opcode != IBV_WR_ATOMIC_CMP_AND_SWP &&
		wr->opcode != IBV_WR_ATOMIC_FETCH_AND_ADD && !(buf = gather(q, wr, &len)))
		return IBV_WC_LOC_PROT_ERR;
	if (!reached(q, p)) {
		free(buf);
		if (retries(q, p))
			return -1;
		if (q->dev->iwarp)
			return on_iwarp(q, p, wr, IBV_WC_RETRY_EXC_ERR);
		return unreliable ? IBV_WC_SUCCESS : IBV_WC_RETRY_EXC_ERR;
	}
	*bytes = len;
	if (ud && len > 128ULL << q->dev->port[0].active_mtu) {
		free(buf);
		return IBV_WC_LOC_LEN_ERR;
	}
	switch ((int)wr->opcode) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_SEND_WITH_INV:
		if (ud && wr->remote_qkey != p->attr.qkey) {
			status = IBV_WC_SUCCESS; // dropped
			break;
		}
		status = deliver(q, p, wr, buf, len, false);
		break;
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		status = IBV_WC_SUCCESS;
		if (len > 0) {
			at = remote(p, wr->rkey, wr->remote_addr, len, IBV_ACCESS_REMOTE_WRITE);
			if (!at) {
				if (!unreliable)
					access_error(p);
				status = unreliable ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR;
				break;
			}
			memcpy(at, buf, len);
		}
		if (wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
			status = deliver(q, p, wr, buf, len, true);
		break;
	case IBV_WR_RDMA_READ:
		status = IBV_WC_SUCCESS;
		for (int i = 0; i < wr->num_sge; i++)
			len += wr->sge[i].length;
		*bytes = len;
		if (len == 0)
			break;
		at = remote(p, wr->rkey, wr->remote_addr, len, IBV_ACCESS_REMOTE_READ);
		if (!at) {
			access_error(p);
			status = IBV_WC_REM_ACCESS_ERR;
			break;
		}
		status = scatter(q, wr, at, len);
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		*bytes = 8;
		status = atomic(q, p, wr);
		break;
	case IBV_WR_ATOMIC_WRITE:
		status = atomic_write(p, wr);
		break;
	default:
		status = IBV_WC_LOC_QP_OP_ERR;
	}
	free(buf);
	if (q->dev->iwarp)
		return on_iwarp(q, p, wr, status);
	return status == -1 && unreliable ? IBV_WC_SUCCESS : status;
}

// loop_run executes the requests waiting on q until one has to wait or fails. If a request breaks
// q, that takes effect only after the request has completed.
void loop_run(struct qp *q) {
	if (!fake_loop || q->running) // already on the stack
		return;
	q->running = true;
	while (q->state == IBV_QPS_RTS && !q->failed && q->sq.count > 0 && q->sq.wr[q->sq.head].wr) {
		uint32_t bytes = 0;
		int status = execute(q, q->sq.wr[q->sq.head].wr, &bytes);

		if (status < 0)
			break;
		wq_complete(q, false, 1, status, bytes);
		if (status != IBV_WC_SUCCESS)
			q->failed = true;
	}
	q->running = false;
	if (q->failed) {
		q->failed = false;
		qp_to_error(q);
	}
}

// loop_recv resumes requests that wait for a receive of a QP or an SRQ, or for a QP that is now
// gone.
void loop_recv(uint32_t qpn, const struct ibv_srq *srq) {
	for (struct obj *o = obj_next(K_QP, NULL); o; o = obj_next(K_QP, o)) {
		struct qp *q = (struct qp *)o, *p;

		if (q->sq.count == 0 || q->pub.qp_type == IBV_QPT_UD)
			continue;
		p = qp_by_num(q->dev->iwarp ? q->peer : q->attr.dest_qp_num);
		if (p && (srq ? p->pub.srq == srq : p->pub.qp_num == qpn))
			loop_run(q);
	}
}
