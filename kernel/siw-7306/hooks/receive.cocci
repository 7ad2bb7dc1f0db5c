// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
//
// The receive path reads the new headers and hands whole messages over. A Read Response does not answer an atomic.
//
// expect: siw_qp_rx.c 3 siw_7306_hdr_len(srx, opcode)
// expect: siw_qp_rx.c 1 if (siw_7306_completes(qp, opcode, error, &rv))
// expect: siw_qp_rx.c 1 orqe->opcode != SIW_OP_FETCH_AND_ADD
// expect: siw_qp_rx.c 0 static struct siw_wqe *siw_rqe_get(
// expect: siw_qp_rx.c 1 struct siw_wqe *siw_rqe_get(

@@
@@
 siw_get_hdr(...)
 {
 	<...
-	int hdrlen = iwarp_pktinfo[opcode].hdr_len;
+	int hdrlen = siw_7306_hdr_len(srx, opcode);
 	...>
 }

@@
expression E;
@@
 siw_get_hdr(...)
 {
 	<...
-	E < iwarp_pktinfo[opcode].hdr_len
+	E < siw_7306_hdr_len(srx, opcode)
 	...>
 }

@@
@@
 siw_rdmap_complete(...)
 {
 	...
 	int rv = 0;
+	if (siw_7306_completes(qp, opcode, error, &rv))
+		return rv;
 	...
 }

@@
@@
 siw_orqe_start_rx(...)
 {
 	<...
-	READ_ONCE(orqe->flags) & SIW_WQE_VALID
+	READ_ONCE(orqe->flags) & SIW_WQE_VALID && orqe->opcode != SIW_OP_FETCH_AND_ADD &&
+	orqe->opcode != SIW_OP_COMP_AND_SWAP
 	...>
 }

@@
@@
-static
 struct siw_wqe *siw_rqe_get(...) { ... }
