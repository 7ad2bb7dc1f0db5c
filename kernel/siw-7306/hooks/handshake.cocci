// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
//
// How user space finds the extension: a capability of the device, and the contract's number in the answer to CREATE_QP.
//
// expect: siw_verbs.c 1 uresp.pad = SIW_7306_CONTRACT;
// expect: siw_verbs.c 1 qp->x7306.access = SIW_7306_ACCESS_ALL;
// expect: siw_verbs.c 1 attr->atomic_cap = IB_ATOMIC_HCA;
// expect: siw_verbs.c 1 attr->masked_atomic_cap = IB_ATOMIC_HCA;

@@
@@
 siw_query_device(...)
 {
 	<...
-	attr->atomic_cap = 0;
+	attr->atomic_cap = IB_ATOMIC_HCA;
+	attr->masked_atomic_cap = IB_ATOMIC_HCA;
 	...>
 }

@@
@@
 siw_create_qp(...)
 {
 	<...
+	qp->x7306.access = SIW_7306_ACCESS_ALL;
 	qp->attrs.sq_size = num_sqe;
 	...>
 }

@@
@@
 siw_create_qp(...)
 {
 	<...
+	uresp.pad = SIW_7306_CONTRACT;
 	uresp.num_sqe = num_sqe;
 	...>
 }
