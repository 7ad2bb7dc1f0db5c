// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
//
// Room for four opcodes more in the table of messages, which siw_7306_init fills.
//
// expect: siw.h 1 iwarp_pktinfo[SIW_7306_OPCODES]
// expect: siw_qp.c 1 iwarp_pktinfo[SIW_7306_OPCODES]
// expect: siw_qp_rx.c 1 opcode >= SIW_7306_OPCODES
// expect: siw_main.c 1 siw_7306_init();

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
+	opcode >= SIW_7306_OPCODES
 	...>
 }

@@
@@
 siw_init_module(...)
 {
 	...
+	siw_7306_init();
 	if (SENDPAGE_THRESH < SIW_MAX_INLINE) { ... }
 	...
 }
