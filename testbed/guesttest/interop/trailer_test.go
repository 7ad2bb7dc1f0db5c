// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package interop

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/siw"
	"github.com/goverbs/goverbs/siw/rdmap"
	"github.com/goverbs/goverbs/verbs"
)

// TestKernelSplitTrailer: the CRC of an FPDU that siw gets in two pieces is wrong to it, whatever it is.
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

// TestKernelCutCRC: so with a CRC a connection to siw does not last where its host sees TCP's segments one by one, as those
// of a cable come without offloads. Without CRC it does.
func TestKernelCutCRC(t *testing.T) {
	needKernel(t)
	p := cable(t)
	command(t, "ip", "-n", userSpace, "link", "set", userCable, "gso_max_segs", "1", "gso_max_size", "1500")
	const lists, each = 1000, 16
	// writes posts lists of Writes of random lengths and returns the reason for which they end before all are done.
	writes := func(t *testing.T, crc siw.Policy) error {
		l := p.link(t, linkConfig{nic: siw.Config{CRC: crc}})
		rng := rand.New(rand.NewPCG(1, 2))
		for range lists {
			var wrs []verbs.SendWR
			for range each {
				wrs = append(wrs, l.kernel.at(verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGL: l.user.sgl(0, 1+rng.IntN(3000))}, rng.IntN(1<<16)))
			}
			l.user.post(wrs...)
			for range each {
				if l.user.sent().Status != verbs.WCSuccess {
					return l.user.ended()
				}
			}
		}
		l.user.reads(l.kernel, 8)
		return nil
	}
	require.Error(t, writes(t, siw.On))
	require.NoError(t, writes(t, siw.Off))
}
