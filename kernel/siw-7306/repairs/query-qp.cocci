// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
//
// query_qp does not tell the state (6.1), exchanges the two depths, and does not tell the rights.
//
// expect: siw_verbs.c 1 qp_attr->qp_state = siw_7306_ib_state(qp);
// expect: siw_verbs.c 1 qp_attr->max_rd_atomic = qp->attrs.orq_size;
// expect: siw_verbs.c 1 qp_attr->max_dest_rd_atomic = qp->attrs.irq_size;
// expect: siw_verbs.c 1 qp_attr->qp_access_flags = siw_7306_get_access(qp);

@@
expression E;
@@
 siw_query_qp(...)
 {
 	<...
(
+	qp_attr->qp_state = siw_7306_ib_state(qp);
+	qp_attr->cur_qp_state = qp_attr->qp_state;
 	qp_attr->cap.max_inline_data = SIW_MAX_INLINE;
|
-	qp_attr->max_rd_atomic = qp->attrs.irq_size;
+	qp_attr->max_rd_atomic = qp->attrs.orq_size;
|
-	qp_attr->max_dest_rd_atomic = qp->attrs.orq_size;
+	qp_attr->max_dest_rd_atomic = qp->attrs.irq_size;
|
-	qp_attr->qp_access_flags = E;
+	qp_attr->qp_access_flags = siw_7306_get_access(qp);
)
 	...>
 }
