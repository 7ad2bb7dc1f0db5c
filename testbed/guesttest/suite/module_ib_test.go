// SPDX-License-Identifier: BSD-3-Clause

package suite

import (
	"context"
	"encoding/binary"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/compat/ibcompat"
	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbstest"
)

// moduleIB returns the sheet of ib: devices over siw0 with the module.
func moduleIB(kernel string) sheet {
	return sheet{file: "../../matrix/ib-siw-7306-linux-" + kernel + ".md",
		columns: []string{"ib:siw0", "ib:usiw0+ib:siw0"}, title: "What ib:siw0 does with RFC 7306: Linux " + kernel,
		lead: "One row for every test of " + strings.Join(moduleIBSubjects, ", ") + ` of package verbstest, by the rules of InfiniBand, with ib:siw0 connected
to itself, and with ib:usiw0 connecting to it, in one process. In place of the kernel's own siw is the module of
[kernel/siw-7306](../../kernel/siw-7306/README.md), so atomics and Writes with immediate are native.`,
		reasons: "[semantics.md](../../docs/semantics.md#what-the-conformance-suite-finds-missing)",
		checked: "`make test-kernel-siw KERNEL=" + kernel + "`" + ` compares the file with what it finds, and fails if it differs in either direction. A run
with GOVERBS_IB_MATRIX=FILE writes what it found to FILE.`}
}

// moduleIBSubjects cover what is native with the module and emulated without it, and what is placed
// between other requests.
var moduleIBSubjects = []string{"Immediate", "Atomic", "Order", "List"}

// TestModuleIB runs a part of the suite on ib: devices over siw0 with the module, judged as
// InfiniBand, and compares the results with their matrix. GOVERBS_SUBJECTS selects other parts,
// "all" selects all; then nothing is compared.
func TestModuleIB(t *testing.T) {
	needModule(t)
	s := moduleIB(guestKernel())
	expected := make(matrix)
	if _, err := os.Stat(s.file); err == nil {
		expected = s.read(t)
	}
	columns := make(map[string]map[string]string)
	for _, column := range s.columns {
		t.Run(column, func(t *testing.T) {
			columns[column] = columnOf(t, func(t *testing.T) verbstest.Fabric { return ibFabric(t, column) },
				chosenSubjects(moduleIBSubjects)...)
			if os.Getenv("GOVERBS_SUBJECTS") != "" {
				return
			}
			for _, diff := range differences(expected, column, columns[column]) {
				t.Error(diff)
			}
		})
	}
	if file := os.Getenv("GOVERBS_IB_MATRIX"); file != "" {
		s.write(t, file, expected, columns)
	}
}

// TestModuleIBLacks: with the module, ib:siw0 lacks nothing except what it lacks without it, for
// the reasons in docs/semantics.md.
func TestModuleIBLacks(t *testing.T) {
	for _, kernel := range moduleKernels {
		s, without := moduleIB(kernel), wrapped(kernel).read(t).of(moduleIBSubjects)
		rows := s.read(t)
		for _, column := range s.columns {
			lacks := map[string]bool{pass: true, absent: true}
			for test, row := range without {
				for l := range strings.SplitSeq(row[column], ", ") {
					lacks[l] = true
				}
				if strings.Count(test, "/") < 2 {
					require.Contains(t, rows, test, s.file)
				}
			}
			for test, row := range rows {
				for l := range strings.SplitSeq(row[column], ", ") {
					require.True(t, lacks[l], "%s: %s: %s lacks %s", s.file, test, column, l)
				}
			}
		}
	}
}

// TestModuleNative: over the module, ib:siw0 reports that atomics and Writes with immediate are
// native, and performs them; to a peer without RFC 7306 they are emulated.
func TestModuleNative(t *testing.T) {
	needModule(t)
	for column, want := range map[string]ext.Support{"ib:siw0": ext.Native, "ib:usiw0+ib:siw0": ext.Native,
		"ib:usiw0-plain+ib:siw0": ext.Emulated} {
		t.Run(column, func(t *testing.T) {
			f := ibFabric(t, column)
			limit, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			ln, err := cm.Listen(limit, f.Listen, cm.Config{Device: f.Passive})
			require.NoError(t, err)
			defer func() { require.NoError(t, ln.Close()) }()
			cfg := cm.EndpointConfig{Memory: 4096,
				Access: verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic,
				Param:  cm.ConnParam{InitiatorDepth: 4, ResponderResources: 4}}
			accepted := make(chan *cm.Endpoint, 1)
			go func() {
				defer close(accepted)
				ep, err := ln.AcceptEndpoint(limit, cfg)
				if err != nil {
					t.Error(err)
					return
				}
				accepted <- ep
			}()
			a, err := cm.Dial(limit, ln.Addr().String(), cm.Config{Device: f.Active}, cfg)
			require.NoError(t, err)
			defer func() { require.NoError(t, a.Close()) }()
			b := <-accepted
			require.NotNil(t, b)
			defer func() { require.NoError(t, b.Close()) }()

			for _, way := range [][2]*cm.Endpoint{{a, b}, {b, a}} {
				from, to := way[0], way[1]
				word, sink := to.MR().Bytes()[:8], from.MR().Bytes()[64:72]
				binary.NativeEndian.PutUint64(word, 41)
				sge, err := from.MR().SGE(64, 8)
				require.NoError(t, err)
				do := func(wr verbs.SendWR, old, now uint64) {
					t.Helper()
					_, err := from.Do(limit, wr)
					require.NoError(t, err)
					require.Equal(t, []uint64{old, now}, []uint64{wordAt(sink), wordAt(word)})
				}
				at := to.MR().Remote()
				do(ext.FetchAddWR(at, 1, sge), 41, 42)
				do(ext.CmpSwapWR(at, 42, 0xff, sge), 42, 0xff)
				do(ext.MaskedFetchAddWR(at, 1, 1<<7, sge), 0xff, 0)
				do(ext.MaskedCmpSwapWR(at, 0, 1, 0x70, 0xf0, sge), 0, 0x70)
				_, err = from.Do(limit, verbs.WriteImm(
					verbs.Remote{Addr: at.Addr + 128, Length: 1 << 30, RKey: at.RKey}, 7306, sge))
				require.NoError(t, err)
				wc, err := to.Recv(limit, make([]byte, 64))
				require.NoError(t, err)
				require.Equal(t, verbs.WC{Opcode: verbs.WCRecvRDMAWithImm, Flags: verbs.WCWithImm, ByteLen: 8,
					Imm: 7306}, verbs.WC{Opcode: wc.Opcode, Flags: wc.Flags, ByteLen: wc.ByteLen, Imm: wc.Imm})

				for _, op := range []verbs.Op{verbs.OpWriteImm, verbs.OpFetchAdd, verbs.OpCmpSwap,
					verbs.OpMaskedFetchAdd, verbs.OpMaskedCmpSwap} {
					s, why := ibcompat.Support(from.QP(), op)
					require.Equal(t, want, s, "%v: %s", op, why)
				}
				s, why := ibcompat.Support(from.QP(), verbs.OpSend)
				require.Equal(t, ext.Emulated, s, why)
			}
		})
	}
}
