// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
//
// An FPDU shorter than its header makes siw wait for bytes that do not belong to it. The T bit is not compared with the opcode.
//
// expect: siw_qp_rx.c 1 int rv = siw_7306_header(srx, opcode);

@@
@@
 siw_get_hdr(...)
 {
 	...
 	set_rx_fpdu_context(qp, opcode);
 	frx = qp->rx_fpdu;
+	{
+		int rv = siw_7306_header(srx, opcode);
+
+		if (rv)
+			return rv;
+	}
 	...
 }
