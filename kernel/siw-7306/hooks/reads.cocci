// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
//
// What holds for Reads holds for atomics: they have an entry in the ORQ, and are complete when their answer has come.
//
// expect: siw_qp.c 3 siw_7306_is_read(
// expect: siw_qp_tx.c 3 siw_7306_is_read(
// expect: siw_qp_tx.c 1 tx_type = siw_7306_class(tx_type(wqe));

@@
expression E;
@@
-E == SIW_OP_READ || E == SIW_OP_READ_LOCAL_INV
+siw_7306_is_read(E)

@@
expression E;
@@
-E != SIW_OP_READ && E != SIW_OP_READ_LOCAL_INV
+!siw_7306_is_read(E)

@@
expression E, F;
@@
-F && E != SIW_OP_READ && E != SIW_OP_READ_LOCAL_INV
+F && !siw_7306_is_read(E)

@@
@@
 siw_qp_sq_process(...)
 {
 	<...
-	tx_type = tx_type(wqe);
+	tx_type = siw_7306_class(tx_type(wqe));
 	...>
 }
