// SPDX-License-Identifier: BSD-3-Clause

package usiw

import "time"

// settled implements acknowledger (tcpi_unacked, tcpi_notsent_bytes and tcpi_last_ack_recv of
// tcp(7)).
func (s *tcpStream) settled() (time.Duration, bool) {
	info, ok := s.info()
	if !ok || info.Unacked > 0 || info.Notsent_bytes > 0 {
		return 0, false
	}
	return time.Duration(info.Last_ack_recv) * time.Millisecond, true
}
