// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
//
// Anybody who reaches the port ends a listener: the end of a socket that is not accepted yet counts as the listener's.
//
// expect: siw_cm.c 1 if (siw_7306_not_accepted(cep, sk))

@@
@@
 siw_cm_llp_state_change(...)
 {
 	...
 	orig_state_change = cep->sk_state_change;
+	if (siw_7306_not_accepted(cep, sk)) {
+		read_unlock(&sk->sk_callback_lock);
+		orig_state_change(sk);
+		return;
+	}
 	...
 }
