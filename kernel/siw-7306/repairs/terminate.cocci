// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
//
// Terminate messages in the layout of RFC 5040; both are understood (siw_7306_init). Length and MSN of what they quote are those of the message at fault.
//
// expect: siw_cm.c 5 siw_7306_send_terminate(

@@
expression E;
@@
-siw_send_terminate(E)
+siw_7306_send_terminate(E)
