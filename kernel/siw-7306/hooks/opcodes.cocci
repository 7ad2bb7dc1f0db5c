// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
//
// Room for four opcodes more in the table of messages, which siw_7306_init fills. They are for the QPs that have asked for them.
//
// expect: siw.h 1 iwarp_pktinfo[SIW_7306_OPCODES]
// expect: siw_qp.c 1 iwarp_pktinfo[SIW_7306_OPCODES]
// expect: siw_qp_rx.c 1 opcode >= siw_7306_opcodes(qp)
// expect: siw_main.c 1 rv = siw_7306_init();
// expect: siw_main.c 2 siw_7306_exit();

@@
@@
-RDMAP_TERMINATE + 1
+SIW_7306_OPCODES

@@
identifier opcode;
@@
 siw_get_hdr(...)
 {
 	<...
-	opcode > RDMAP_TERMINATE
+	opcode >= siw_7306_opcodes(qp)
 	...>
 }

@@
@@
 siw_init_module(...)
 {
 	...
+	rv = siw_7306_init();
+	if (rv)
+		return rv;
 	if (SENDPAGE_THRESH < SIW_MAX_INLINE) { ... }
 	...
 }

@@
@@
 siw_cm_exit();
+siw_7306_exit();
