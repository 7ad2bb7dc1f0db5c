// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
//
// A program's doorbell and the transmit thread can send the same message at once: if the socket is full the callback for new room may
// come before the send that found no room has returned, and wakes the thread while the doorbell has yet to note how much was sent.
// Two that wake the thread at once put the QP into its list twice, which loses the QPs between. And in_syscall, by which a doorbell says that
// the program's own addresses can be used, holds for the thread that sends meanwhile too, which has another's memory there or none; it shares
// a byte with orq_fence, which is lost if both change at once. The thread does not look at a QP while a program modifies it, and not
// afterwards either: what it was woken for is never sent.
//
// expect: siw_qp_tx.c 1 int rv = siw_7306_process(qp);
// expect: siw_qp_tx.c 1 if (siw_7306_is_queued(qp))
// expect: siw_qp_tx.c 2 siw_7306_unqueue(qp);
// expect: siw_qp_tx.c 0 in_syscall
// expect: siw_verbs.c 1 siw_7306_process(qp) != 0
// expect: siw_verbs.c 0 in_syscall
// expect: siw_verbs.c 1 siw_7306_modified(qp);

@@
@@
 siw_sq_resume(...)
 {
 	<...
-	siw_qp_sq_process(qp)
+	siw_7306_process(qp)
 	...>
 }

@@
@@
 siw_post_send(...)
 {
 	<...
-	siw_qp_sq_process(qp)
+	siw_7306_process(qp)
 	...>
 }

@@
expression E;
@@
 siw_post_send(...)
 {
 	<...
-	qp->tx_ctx.in_syscall = E;
 	...>
 }

@@
@@
 siw_try_1seg(...)
 {
 	<...
-	c_tx->in_syscall
+	false
 	...>
 }

@@
@@
 siw_sq_start(...)
 {
 	...
+	if (siw_7306_is_queued(qp))
+		return 0;
 	siw_qp_get(qp);
 	...
 }

@@
@@
 siw_run_sq(...)
 {
 	<...
 	qp->tx_list.next = NULL;
+	siw_7306_unqueue(qp);
 	...>
 }

@@
@@
 siw_verbs_modify_qp(...)
 {
 	<...
 	up_write(&qp->state_lock);
+	siw_7306_modified(qp);
 	...>
 }
