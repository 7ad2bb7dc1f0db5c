// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

/*
 * RFC 7306 in siw: masked FetchAdd and CmpSwap, Immediate Data with and without solicited event. README.md has the contract with
 * user space, the states and the order of errors. iwarp.h includes this file, so it knows siw's structures by name only.
 */
#ifndef SIW_7306_H
#define SIW_7306_H

#include <linux/atomic.h>
#include <linux/types.h>

/*
 * The contract's number: hw_ver of the device; what a program that wants RFC 7306 for a QP sends behind the command to make it; and the
 * answer to that, in siw_uresp_create_qp.pad. A change that user space must know of changes its low 16 bits.
 */
#define SIW_7306_CONTRACT 0x73060002

/* Opcodes (RFC 7306 section 4.1). */
enum siw_7306_opcode {
	SIW_7306_IMM = 8,
	SIW_7306_IMM_SE,
	SIW_7306_ATOMIC_REQ,
	SIW_7306_ATOMIC_RESP,
	SIW_7306_OPCODES /* how many there are in all */
};

/* Queue of Atomic Responses. Requests go to that of Read Requests, immediates to that of Sends. */
#define SIW_7306_QN_RESP 3

/* Atomic operations (RFC 7306 section 5.2.1), the low 4 bits of iwarp_atomic_req.op. */
enum siw_7306_atomic {
	SIW_7306_FETCH_ADD = 0,
	SIW_7306_CMP_SWAP = 2
};

/* Bits of siw_cqe.flags and, inside the kernel, of siw_rqe.flags, which siw does not use there. */
#define SIW_7306_WITH_IMM BIT(7) /* imm_data is Immediate Data */
#define SIW_7306_BEHIND_WRITE BIT(1) /* it came directly behind an RDMA Write of cqe.bytes */

/* sge[1].lkey of a READ_RESPONSE that is an Atomic Response: rkey is the identifier, raddr the value. */
#define SIW_7306_ANSWER 0x7306

/* The first 20 bytes of an FPDU with an untagged segment. */
struct iwarp_7306_ddp {
	__be16 mpa_len;
	__be16 ctrl;
	__be32 rsvd;
	__be32 qn;
	__be32 msn;
	__be32 mo;
};

struct iwarp_7306_imm {
	struct iwarp_7306_ddp ddp;
	u8 data[8];
	__be32 crc;
};

struct iwarp_7306_atomic_req {
	struct iwarp_7306_ddp ddp;
	__be32 op;
	__be32 id;
	__be32 stag;
	__be64 to;
	__be64 data; /* to add or to swap in */
	__be64 mask;
	__be64 cmp;
	__be64 cmp_mask;
	__be32 crc;
};

struct iwarp_7306_atomic_resp {
	struct iwarp_7306_ddp ddp;
	__be32 id;
	__be64 value;
	__be32 crc;
};

/* The lengths without the CRC, which has room here only because a whole FPDU is built in a header. */
#define SIW_7306_LEN(type) offsetof(struct iwarp_7306_##type, crc)

union iwarp_7306 {
	struct iwarp_7306_ddp ddp;
	struct iwarp_7306_imm imm;
	struct iwarp_7306_atomic_req req;
	struct iwarp_7306_atomic_resp resp;
};

/* What a QP has more than siw's. The receive path owns the members below rx, the transmit path those below tx. */
struct siw_7306 {
	/* rx */
	u32 resp_next; /* MSN and identifier of the next Atomic Response */
	u32 written; /* bytes of the RDMA Write that is being received, or was the last message */
	bool wrote; /* the last message was an RDMA Write */
	/* tx */
	u32 resp_sent; /* MSN of the last Atomic Response */
	u32 req_sent; /* identifier of the last Atomic Request */
	atomic_t sender; /* 0: nobody runs the transmit path; 1: somebody does; more: and is to have it run again */
	atomic_t queued; /* the transmit thread's list has the QP */
	/* both */
	u32 contract; /* 0: the program knows nothing of RFC 7306; else the contract's number */
	u32 access; /* IB_ACCESS_*; SIW_7306_ACCESS_ALL until a program has set them by modify_qp */
};

#define SIW_7306_ACCESS_ALL (~0U)

/* Before an event goes to iw_cm: nothing is to be done, it has been told before, or it must be told of the connection first. */
enum siw_7306_said { SIW_7306_GO_ON, SIW_7306_SAID, SIW_7306_UNSAID };

struct siw_cep;
struct siw_iwarp_tx;
struct siw_mem;
struct siw_qp;
struct siw_rqe;
struct siw_rx_stream;
struct siw_sqe;
struct siw_wqe;
struct sock;
struct ib_qp_attr;
struct ib_recv_wr;
struct ib_send_wr;
struct ib_udata;

/* siw_7306.c */
int siw_7306_init(void);
void siw_7306_exit(void);
u32 siw_7306_asked(struct ib_udata *udata);
u8 siw_7306_opcodes(struct siw_qp *qp);
void siw_7306_start(struct siw_qp *qp);
bool siw_7306_is_read(int opcode);
int siw_7306_class(int opcode);

/* siw_7306_access.c */
void siw_7306_set_access(struct siw_qp *qp, int flags);
int siw_7306_get_access(struct siw_qp *qp);
int siw_7306_right(struct siw_qp *qp, int right);
bool siw_7306_outside(struct siw_mem *mem, u64 addr, u32 len);
int siw_7306_ib_state(struct siw_qp *qp);

/* siw_7306_sq.c */
bool siw_7306_admit(struct siw_qp *qp, struct siw_wqe *wqe);
bool siw_7306_parked(struct siw_wqe *wqe, int rv);
int siw_7306_orq_done(struct siw_qp *qp);
bool siw_7306_lock_state(struct siw_qp *qp);
int siw_7306_flush(struct siw_qp *qp, const struct ib_send_wr *wr);

/* siw_7306_tx.c */
bool siw_7306_build(struct siw_iwarp_tx *c_tx, char **crc);
int siw_7306_process(struct siw_qp *qp);
bool siw_7306_is_queued(struct siw_qp *qp);
void siw_7306_unqueue(struct siw_qp *qp);
void siw_7306_modified(struct siw_qp *qp);

/* siw_7306_rx.c */
int siw_7306_header(struct siw_rx_stream *srx, u8 opcode);
int siw_7306_hdr_len(struct siw_rx_stream *srx, u8 opcode);
bool siw_7306_completes(struct siw_qp *qp, u8 opcode, int error, int *rv);
int siw_7306_rx(struct siw_qp *qp);
int siw_7306_rx_write(struct siw_qp *qp);
u64 siw_7306_imm(struct siw_rqe *rqe, u8 *cqe_flags);
u32 siw_7306_trailer_seen(struct siw_rx_stream *srx);
u32 siw_7306_solicited(u32 flags, int status);

/* siw_7306_atomic.c */
int siw_7306_atomic_req(struct siw_qp *qp);
int siw_7306_atomic_resp(struct siw_qp *qp);

/* siw_7306_term.c */
void siw_7306_send_terminate(struct siw_qp *qp);
int siw_7306_rx_terminate(struct siw_qp *qp);

/* siw_7306_cm.c */
int siw_7306_state(struct siw_cep *cep, struct sock *sk);
bool siw_7306_no_word(struct siw_cep *cep);
bool siw_7306_has_data(struct siw_cep *cep);
void siw_7306_look(struct siw_cep *cep);
enum siw_7306_said siw_7306_say(struct siw_cep *cep, int reason);
void siw_7306_assoc(struct sock *sk);
void siw_7306_forget_qp(struct siw_cep *cep);
void siw_7306_resume(struct siw_cep *cep);

/* siw_7306_mem.c */
int siw_7306_mem_init(void);
void siw_7306_mem_exit(void);
void siw_7306_mem_wait(void);
void siw_7306_free_mem(struct kref *ref);

/* In siw's files, no longer static. */
struct siw_wqe *siw_rqe_get(struct siw_qp *qp);

#endif
