// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
//
// A program's doorbell and the transmit thread can send the same message at once: if the socket is full the callback for new room may
// come before the send that found no room has returned, and wakes the thread while the doorbell has yet to note how much was sent.
//
// expect: siw_qp_tx.c 1 int rv = siw_7306_process(qp);
// expect: siw_verbs.c 1 siw_7306_process(qp) != 0
// expect: siw_verbs.c 1 mutex_init(&qp->x7306.sender);

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
@@
 siw_create_qp(...)
 {
 	<...
+	mutex_init(&qp->x7306.sender);
 	qp->attrs.sq_size = num_sqe;
 	...>
 }
