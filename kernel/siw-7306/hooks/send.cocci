// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
//
// The transmit path builds the new messages, and sends them as it sends its own that have no payload.
//
// expect: siw_qp_tx.c 1 if (siw_7306_build(c_tx, &crc))
// expect: siw_qp_tx.c 1 built_7306:

@ label @
@@
 siw_qp_prepare_tx(...)
 {
 	<...
+built_7306:
 	if (unlikely(data < 0))
 		return data;
 	...>
 }

@ depends on label @
@@
 siw_qp_prepare_tx(...)
 {
 	<...
 	int data = 0;
+	if (siw_7306_build(c_tx, &crc))
+		goto built_7306;
 	...>
 }
