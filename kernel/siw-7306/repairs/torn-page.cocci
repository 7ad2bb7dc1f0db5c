// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
//
// A short message from one element that crosses a page is copied wrongly.
//
// expect: siw_qp_tx.c 1 unsigned long part = PAGE_SIZE - off;

@@
@@
 siw_try_1seg(...)
 {
 	<...
-	unsigned long part = bytes - (PAGE_SIZE - off);
+	unsigned long part = PAGE_SIZE - off;
 	...>
 }
