// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
//
// A peer reads every region of the protection domain, whether it gives the right or not, and a QP's rights are not looked at. A modify that
// fails changes none.
//
// expect: siw_qp_tx.c 1 siw_7306_right(qp, IB_ACCESS_REMOTE_READ)
// expect: siw_qp_rx.c 1 siw_7306_right(qp, IB_ACCESS_REMOTE_WRITE)
// expect: siw_verbs.c 1 siw_7306_set_access(qp, attr->qp_access_flags);

@@
@@
 siw_qp_sq_proc_tx(...)
 {
 	<...
-	siw_check_sgl_tx(qp->pd, wqe, 0)
+	siw_check_sgl_tx(qp->pd, wqe,
+			 tx_type(wqe) == SIW_OP_READ_RESPONSE ? siw_7306_right(qp, IB_ACCESS_REMOTE_READ) : 0)
 	...>
 }

@@
@@
 siw_proc_write(...)
 {
 	<...
-	IB_ACCESS_REMOTE_WRITE
+	siw_7306_right(qp, IB_ACCESS_REMOTE_WRITE)
 	...>
 }

@@
@@
 siw_verbs_modify_qp(...)
 {
 	<...
 	rv = siw_qp_modify(qp, &new_attrs, siw_attr_mask);
+	if (!rv && attr_mask & IB_QP_ACCESS_FLAGS)
+		siw_7306_set_access(qp, attr->qp_access_flags);
 	...>
 }
