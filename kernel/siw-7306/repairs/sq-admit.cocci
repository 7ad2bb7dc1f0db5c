// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
//
// Requests of user space are executed unchecked: REG_MR follows a pointer of the program, an element of length 0 is used without its
// memory (oops), an opcode of siw's own makes the kernel warn. A request that cannot be executed (also a Read while ORD is 0, or with a
// fence) stays at the head of the queue for ever. A Read without elements asks for what the ring held before.
//
// expect: siw_qp.c 1 if (siw_7306_admit(qp, wqe))

@@
@@
 siw_activate_tx_from_sq(...)
 {
 	...
 	memcpy(&wqe->sqe, sqe, sizeof(*sqe));
+	if (siw_7306_admit(qp, wqe))
+		return 0;
 	...
 }
