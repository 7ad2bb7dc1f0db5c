// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
//
// addr + len may wrap, and lengths of 2 GiB and more are negative: both pass the check of a region's bounds.
//
// expect: siw_mem.c 1 siw_7306_outside(mem, addr, len)

@@
@@
 siw_check_mem(...)
 {
 	<...
-	addr < mem->va || addr + len > mem->va + mem->len
+	siw_7306_outside(mem, addr, len)
 	...>
 }
