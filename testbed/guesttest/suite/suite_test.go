// SPDX-License-Identifier: BSD-3-Clause

package suite

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbstest"
)

func TestMain(m *testing.M) { rdmatest.Main(m) }

// fabrics are the devices of the matrix, each connected to itself, together with unrelated ones.
var fabrics = map[string]func(t *testing.T) verbstest.Fabric{
	"usiw0": func(t *testing.T) verbstest.Fabric {
		return fabric(userSpace(t, "usiw0"), "127.0.0.1:0", "127.0.0.2", userSpace(t, "usiw1"))
	},
	"rxe0": func(t *testing.T) verbstest.Fabric {
		return fabric(kernel(t, "rxe0"), "10.78.0.1:0", "fd00:78::1", kernel(t, "siw0"), userSpace(t, "usiw1"))
	},
	"siw0": func(t *testing.T) verbstest.Fabric {
		return fabric(kernel(t, "siw0"), "10.77.0.1:0", "fd00:77::1", kernel(t, "rxe0"), userSpace(t, "usiw1"))
	},
}

func fabric(dev *verbs.Device, listen, second string, others ...*verbs.Device) verbstest.Fabric {
	return verbstest.Fabric{Active: dev, Passive: dev, Listen: listen, Second: second, Others: others}
}

func userSpace(t *testing.T, name string) *verbs.Device {
	t.Helper()
	nic, err := usiw.New(usiw.Config{Name: name})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, nic.Close()) })
	return nic.Device()
}

func kernel(t *testing.T, name string) *verbs.Device {
	t.Helper()
	dev, err := verbs.DeviceByName(name)
	require.NoError(t, err)
	return dev
}

// TestMatrix runs the whole suite on every device and compares the results with the matrix.
// GOVERBS_SUBJECTS selects parts of the suite, separated by commas; then nothing is compared.
func TestMatrix(t *testing.T) {
	subjects := verbstest.Subjects()
	chosen := os.Getenv("GOVERBS_SUBJECTS")
	if chosen != "" {
		subjects = strings.Split(chosen, ",")
	}
	expected := readMatrix(t, guestKernel())
	columns := make(map[string]map[string]string)
	for _, device := range devices {
		t.Run(device, func(t *testing.T) {
			if device != "usiw0" {
				rdmatest.KernelDevice(t, device)
			}
			columns[device] = columnOf(t, fabrics[device], subjects...)
			if chosen != "" {
				return
			}
			for _, diff := range differences(expected, device, columns[device]) {
				t.Error(diff)
			}
		})
	}
	if file := os.Getenv("GOVERBS_MATRIX"); file != "" {
		bare(guestKernel()).write(t, file, expected, columns)
	}
}

// TestSources: for everything that a device lacks with a kernel, and for nothing else, there is a
// line that says where it is refused.
func TestSources(t *testing.T) {
	requireExplained(t, sourcesFile, readTable(t, sourcesFile, 5), bare)
}

// requireExplained compares what the sheets list as missing with the rows of a table that explains
// it: kernels, or "all"; devices; what; errno; the explanation.
func requireExplained(t *testing.T, file string, rows [][]string, sheetOf func(kernel string) sheet) {
	t.Helper()
	type key struct{ device, lack string }
	for _, row := range rows {
		require.NotEmpty(t, row[4], "%v", row)
		if row[0] != "all" {
			for k := range strings.SplitSeq(row[0], ", ") {
				require.Contains(t, kernels, k, "%s: %v", file, row)
			}
		}
	}
	for _, kernel := range kernels {
		s := sheetOf(kernel)
		lacks := make(map[key]bool)
		for _, row := range s.read(t) {
			for _, d := range s.columns {
				if row[d] == pass || row[d] == absent {
					continue
				}
				for l := range strings.SplitSeq(row[d], ", ") {
					lacks[key{d, l}] = true
				}
			}
		}
		for _, row := range rows {
			if row[0] != "all" && !slices.Contains(strings.Split(row[0], ", "), kernel) {
				continue
			}
			for d := range strings.SplitSeq(row[1], ", ") {
				k := key{d, row[2] + ": " + row[3]}
				require.True(t, lacks[k], "%s: %v is in no cell of %s, or twice here", file, k, s.file)
				delete(lacks, k)
			}
		}
		require.Empty(t, lacks, "what %s does not explain of %s", file, s.file)
	}
}

// TestKernels: the user-space RNIC has the same results with every kernel, and every matrix has the
// same tests, all of subjects in the suite.
func TestKernels(t *testing.T) {
	for _, sheetOf := range []func(kernel string) sheet{bare, wrapped} {
		first := sheetOf(kernels[0]).read(t)
		for _, kernel := range kernels[1:] {
			s := sheetOf(kernel)
			m := s.read(t)
			for test, row := range m {
				require.Contains(t, first, test, s.file)
				subject, _, _ := strings.Cut(test, "/")
				require.Contains(t, verbstest.Subjects(), subject, s.file)
				for _, d := range s.columns {
					if strings.HasPrefix(strings.TrimPrefix(d, "ib:"), "usiw0") && !strings.Contains(d, "+") {
						require.Equal(t, first[test][d], row[d], "%s: %s: %s", s.file, d, test)
					}
				}
			}
			require.Len(t, m, len(first), s.file)
		}
	}
}
