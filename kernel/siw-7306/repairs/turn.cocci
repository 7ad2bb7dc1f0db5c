// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
//
// While a request waits for its turn (a Read for a free place, any for its fence) siw answers no Read of the peer: two sides can wait
// for each other for ever. Now the request waits in the ring.
//
// expect: siw_qp.c 1 if (siw_7306_parked(wqe, rv))
// expect: siw_qp.c 1 int rv = siw_activate_tx_from_sq(qp);
// expect: siw_qp_rx.c 0 siw_check_tx_fence
// expect: siw_qp_rx.c 1 siw_7306_orq_done(qp)

@@
@@
 siw_activate_tx_from_sq(...)
 {
 	...
+	if (siw_7306_parked(wqe, rv))
+		return 0;
 	smp_store_mb(sqe->flags, 0);
 	...
 }

@@
@@
 siw_activate_tx(...)
 {
 	<...
 	if (sq_get_next(qp) && ++qp->irq_burst >= SIW_IRQ_MAXBURST_SQ_ACTIVE) {
+		int rv = siw_activate_tx_from_sq(qp);
+
 		qp->irq_burst = 0;
-		return siw_activate_tx_from_sq(qp);
+		if (rv)
+			return rv;
 	}
 	...>
 }

@@
@@
-static int siw_check_tx_fence(...) { ... }

@@
@@
 siw_rdmap_complete(...)
 {
 	<...
-	siw_check_tx_fence(qp)
+	siw_7306_orq_done(qp)
 	...>
 }
