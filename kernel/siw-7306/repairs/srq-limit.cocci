// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
//
// query_srq tells the limit of an SRQ after its event, too, which has set it back.
//
// expect: siw_verbs.c 1 attrs->srq_limit = srq->armed ? srq->limit : 0;

@@
@@
 siw_query_srq(...)
 {
 	<...
-	attrs->srq_limit = srq->limit;
+	attrs->srq_limit = srq->armed ? srq->limit : 0;
 	...>
 }
