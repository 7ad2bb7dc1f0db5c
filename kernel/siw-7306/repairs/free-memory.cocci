// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
//
// A region that a program gives back while a message of its peer uses it is freed when that message ends, where TCP delivers it: there the
// kernel must not sleep, and to unpin pages may. It is freed by a queue of its own then.
//
// expect: siw_mem.h 1 kref_put(&mem->ref, siw_7306_free_mem);
// expect: siw_main.c 1 siw_7306_mem_wait();

@@
@@
 siw_mem_put(...)
 {
 	<...
-	siw_free_mem
+	siw_7306_free_mem
 	...>
 }

@@
@@
 siw_device_cleanup(...)
 {
 	struct siw_device *sdev = ...;
+	siw_7306_mem_wait();
 	...
 }
