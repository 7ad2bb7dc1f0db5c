// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
//
// The headers of RFC 7306, and what a QP, a connection and a region have more.
//
// expect: iwarp.h 1 #include "siw_7306.h"
// expect: iwarp.h 1 union iwarp_7306 x7306;
// expect: siw.h 1 struct siw_7306 x7306;
// expect: siw.h 1 struct work_struct freeing;
// expect: siw_cm.h 1 bool told;

@@
@@
 #include <asm/byteorder.h>
+#include "siw_7306.h"

@@
@@
 union iwarp_hdr {
 	...
+	union iwarp_7306 x7306;
 };

@@
@@
 struct siw_qp {
 	...
+	struct siw_7306 x7306;
 };

@@
@@
 struct siw_cep {
 	...
+	bool told;
 };

@@
@@
 struct siw_mem {
 	...
+	struct work_struct freeing;
 };
