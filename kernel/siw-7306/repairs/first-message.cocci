// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
//
// Messages that arrive between the Reply and the start of the receive path are overlooked until others come.
//
// expect: siw_cm.c 2 siw_7306_look(cep);

@@
@@
 siw_accept(...)
 {
 	<...
(
 	siw_sk_assign_rtr_upcalls(cep);
+	siw_7306_look(cep);
|
 	siw_qp_socket_assoc(cep, qp);
 	rv = siw_cm_upcall(...);
+	siw_7306_look(cep);
)
 	...>
 }
