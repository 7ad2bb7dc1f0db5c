// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
//
// The answer to a Read of 0 bytes that waits in the queue has the length of the message before.
//
// expect: siw_qp.c 2 wqe->sqe.sge[0].length = 0;

@@
@@
 siw_activate_tx(...)
 {
 	<...
 	wqe->sqe.num_sge = 0;
+	wqe->sqe.sge[0].length = 0;
 	...>
 }
