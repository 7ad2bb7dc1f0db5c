// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package interop

import (
	"errors"
	"io"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// TestDisconnect: either side disconnects, and the other sees an orderly close as the reason.
func TestDisconnect(t *testing.T) {
	needKernel(t)
	everywhere(t, func(t *testing.T, p place) {
		p.links(t, func(t *testing.T, cfg linkConfig) {
			for _, first := range []string{"user space", "kernel"} {
				cfg.memory = 16384
				l := p.link(t, cfg)
				s, other := l.user, l.kernel
				if first == "kernel" {
					s, other = other, s
				}
				for _, end := range []*side{s, other} {
					end.recv(1, nil)
				}
				require.NoError(t, s.id.Disconnect())
				require.ErrorIs(t, other.ended(), io.EOF, first)
				require.ErrorIs(t, s.ended(), verbs.ErrClosed, first)
				for _, end := range []*side{s, other} {
					require.Equal(t, verbs.WCWRFlushErr, end.received().Status)
					require.Equal(t, verbs.QPStateErr, end.qp.State())
				}
			}
		})
	})
}

// TestDestroyed: either side closes its QP with requests in progress. The other side's connection
// ends, and nothing hangs.
func TestDestroyed(t *testing.T) {
	needKernel(t)
	for _, first := range []string{"user space", "kernel"} {
		l := here.link(t, linkConfig{})
		s, other := l.user, l.kernel
		if first == "kernel" {
			s, other = other, s
		}
		other.recv(1, nil)
		for range 8 {
			other.post(s.at(verbs.SendWR{Opcode: verbs.WRRDMARead, SGL: other.sgl(0, 1<<20)}, 0))
			s.post(other.at(verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGL: s.sgl(0, 1<<20)}, 0))
		}
		require.NoError(t, s.id.Close())
		require.NoError(t, s.qp.Close())
		other.ended()
		require.Equal(t, verbs.WCWRFlushErr, other.received().Status)
		for range 8 {
			other.sent()
		}
	}
}

// cut kills the TCP connection of a link with ss -K, in the namespace of the user-space RNIC or of
// the kernel's siw.
func (p place) cut(t *testing.T, l *link, kernels bool) {
	t.Helper()
	addr := l.user.id.LocalAddr().String()
	filter := []string{"ss", "-K", "-t", "-n", "src", addr}
	if kernels {
		filter[4] = "dst"
	} else if p.under != nil {
		filter = slices.Concat(p.under, filter)
	}
	out, err := exec.Command(filter[0], filter[1:]...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), addr, "no socket was closed")
}

// socketWork is the number of 1 MiB Reads in progress when a socket is killed: more than can
// complete before that.
const socketWork = 120

// TestSocketKilled kills the TCP connection of either side with ss -K while many requests are in
// progress. Both sides end with an error that contains the reason, all requests complete, and
// waiting calls return.
func TestSocketKilled(t *testing.T) {
	needKernel(t)
	everywhere(t, func(t *testing.T, p place) {
		for _, victim := range []string{"user space", "kernel"} {
			t.Run(victim, func(t *testing.T) {
				// With CRC, which is slow on an emulated processor, the Reads are not finished when
				// the socket is closed.
				l := p.link(t, linkConfig{nic: usiw.Config{CRC: usiw.On}})
				for _, d := range [][2]*side{{l.user, l.kernel}, {l.kernel, l.user}} {
					s, other := d[0], d[1]
					s.recv(1, nil)
					for range socketWork {
						s.post(other.at(verbs.SendWR{Opcode: verbs.WRRDMARead, SGL: s.sgl(0, 1<<20)}, 0))
					}
				}
				p.cut(t, l, victim == "kernel")
				began := time.Now()
				for _, s := range []*side{l.user, l.kernel} {
					err := s.ended()
					require.Error(t, err)
					require.NotErrorIs(t, err, verbs.ErrClosed)
					require.Equal(t, verbs.WCWRFlushErr, s.received().Status)
					failed := 0
					for range socketWork {
						if s.sent().Status != verbs.WCSuccess {
							failed++
						}
					}
					require.Positive(t, failed)
				}
				require.Less(t, time.Since(began), waitLimit)
				reason := l.user.id.Err()
				require.True(t, errors.Is(reason, syscall.ECONNABORTED) || errors.Is(reason, syscall.ECONNRESET) ||
					errors.Is(reason, io.ErrUnexpectedEOF), "%v", reason)
			})
		}
	})
}
