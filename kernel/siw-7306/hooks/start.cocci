// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
//
// The numbers of a QP begin when it is connected.
//
// expect: siw_qp.c 1 siw_7306_start(qp);

@@
@@
 siw_qp_nextstate_from_idle(struct siw_qp *qp, ...)
 {
 	<...
+	siw_7306_start(qp);
 	qp->tx_ctx.ddp_msn[RDMAP_UNTAGGED_QN_SEND] = 0;
 	...>
 }
