// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package interop

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// sizes are message lengths: empty, less than a word, more than a segment, odd, large.
var sizes = []int{0, 1, 3, 4, 1424, 1425, 4095, 65536, 1 << 20}

// offset is the offset in its region at which a transfer begins. It is not aligned.
const offset = 4097

// links runs f for every way to create a link in one place.
func (p place) links(t *testing.T, f func(t *testing.T, cfg linkConfig)) {
	for _, active := range []string{"user space", "kernel"} {
		for _, crc := range []usiw.Policy{usiw.On, usiw.Off} {
			t.Run(fmt.Sprintf("%s connects/CRC %v", active, crc), func(t *testing.T) {
				f(t, linkConfig{kernelActive: active == "kernel", nic: usiw.Config{CRC: crc}})
			})
		}
	}
}

// sends transfers n bytes to the other side with a Send.
func (s *side) sends(to *side, n int) {
	s.t.Helper()
	data := s.mem.Bytes()[offset-64:][:n]
	fill(data, uint64(n))
	to.blank(offset, n)
	to.recv(7, to.sgl(offset, max(n, 16)))
	s.ok(s.run(verbs.SendWR{Opcode: verbs.WRSend, SGL: s.sgl(offset-64, n)}), verbs.WCSend)
	wc := to.ok(to.received(), verbs.WCRecv)
	require.EqualValues(s.t, n, wc.ByteLen)
	require.EqualValues(s.t, 7, wc.ID)
	to.holds(offset, data)
}

// writes transfers n bytes with an RDMA Write. A Send after it shows that they have arrived.
func (s *side) writes(to *side, n int) {
	s.t.Helper()
	data := s.mem.Bytes()[offset-64:][:n]
	fill(data, uint64(n)+1)
	to.blank(offset, n)
	to.recv(8, to.sgl(0, 16))
	s.post(to.at(verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGL: s.sgl(offset-64, n)}, offset),
		verbs.SendWR{Opcode: verbs.WRSend, SGL: s.sgl(0, 4)})
	s.ok(s.sent(), verbs.WCRDMAWrite)
	s.ok(s.sent(), verbs.WCSend)
	to.ok(to.received(), verbs.WCRecv)
	to.holds(offset, data)
}

// reads transfers n bytes from the other side with an RDMA Read.
func (s *side) reads(from *side, n int) {
	s.t.Helper()
	data := from.mem.Bytes()[offset-64:][:n]
	fill(data, uint64(n)+2)
	s.blank(offset, n)
	wc := s.ok(s.run(from.at(verbs.SendWR{Opcode: verbs.WRRDMARead, SGL: s.sgl(offset, n)}, offset-64)),
		verbs.WCRDMARead)
	require.EqualValues(s.t, n, wc.ByteLen)
	s.holds(offset, data)
}

// TestTraffic transfers messages of every size in both directions, with every operation that both
// sides support.
func TestTraffic(t *testing.T) {
	needKernel(t)
	everywhere(t, func(t *testing.T, p place) {
		p.links(t, func(t *testing.T, cfg linkConfig) {
			l := p.link(t, cfg)
			for _, n := range sizes {
				l.user.sends(l.kernel, n)
				l.kernel.sends(l.user, n)
				l.user.writes(l.kernel, n)
				l.kernel.writes(l.user, n)
				l.user.reads(l.kernel, n)
				l.kernel.reads(l.user, n)
			}
		})
	})
}

// TestTrafficBothWays: both sides work concurrently. Each repeatedly posts a list of Writes, Reads
// and Sends of several sizes, so that many are in progress.
func TestTrafficBothWays(t *testing.T) {
	needKernel(t)
	const rounds, each, size = 8, 12, 9001
	everywhere(t, func(t *testing.T, p place) {
		p.links(t, func(t *testing.T, cfg linkConfig) {
			cfg.user = cm.ConnParam{InitiatorDepth: 8, ResponderResources: 8}
			cfg.kernel = cfg.user
			l := p.link(t, cfg)
			// Each region: what is sent, what the other writes, what is read, what is received.
			const from, written, read, received = 0, each * size, 2 * each * size, 3 * each * size
			for round := range rounds {
				for i, s := range []*side{l.user, l.kernel} {
					fill(s.mem.Bytes()[from:each*size], uint64(100*round+i))
					for k := range each {
						s.recv(uint64(k), s.sgl(received+k*size, size))
					}
				}
				for _, d := range [][2]*side{{l.user, l.kernel}, {l.kernel, l.user}} {
					s, to := d[0], d[1]
					var wrs []verbs.SendWR
					for k := range each {
						n := size - 7*k
						wrs = append(wrs,
							to.at(verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGL: s.sgl(k*size, n)}, written+k*size),
							to.at(verbs.SendWR{Opcode: verbs.WRRDMARead, SGL: s.sgl(read+k*size, n)}, k*size),
							verbs.SendWR{Opcode: verbs.WRSend, SGL: s.sgl(k*size, n)})
					}
					s.post(wrs...)
				}
				for _, d := range [][2]*side{{l.user, l.kernel}, {l.kernel, l.user}} {
					s, other := d[0], d[1]
					for range 3 * each {
						wc := s.sent()
						require.Equal(t, verbs.WCSuccess, wc.Status, "%v: %v", wc.Status, s.qp.Err())
					}
					for k := range each {
						wc := s.ok(s.received(), verbs.WCRecv)
						require.EqualValues(t, k, wc.ID)
						require.EqualValues(t, size-7*k, wc.ByteLen)
					}
					for k := range each {
						n := size - 7*k
						want := other.mem.Bytes()[k*size:][:n]
						for _, at := range []int{written, read, received} {
							require.Equal(t, want, s.mem.Bytes()[at+k*size:][:n], "%d: message %d at %d", round, k, at)
						}
					}
				}
			}
		})
	})
}

// TestInvalidate: each side invalidates a key of the other with a Send. An access with the key then
// ends the connection. siw allows its peers to invalidate whole regions, the user-space RNIC only
// windows.
func TestInvalidate(t *testing.T) {
	needKernel(t)
	t.Run("region of the kernel", func(t *testing.T) {
		l := here.link(t, linkConfig{memory: 4096})
		mr := l.kernel.region(l.kernel.pd, 4096, rights)
		l.invalidates(l.user, l.kernel, verbs.SendWR{RemoteAddr: mr.Addr(), RKey: mr.RKey()})
		require.ErrorIs(t, l.user.ended(), codes{1, 1, 0}.of(true))
	})
	t.Run("window of the user-space RNIC", func(t *testing.T) {
		l := here.link(t, linkConfig{memory: 4096})
		u := l.user
		mr := u.region(u.pd, 4096, rights|verbs.AccessMWBind)
		mw, err := u.pd.AllocMW(verbs.MWType2)
		require.NoError(t, err)
		defer func() { require.NoError(t, mw.Close()) }()
		u.ok(u.run(verbs.SendWR{Opcode: verbs.WRBindMW, RKey: mw.NextRKey(),
			Bind: &verbs.MWBind{MW: mw, MR: mr, Addr: mr.Addr(), Length: 4096, Access: verbs.AccessRemoteWrite}}),
			verbs.WCBindMW)
		l.invalidates(l.kernel, u, verbs.SendWR{RemoteAddr: mr.Addr(), RKey: mw.RKey()})
		require.ErrorIs(t, u.ended(), codes{1, 1, 0}.of(false))
	})
}

// invalidates: s writes with a key of the other side, invalidates it, and writes again, which must
// end the connection.
func (l *link) invalidates(s, to *side, wr verbs.SendWR) {
	l.t.Helper()
	wr.Opcode, wr.SGL = verbs.WRRDMAWrite, s.sgl(0, 8)
	s.ok(s.run(wr), verbs.WCRDMAWrite)
	to.recv(1, nil)
	s.ok(s.run(verbs.SendWR{Opcode: verbs.WRSendWithInv, InvalidateRKey: wr.RKey}), verbs.WCSend)
	wc := to.ok(to.received(), verbs.WCRecv)
	if to == l.user { // siw does not report which key it was
		require.Equal(l.t, verbs.WCWithInv, wc.Flags)
		require.Equal(l.t, wr.RKey, wc.InvalidatedRKey)
	}
	s.post(wr)
	require.Error(l.t, to.ended())
	require.Error(l.t, s.ended())
}
