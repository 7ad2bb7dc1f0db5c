// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
//
// A CRC that arrives in two pieces is taken for a wrong one.
//
// expect: siw_qp_rx.c 1 tbuf + siw_7306_trailer_seen(srx)

@@
expression skb, avail;
@@
 siw_get_trailer(...)
 {
 	<...
-	skb_copy_bits(skb, srx->skb_offset, tbuf, avail)
+	skb_copy_bits(skb, srx->skb_offset, tbuf + siw_7306_trailer_seen(srx), avail)
 	...>
 }
