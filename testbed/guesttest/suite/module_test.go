// SPDX-License-Identifier: BSD-3-Clause

package suite

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbstest"
)

// moduleColumn is siw0 with the module of kernel/siw-7306 in place of the kernel's own siw.
const moduleColumn = "siw0+7306"

// moduleKernels are the kernels with a matrix for it.
var moduleKernels = []string{"6.1", "6.12", "newest"}

// module returns its sheet.
func module(kernel string) sheet {
	return sheet{file: "../../matrix/siw-7306-linux-" + kernel + ".md", columns: []string{moduleColumn},
		title: "What siw0 does with RFC 7306: Linux " + kernel,
		lead: `One row for every test of package verbstest on siw0, connected to itself, with the module of [kernel/siw-7306](../../kernel/siw-7306/README.md)
in place of the kernel's own siw.`,
		reasons: "[sources.md](sources.md)",
		checked: "`make test-kernel-siw KERNEL=" + kernel + "`" + ` compares the file with what it finds, and fails if it differs in either direction. A run with
GOVERBS_MATRIX=FILE writes what it found to FILE.`}
}

// needModule skips a test that requires siw0 to use the module.
func needModule(t *testing.T) {
	t.Helper()
	if os.Getenv("GOVERBS_TEST_SIW7306") == "" {
		t.Skip("for siw with RFC 7306: make test-kernel-siw")
	}
	rdmatest.KernelDevice(t, "siw0")
}

// TestModuleMatrix runs the whole suite on siw0 with the module, and compares the results with
// their matrix. GOVERBS_SUBJECTS selects parts of the suite; then nothing is compared.
func TestModuleMatrix(t *testing.T) {
	needModule(t)
	dev := kernel(t, "siw0")
	ctx, err := dev.Open()
	require.NoError(t, err)
	for _, op := range []verbs.Op{verbs.OpFetchAdd, verbs.OpCmpSwap, verbs.OpMaskedFetchAdd, verbs.OpMaskedCmpSwap,
		verbs.OpImm64, verbs.OpWriteImm} {
		require.Equal(t, ext.Native, ext.SupportOf(ctx, op), "%v", op)
	}
	require.NoError(t, ctx.Close())
	subjects := verbstest.Subjects()
	chosen := os.Getenv("GOVERBS_SUBJECTS")
	if chosen != "" {
		subjects = strings.Split(chosen, ",")
	}
	s := module(guestKernel())
	expected := make(matrix)
	if _, err := os.Stat(s.file); err == nil {
		expected = s.read(t)
	}
	column := columnOf(t, fabrics["siw0"], subjects...)
	if file := os.Getenv("GOVERBS_MATRIX"); file != "" {
		s.write(t, file, expected, map[string]map[string]string{moduleColumn: column})
	}
	if chosen != "" {
		return
	}
	for _, diff := range differences(expected, moduleColumn, column) {
		t.Error(diff)
	}
}

// TestModuleLacks: with the module, siw0 lacks nothing except what it lacks without it, for the
// reasons in sources.md, and it supports the operations of RFC 7306. They are atomic with respect
// to the device, like rxe's (IB_ATOMIC_HCA).
func TestModuleLacks(t *testing.T) {
	for _, kernel := range moduleKernels {
		lacks := map[string]bool{"cpu-atomics: none": true}
		rows := module(kernel).read(t)
		for test, row := range readMatrix(t, kernel) {
			for l := range strings.SplitSeq(row["siw0"], ", ") {
				lacks[l] = true
			}
			if strings.Count(test, "/") < 2 {
				require.Contains(t, rows, test, "Linux %s", kernel)
			}
		}
		for test, row := range rows {
			for l := range strings.SplitSeq(row[moduleColumn], ", ") {
				require.True(t, lacks[l], "%s: %s lacks %s", test, moduleColumn, l)
				what, _, _ := strings.Cut(l, ":")
				require.NotContains(t, []string{"fetch-add", "cmp-swap", "masked-fetch-add", "masked-cmp-swap",
					"write-imm", "imm64"}, what, test)
			}
		}
	}
}
