// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
//
// If a connection ends before its program has been told of it (a peer-to-peer one before its first message), iw_cm meets an event that
// it does not expect there: BUG. Any peer can do that. A callback of the socket that runs while a connection ends uses a QP that is
// not there any more: oops.
//
// expect: siw_cm.c 1 enum siw_7306_said said = siw_7306_say(cep, reason);
// expect: siw_cm.c 1 siw_7306_assoc(sk);
// expect: siw_cm.c 3 if (!qp)
// expect: siw_cm.c 0 cep->qp = NULL;
// expect: siw_cm.c 0 No connection endpoint
// expect: siw_qp.c 1 siw_7306_resume(cep);

@@
@@
 siw_cm_upcall(...)
 {
 	...
 	struct iw_cm_id *id;
+	enum siw_7306_said said = siw_7306_say(cep, reason);
+
+	if (said == SIW_7306_UNSAID)
+		siw_cm_upcall(cep, IW_CM_EVENT_ESTABLISHED, 0);
+	else if (said == SIW_7306_SAID)
+		return 0;
 	...
 }

@@
@@
 siw_rtr_data_ready(...)
 {
 	<...
-	WARN(1, "No connection endpoint\n");
 	...>
 }

@@
@@
 siw_rtr_data_ready(...)
 {
 	<...
 	qp = sk_to_qp(sk);
+	if (!qp)
+		goto out;
 	...>
 }

@@
@@
 siw_rtr_data_ready(...)
 {
 	<...
-	siw_qp_socket_assoc(cep, qp)
+	siw_7306_assoc(sk)
 	...>
 }

@@
@@
-cep->qp = NULL;
+siw_7306_forget_qp(cep);

@@
@@
 siw_qp_llp_write_space(...)
 {
 	<...
-	(void)siw_sq_start(cep->qp);
+	siw_7306_resume(cep);
 	...>
 }
