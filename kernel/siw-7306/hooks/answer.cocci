// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
//
// The mark of an Atomic Response goes with it through the queue of answers, and no Read Response has it by chance.
//
// expect: siw_qp.c 1 wqe->sqe.sge[1].lkey = irqe->sge[1].lkey;
// expect: siw_qp_rx.c 1 resp->sge[1].lkey = 0;

@@
@@
 siw_activate_tx(...)
 {
 	<...
 	wqe->sqe.sge[1].length = irqe->sge[1].length;
+	wqe->sqe.sge[1].lkey = irqe->sge[1].lkey;
 	...>
 }

@@
@@
 siw_init_rresp(...)
 {
 	<...
 	resp->sge[1].length = msn;
+	resp->sge[1].lkey = 0;
 	...>
 }

