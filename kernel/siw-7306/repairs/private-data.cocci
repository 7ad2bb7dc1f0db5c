// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
//
// A Reply that announces more than 512 bytes of private data is an oops: there is no memory for them, but they are passed on. One that ends
// in the middle of them passes on memory that nobody has written, and a refusal with S and less than the enhanced word memory of others.
//
// expect: siw_cm.c 1 if (pd_len && siw_7306_has_data(cep))

@@
identifier pd_len;
@@
 siw_cm_upcall(...)
 {
 	<...
 	u16 pd_len = ...;
 	...
-	if (pd_len)
+	if (pd_len && siw_7306_has_data(cep))
 		{ ... }
 	...>
 }
