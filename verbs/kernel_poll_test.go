// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs_test

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/verbs"
)

// pollChunk is how many completions the provider takes in one call of ibv_poll_cq.
const pollChunk = 64

// inject adds n completions of receives to the QP's CQ, of which that of number bad, if there is
// one, is an error.
func (r *rig) inject(n, bad int) {
	r.Helper()
	for i := range n {
		wc := fakeverbs.WC{WRID: uint64(i), Opcode: uint32(verbs.WCRecv)}
		if i == bad {
			wc.Status = uint32(verbs.WCLocProtErr)
		}
		require.True(r, fakeverbs.InjectWC(r.qp.Num(), true, wc))
	}
}

// TestPollFailsLater: what one call of ibv_poll_cq has taken is returned although the next one
// fails, and an error among it ends its QP. The failure is that of a Poll that finds nothing.
func TestPollFailsLater(t *testing.T) {
	const count = pollChunk + 36
	for _, bad := range []int{-1, 0, pollChunk - 1} {
		r := newRig(t, "fake0")
		r.up(r.qp)
		r.inject(count, bad)
		fakeverbs.Fail("ibv_poll_cq", 2, syscall.EIO)
		wcs := make([]verbs.WC, 2*count)
		n, err := r.cq.Poll(wcs)
		require.NoError(t, err)
		require.Equal(t, pollChunk, n)
		if bad < 0 {
			require.Equal(t, verbs.QPStateRTS, r.qp.State())
			require.NoError(t, r.qp.Err())
		} else {
			require.Equal(t, verbs.QPStateErr, r.qp.State())
			require.ErrorIs(t, r.qp.Err(), verbs.WCLocProtErr)
		}
		fakeverbs.Fail("ibv_poll_cq", 1, syscall.EIO)
		_, err = r.cq.Poll(wcs[n:])
		require.ErrorContains(t, err, "ibv_poll_cq")
		more, err := r.cq.Poll(wcs[n:])
		require.NoError(t, err)
		for i, wc := range wcs[:n+more] {
			require.EqualValues(t, i, wc.ID)
		}
		require.Equal(t, count, n+more)
	}
}

// TestPollErrorAnywhere: an error ends its QP wherever it stands in a list that is polled in
// pieces.
func TestPollErrorAnywhere(t *testing.T) {
	for _, bad := range []int{0, pollChunk - 1, pollChunk, 2*pollChunk - 1, 2 * pollChunk} {
		r := newRig(t, "fake0")
		r.up(r.qp)
		r.inject(2*pollChunk+1, bad)
		wcs := r.poll()
		require.Len(t, wcs, 2*pollChunk+1)
		for i := range wcs {
			require.EqualValues(t, i, wcs[i].ID)
			require.Equal(t, i == bad, wcs[i].Status == verbs.WCLocProtErr)
		}
		require.Equal(t, verbs.QPStateErr, r.qp.State())
	}
}

// TestFlagsOfSends: completions of sends have no flags and no key, whatever the device says: rxe
// says WITH_IMM.
func TestFlagsOfSends(t *testing.T) {
	for name, rig := range map[string]func(testing.TB) *rig{
		"any device": func(t testing.TB) *rig { return newRig(t, "fake0") },
		"rxe":        func(t testing.TB) *rig { return newRXERig(t) },
	} {
		t.Run(name, func(t *testing.T) {
			r := rig(t)
			r.up(r.qp)
			for _, key := range []uint32{0, 0x55} {
				for flag := uint32(1); flag < 1<<6; flag <<= 1 {
					r.post(r.qp, writes(r.mr, 1)...)
					id := fakeverbs.LastPosted()[0].WRID
					require.True(t, fakeverbs.InjectWC(r.qp.Num(), false,
						fakeverbs.WC{WRID: id, Opcode: uint32(verbs.WCRDMAWrite), Flags: flag, Imm: 7,
							InvalidatedRKey: key}))
					require.Equal(t, []verbs.WC{{Opcode: verbs.WCRDMAWrite, QPNum: r.qp.Num()}}, r.poll(), "flag %#x",
						flag)
				}
			}
		})
	}
}

// TestFlagsOfReceives: of a receive's flags those that have a name here are seen. Which of them
// says that a key was invalidated differs by driver.
func TestFlagsOfReceives(t *testing.T) {
	for _, c := range []struct {
		name    string
		rig     func(testing.TB) *rig
		withInv uint32
	}{
		{"any device", func(t testing.TB) *rig { return newRig(t, "fake0") }, 1 << 3},
		{"rxe", func(t testing.TB) *rig { return newRXERig(t) }, 1 << 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := c.rig(t)
			r.up(r.qp)
			for flag := uint32(1); flag < 1<<6; flag <<= 1 {
				_, err := r.qp.PostRecv([]verbs.RecvWR{{ID: 9}})
				require.NoError(t, err)
				wc := fakeverbs.WC{Opcode: uint32(verbs.WCRecv), Flags: flag}
				want := verbs.WC{ID: 9, Opcode: verbs.WCRecv, QPNum: r.qp.Num()}
				switch flag {
				case 1 << 0:
					if c.name != "rxe" { // which sets it always, though only datagrams have a header
						want.Flags = verbs.WCGRH
					}
				case 1 << 1:
					wc.Imm = 7
					want.Flags, want.Imm, want.Imm64 = verbs.WCWithImm, 7, 7<<32
				case c.withInv:
					wc.InvalidatedRKey = 0x55
					want.Flags, want.InvalidatedRKey = verbs.WCWithInv, 0x55
				}
				require.True(t, fakeverbs.Receive(r.qp.Num(), wc))
				require.Equal(t, []verbs.WC{want}, r.poll(), "flag %#x", flag)
			}
		})
	}
}
