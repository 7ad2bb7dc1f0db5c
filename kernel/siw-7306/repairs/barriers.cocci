// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
//
// Rings shared with user space: an entry is read after its flag VALID, a completion is visible before its flag, and a CQ that a program
// arms at the same time gets an event or shows the completion.
//
// expect: siw.h 1 smp_load_acquire(&sqe->flags) & SIW_WQE_VALID
// expect: siw_qp_rx.c 1 smp_load_acquire(&rqe->flags) == SIW_WQE_VALID
// expect: siw_qp.c 2 smp_store_release(&cqe->flags,
// expect: siw_qp.c 1 smp_mb();

@@
@@
 sq_get_next(...)
 {
 	<...
-	READ_ONCE(sqe->flags)
+	smp_load_acquire(&sqe->flags)
 	...>
 }

@@
@@
 siw_rqe_get(...)
 {
 	<...
-	rqe->flags == SIW_WQE_VALID
+	smp_load_acquire(&rqe->flags) == SIW_WQE_VALID
 	...>
 }

@@
expression E;
@@
-WRITE_ONCE(cqe->flags, E);
+smp_store_release(&cqe->flags, E);

@@
@@
 siw_cq_notify_now(...)
 {
 	...
+	smp_mb();
 	cq_notify = READ_ONCE(cq->notify->flags);
 	...
 }
