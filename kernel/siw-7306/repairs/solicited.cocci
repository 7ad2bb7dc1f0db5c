// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
//
// No receive counts as solicited. A failed completion does now, and a request of one's own does not.
//
// expect: siw_qp.c 1 u32 rqe_flags = siw_7306_solicited(rqe->flags, status);
// expect: siw_qp.c 1 siw_cq_notify_now(cq, rqe_flags)
// expect: siw_qp.c 1 u32 sqe_flags = siw_7306_solicited(0, status);

@@
@@
 siw_rqe_complete(...)
 {
 	<...
+	u32 rqe_flags = siw_7306_solicited(rqe->flags, status);
 	u8 cqe_flags = SIW_WQE_VALID;
 	...
-	siw_cq_notify_now(cq, SIW_WQE_SIGNALLED)
+	siw_cq_notify_now(cq, rqe_flags)
 	...>
 }

@@
@@
 siw_sqe_complete(...)
 {
 	<...
-	u32 sqe_flags = sqe->flags;
+	u32 sqe_flags = siw_7306_solicited(0, status);
 	...>
 }
