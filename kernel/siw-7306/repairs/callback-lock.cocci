// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
//
// The callbacks of a socket take sk_callback_lock for reading with softirqs enabled, where TCP calls them from a process, and one of them
// (siw_rtr_data_ready) takes it for writing in a softirq. Only TCP's own lock prevents that the second interrupts the first on the same
// socket; lockdep reports it.
//
// expect: siw_cm.c 0 read_lock(&sk->sk_callback_lock)
// expect: siw_cm.c 0 read_unlock(&sk->sk_callback_lock)
// expect: siw_cm.c 3 read_lock_bh(&sk->sk_callback_lock)
// expect: siw_cm.c 4 read_unlock_bh(&sk->sk_callback_lock)
// expect: siw_qp.c 0 read_lock(&sk->sk_callback_lock)
// expect: siw_qp.c 2 read_lock_bh(&sk->sk_callback_lock)
// expect: siw_qp.c 2 read_unlock_bh(&sk->sk_callback_lock)

@@
expression sk;
@@
-read_lock(&sk->sk_callback_lock)
+read_lock_bh(&sk->sk_callback_lock)

@@
expression sk;
@@
-read_unlock(&sk->sk_callback_lock)
+read_unlock_bh(&sk->sk_callback_lock)
