// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
//
// Requests that come after the end of a connection are never completed: their doorbell does that now. It waits for the QP's state, where
// siw gives up. A flush ends even if the program fills the ring again at the same time.
//
// expect: siw_verbs.c 1 !siw_7306_lock_state(qp)
// expect: siw_verbs.c 2 siw_7306_flush(qp, wr) > 0 ? siw_sq_flush_wr(
// expect: siw_qp.c 2 u32 turns = 0;
// expect: siw_qp.c 1 while (turns++ < qp->attrs.sq_size)
// expect: siw_qp.c 1 while (turns++ < qp->attrs.rq_size)
// expect: siw_cq.c 1 while (turns++ < cq->num_cqe && siw_reap_cqe(cq, &wc))

@@
@@
 siw_post_send(...)
 {
 	<...
-	!down_read_trylock(&qp->state_lock)
+	!siw_7306_lock_state(qp)
 	...>
 }

@@
@@
 siw_post_send(...)
 {
 	<...
-	rv = siw_sq_flush_wr(qp, wr, bad_wr);
+	rv = siw_7306_flush(qp, wr) > 0 ? siw_sq_flush_wr(qp, wr, bad_wr) : 0;
 	...>
 }

@@
@@
 siw_sq_flush(...)
 {
+	u32 turns = 0;
 	...
-	while (qp->attrs.sq_size)
+	while (turns++ < qp->attrs.sq_size)
 	{ ... }
 	...
 }

@@
@@
 siw_rq_flush(...)
 {
+	u32 turns = 0;
 	...
-	while (qp->attrs.rq_size)
+	while (turns++ < qp->attrs.rq_size)
 	{ ... }
 	...
 }

@@
@@
 siw_cq_flush(...)
 {
+	u32 turns = 0;
 	...
-	while (siw_reap_cqe(cq, &wc))
+	while (turns++ < cq->num_cqe && siw_reap_cqe(cq, &wc))
 	;
 }
