// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
//
// Memory may give the right of remote atomics.
//
// expect: siw_mem.c 1 IWARP_ACCESS_MASK | IB_ACCESS_REMOTE_ATOMIC
// expect: siw_verbs.c 1 IWARP_ACCESS_MASK | IB_ACCESS_REMOTE_ATOMIC

@@
expression E;
@@
-E & IWARP_ACCESS_MASK
+E & (IWARP_ACCESS_MASK | IB_ACCESS_REMOTE_ATOMIC)
