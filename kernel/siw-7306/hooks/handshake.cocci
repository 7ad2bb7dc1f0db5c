// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
//
// How user space finds the extension, and asks for it: the device's hardware version, which is 0 of siw without it, says that there is one;
// a QP has it if the command to make the QP asks for it, and the answer says so. To programs that do not ask the device has no atomics.
//
// expect: siw_verbs.c 1 attr->hw_ver = SIW_7306_CONTRACT;
// expect: siw_verbs.c 1 qp->x7306.access = SIW_7306_ACCESS_ALL;
// expect: siw_verbs.c 1 qp->x7306.contract = siw_7306_asked(udata);
// expect: siw_verbs.c 1 uresp.pad = qp->x7306.contract;

@@
@@
 siw_query_device(...)
 {
 	<...
+	attr->hw_ver = SIW_7306_CONTRACT;
 	attr->atomic_cap = 0;
 	...>
 }

@@
@@
 siw_create_qp(...)
 {
 	<...
+	qp->x7306.contract = siw_7306_asked(udata);
+	qp->x7306.access = SIW_7306_ACCESS_ALL;
 	qp->attrs.sq_size = num_sqe;
 	...>
 }

@@
@@
 siw_create_qp(...)
 {
 	<...
+	uresp.pad = qp->x7306.contract;
 	uresp.num_sqe = num_sqe;
 	...>
 }
