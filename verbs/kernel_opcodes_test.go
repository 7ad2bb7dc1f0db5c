// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs_test

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/verbs"
)

// headerOpcodes reads enum ibv_wr_opcode out of the header that the package is built with.
func headerOpcodes(t *testing.T) map[string]int {
	t.Helper()
	cc := strings.Fields(os.Getenv("CC"))
	if len(cc) == 0 {
		out, err := exec.Command("go", "env", "CC").Output()
		require.NoError(t, err)
		cc = strings.Fields(string(out))
	}
	cmd := exec.Command(cc[0], append(cc[1:], "-E", "-P", "-x", "c", "-")...)
	cmd.Stdin = strings.NewReader("#include <infiniband/verbs.h>\n")
	out, err := cmd.Output()
	require.NoError(t, err)
	enum := regexp.MustCompile(`enum ibv_wr_opcode \{([^}]*)\}`).FindSubmatch(out)
	require.NotNil(t, enum)
	values, next := make(map[string]int), 0
	for entry := range strings.SplitSeq(string(enum[1]), ",") {
		name, value, given := strings.Cut(strings.TrimSpace(entry), "=")
		if name == "" {
			continue
		}
		if given {
			next, err = strconv.Atoi(strings.TrimSpace(value))
			require.NoError(t, err, entry)
		}
		values[strings.TrimSpace(name)] = next
		next++
	}
	require.Equal(t, 0, values["IBV_WR_RDMA_WRITE"])
	require.Equal(t, 9, values["IBV_WR_SEND_WITH_INV"])
	require.Equal(t, 10, values["IBV_WR_TSO"])
	return values
}

// TestOpcodesOfTheHeader: what enum ibv_wr_opcode has is posted as it is, or refused before C: as
// not supported where the device lacks it, as invalid where this package does not offer it to any.
// Nothing else is posted.
func TestOpcodesOfTheHeader(t *testing.T) {
	header := headerOpcodes(t)
	for _, c := range []struct {
		name, dev string
		lacks     []verbs.WROpcode
	}{
		{"any device", "fake0", nil},
		{"rxe", "", nil},
		{"siw", "fake1", []verbs.WROpcode{verbs.WRRDMAWriteWithImm, verbs.WRSendWithImm, verbs.WRAtomicCmpAndSwp,
			verbs.WRAtomicFetchAndAdd, verbs.WRLocalInv, verbs.WRBindMW, verbs.WRAtomicWrite}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var r *rig
			switch c.dev {
			case "":
				r = atomicWriteRigs["rxe"](t)
			case "fake0":
				r = atomicWriteRigs["any device"](t)
			default:
				r = newRig(t, c.dev)
				r.up(r.qp)
			}
			sgl := []verbs.SGE{r.sge(0, 8)}
			offered := map[string]verbs.SendWR{
				"IBV_WR_RDMA_WRITE":           {SGL: sgl},
				"IBV_WR_RDMA_WRITE_WITH_IMM":  {SGL: sgl},
				"IBV_WR_SEND":                 {SGL: sgl},
				"IBV_WR_SEND_WITH_IMM":        {SGL: sgl},
				"IBV_WR_RDMA_READ":            {SGL: sgl},
				"IBV_WR_ATOMIC_CMP_AND_SWP":   {SGL: sgl},
				"IBV_WR_ATOMIC_FETCH_AND_ADD": {SGL: sgl},
				"IBV_WR_LOCAL_INV":            {},
				"IBV_WR_BIND_MW":              {},
				"IBV_WR_SEND_WITH_INV":        {SGL: sgl},
				"IBV_WR_ATOMIC_WRITE":         {},
			}
			if c.lacks == nil {
				mw, err := r.pd.AllocMW(verbs.MWType2)
				require.NoError(t, err)
				bind := offered["IBV_WR_BIND_MW"]
				bind.RKey, bind.Bind = mw.NextRKey(),
					&verbs.MWBind{MW: mw, MR: r.mr, Addr: r.mr.Addr(), Length: 8, Access: verbs.AccessRemoteRead}
				offered["IBV_WR_BIND_MW"] = bind
			}
			known := make(map[int]bool)
			for name, value := range header {
				wr, ok := offered[name]
				known[value] = ok
				wr.Opcode = verbs.WROpcode(value)
				call := "ibv_post_send"
				if wr.Opcode == verbs.WRAtomicWrite {
					call = "ibv_wr_complete"
				}
				before := fakeverbs.Calls(call)
				n, err := r.qp.PostSend([]verbs.SendWR{wr})
				switch {
				case !ok:
					require.ErrorIs(t, err, verbs.ErrInvalid, name)
					require.ErrorContains(t, err, "opcode "+strconv.Itoa(value), name)
				case slices.Contains(c.lacks, wr.Opcode):
					require.ErrorIs(t, err, verbs.ErrNotSupported, name)
				default:
					require.NoError(t, err, name)
					require.Equal(t, 1, n)
					require.Equal(t, before+1, fakeverbs.Calls(call), name)
					require.EqualValues(t, value, fakeverbs.LastPosted()[0].Opcode, name)
					continue
				}
				require.Zero(t, n, name)
				require.Equal(t, before, fakeverbs.Calls(call), name)
			}
			for name := range offered {
				require.Contains(t, header, name)
			}
			before := fakeverbs.Calls("ibv_post_send")
			for value := range 256 {
				if known[value] {
					continue
				}
				_, err := r.qp.PostSend([]verbs.SendWR{{Opcode: verbs.WROpcode(value), SGL: sgl}})
				switch verbs.WROpcode(value) {
				case verbs.WRMaskedAtomicCmpAndSwp, verbs.WRMaskedAtomicFetchAndAdd, verbs.WRImmData:
					require.ErrorIs(t, err, verbs.ErrNotSupported, value)
				default:
					require.ErrorIs(t, err, verbs.ErrInvalid, value)
				}
			}
			require.Equal(t, before, fakeverbs.Calls("ibv_post_send"))
		})
	}
}
