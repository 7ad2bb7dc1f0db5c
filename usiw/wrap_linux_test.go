// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

// forward sets the message numbers of a new connection, from one end to the other, as if nearly
// 2^32 messages had been sent on each queue.
func forward(from, to *conn, few uint32) {
	to.rx.mu.Lock()
	to.rx.no = [4]uint32{-few, -few, 1, -few}
	to.rx.mu.Unlock()
	from.q.mu.Lock()
	from.tx.sendNo = [2]uint32{-few - 1, -few - 1}
	from.tx.respNo = -few - 1
	from.q.mu.Unlock()
}

// TestMessageNumbersWrap: Message Sequence Numbers count modulo 2^32 on every queue (RFC 5041
// section 5.1). 0 follows 2^32-1, and Sends, immediates, Reads, atomics and their responses
// continue.
func TestMessageNumbersWrap(t *testing.T) {
	for _, few := range []uint32{0, 1, 3} {
		a, b := twoSides(t, Config{})
		// The opening zero-length Write has no number, so both ends are at 1.
		require.Zero(t, a.conn.tx.sendNo)
		forward(a.conn, b.conn, few)
		forward(b.conn, a.conn, few)
		for i := range uint64(8) {
			for _, to := range []struct{ s, peer *side }{{a, b}, {b, a}} {
				s, peer := to.s, to.peer
				s.post(verbs.WRSend, 0, peer)
				require.Equal(t, verbs.WCSuccess, s.next(s.scq).Status)
				require.Equal(t, verbs.WCSuccess, peer.next(peer.rcq).Status)
				_, err := s.qp.PostSend([]verbs.SendWR{{Opcode: verbs.WRImmData, Flags: verbs.SendSignaled, Imm64: i}})
				require.NoError(t, err)
				require.Equal(t, verbs.WCSuccess, s.next(s.scq).Status)
				wc := peer.next(peer.rcq)
				require.Equal(t, verbs.WCSuccess, wc.Status)
				require.Equal(t, i, wc.Imm64)

				binary.NativeEndian.PutUint64(peer.mr.Bytes()[64:], 100*i)
				sge, err := s.mr.SGE(0, 8)
				require.NoError(t, err)
				for _, wr := range []verbs.SendWR{
					{Opcode: verbs.WRRDMARead},
					{Opcode: verbs.WRAtomicFetchAndAdd, Add: 1},
				} {
					clear(s.mr.Bytes()[:8])
					wr.Flags, wr.SGL, wr.RKey, wr.RemoteAddr = verbs.SendSignaled, []verbs.SGE{sge}, peer.mr.RKey(),
						peer.mr.Addr()+64
					_, err := s.qp.PostSend([]verbs.SendWR{wr})
					require.NoError(t, err)
					require.Equal(t, verbs.WCSuccess, s.next(s.scq).Status)
					require.Equal(t, 100*i, binary.NativeEndian.Uint64(s.mr.Bytes()))
				}
				require.Equal(t, 100*i+1, binary.NativeEndian.Uint64(peer.mr.Bytes()[64:]))
			}
		}
		for _, c := range []*conn{a.conn, b.conn} {
			c.q.mu.Lock()
			require.Less(t, c.tx.sendNo[0], uint32(1<<16), "the numbers have wrapped")
			require.Less(t, c.tx.sendNo[1], uint32(1<<16))
			require.Less(t, c.tx.respNo, uint32(1<<16))
			c.q.mu.Unlock()
		}
	}
}
