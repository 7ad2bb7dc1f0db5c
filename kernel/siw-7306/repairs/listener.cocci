// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
//
// Anybody who reaches the port ends a listener: the end of a socket that is not accepted yet counts as the listener's.
//
// expect: siw_cm.c 1 switch (siw_7306_state(cep, sk))

@@
@@
 siw_cm_llp_state_change(...)
 {
 	<...
-	sk->sk_state
+	siw_7306_state(cep, sk)
 	...>
 }
