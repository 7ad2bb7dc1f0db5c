// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package interop

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// TestKernelSplitTrailer: siw considers the CRC of an FPDU wrong if it arrives in two pieces.
func TestKernelSplitTrailer(t *testing.T) {
	needKernel(t)
	r, k := here.toKernel(t, depth(4, 4), nil)
	b := r.fpdu(tagged(rdmap.OpWrite, true, k.mem.RKey(), k.mem.Addr(), 1, 2, 3, 4))
	r.write(b[:len(b)-2])
	time.Sleep(quietTime)
	r.write(b[len(b)-2:])
	require.Equal(t, siwTerminate(0x02, 0x02, 0), r.read())
	require.Equal(t, []byte{1, 2, 3, 4}, k.mem.Bytes()[:4])
}

// TestKernelCutCRC: as a result, a connection to siw with CRC fails if siw's host receives TCP
// segments one by one, as from a cable without offloads. By default the user-space RNIC uses no CRC
// with siw, in either role.
func TestKernelCutCRC(t *testing.T) {
	needKernel(t)
	p := cable(t)
	there := func(args ...string) { command(t, "ip", append([]string{"netns", "exec", userSpace}, args...)...) }
	there("ip", "link", "set", userCable, "gso_max_segs", "1", "gso_max_size", "1500")
	there("tc", "qdisc", "add", "dev", userCable, "root", "netem", "delay", "500us", "loss", "0.1%")
	const total, each, longest = 64 << 20, 32, 6000
	// writes posts lists of Writes of random lengths and returns why they end before all are done.
	writes := func(t *testing.T, cfg linkConfig) error {
		l := p.link(t, cfg)
		rng := rand.New(rand.NewPCG(1, 2))
		for sent := 0; sent < total; {
			var wrs []verbs.SendWR
			for range each {
				n := 1 + rng.IntN(longest)
				sent += n
				wrs = append(wrs, l.kernel.at(verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGL: l.user.sgl(0, n)},
					rng.IntN(1<<16)))
			}
			l.user.post(wrs...)
			for range each {
				if l.user.sent().Status != verbs.WCSuccess {
					return l.user.ended()
				}
			}
		}
		l.user.reads(l.kernel, 8) // when it completes, all Writes have been placed
		l.user.writes(l.kernel, 1<<16)
		l.kernel.writes(l.user, 1<<16)
		return nil
	}
	for _, active := range []bool{false, true} {
		t.Run(fmt.Sprintf("kernel connects %v", active), func(t *testing.T) {
			require.NoError(t, writes(t, linkConfig{kernelActive: active}))
			require.Error(t, writes(t, linkConfig{kernelActive: active, nic: usiw.Config{CRC: usiw.On}}))
		})
	}
}
