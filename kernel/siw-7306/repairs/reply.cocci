// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
//
// A Reply with S but without the enhanced word is an oops; with a part of it, memory of others is taken for private data.
//
// expect: siw_cm.c 1 siw_7306_no_word(cep)

@@
expression E;
@@
 siw_proc_mpareply(...)
 {
 	<...
-	E || !(rep->params.bits & MPA_RR_FLAG_ENHANCED)
+	E || !(rep->params.bits & MPA_RR_FLAG_ENHANCED) || siw_7306_no_word(cep)
 	...>
 }
