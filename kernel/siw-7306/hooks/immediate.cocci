// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
//
// The completion of a receive tells the immediate. siw has no use for these 8 bytes.
//
// expect: siw_qp.c 1 cqe->imm_data = siw_7306_imm(rqe, &cqe_flags);

@@
@@
 siw_rqe_complete(...)
 {
 	<...
-	cqe->imm_data = 0;
+	cqe->imm_data = siw_7306_imm(rqe, &cqe_flags);
 	...>
 }
