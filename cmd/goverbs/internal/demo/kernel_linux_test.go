// SPDX-License-Identifier: BSD-3-Clause

package demo

import (
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cmd/goverbs/internal/clitest"
	"github.com/goverbs/goverbs/internal/rdmatest"
)

// kernelSteps is the expected result of a demo between two halves on a kernel device, except for
// the operation counts.
var kernelSteps = map[string]map[string]stepResult{
	"rxe0": {
		"write-imm":       {Without: "device has no imm64"},
		"imm64":           {Skipped: "device has no imm64"},
		"masked-fetchadd": {Skipped: "device has no masked-fetch-add"},
		"masked-cmpswap":  {Skipped: "device has no masked-cmp-swap"},
		"lock":            {Without: "device has no masked-fetch-add, masked-cmp-swap"},
		"counter":         {Without: "device has no masked-fetch-add, masked-cmp-swap"},
	},
	"siw0": {
		"send":            {Without: "device has no local-inv, bind-mw"},
		"write-imm":       {Skipped: "device has no write-imm"},
		"imm64":           {Skipped: "device has no imm64"},
		"masked-fetchadd": {Skipped: "device has no fetch-add, masked-fetch-add"},
		"masked-cmpswap":  {Skipped: "device has no cmp-swap, masked-cmp-swap"},
		"lock":            {Skipped: "device has no fetch-add, cmp-swap"},
		"counter":         {Skipped: "device has no fetch-add, cmp-swap"},
	},
	// With the semantics of InfiniBand, devices lack only what InfiniBand lacks.
	"ib:rxe0": {
		"write-imm": {Without: "device has no imm64"},
		"imm64":     {Skipped: "device has no imm64"},
	},
	"ib:siw0": {
		"send":      {Without: "device has no send-inv, local-inv, bind-mw"},
		"write-imm": {Without: "device has no imm64"},
		"imm64":     {Skipped: "device has no imm64"},
	},
}

// requireKernelSteps asserts that every step was verified, or skipped as kernelSteps lists for the
// device.
func requireKernelSteps(t *testing.T, r runResult, device string, lockOps int, whose string) {
	t.Helper()
	require.True(t, r.OK)
	full := map[string]int{"connect": 1, "send": 2000, "write": 1024, "read": 1024, "write-imm": 2000, "imm64": 2000,
		"masked-fetchadd": 2000, "masked-cmpswap": 2000, "lock": lockOps, "counter": lockOps, "close": 1}
	for _, s := range r.Steps {
		want := kernelSteps[device][s.Name]
		want.Name, want.OK = s.Name, true
		if want.Skipped == "" {
			want.Ops = full[s.Name]
		}
		want.Skipped = strings.Replace(want.Skipped, "device", whose, 1)
		want.Without = strings.Replace(want.Without, "device", whose, 1)
		require.Equal(t, want, s)
	}
}

func TestKernelDemo(t *testing.T) {
	for _, device := range []string{"rxe0", "siw0"} {
		t.Run(device, func(t *testing.T) {
			rdmatest.KernelDevice(t, device)
			r := clitest.Run(t, "demo", "--json", "--device", device, "--clients", "4", "--ops", "50")
			require.Equal(t, clitest.Done, r.Code, r.Stderr)
			require.Empty(t, r.Stderr)
			got := decodeResult(t, r.Stdout)
			require.Equal(t, device, got.Device)
			requireKernelSteps(t, got, device, 200, "device")
			require.Len(t, got.PIDs, map[string]int{"rxe0": 2 + 4, "siw0": 2}[device])
			clitest.NothingRuns(t)
		})
	}
	t.Run("broken", func(t *testing.T) {
		rdmatest.KernelDevice(t, "rxe0")
		r := clitest.Run(t, "demo", "--json", "--device", "rxe0", "--clients", "2", "--ops", "20", "--break", "lock")
		require.Equal(t, clitest.Failed, r.Code)
		got := decodeResult(t, r.Stdout)
		requireSteps(t, got, "lock")
		require.Contains(t, r.Stderr, "goverbs demo: not verified: lock\n")
	})
}

// With the semantics of InfiniBand only what InfiniBand lacks is skipped.
func TestKernelInfiniBand(t *testing.T) {
	for _, device := range []string{"ib:rxe0", "ib:siw0"} {
		t.Run(device, func(t *testing.T) {
			rdmatest.KernelDevice(t, strings.TrimPrefix(device, "ib:"))
			r := clitest.Run(t, "demo", "--json", "--device", device, "--clients", "2", "--ops", "5")
			require.Equal(t, clitest.Done, r.Code, r.Stderr)
			got := decodeResult(t, r.Stdout)
			require.Equal(t, device, got.Device)
			requireKernelSteps(t, got, device, 10, "device")
			require.Len(t, got.PIDs, 2+2)
			clitest.NothingRuns(t)
		})
	}
}

// The user-space RNIC and the kernel's siw speak the same protocol.
func TestKernelDemoHalves(t *testing.T) {
	rdmatest.KernelDevice(t, "siw0")
	l := clitest.Start(t, "demo", "--device", "siw0", "--listen", "10.77.0.1:0")
	text := l.Stdout.Await(t, "siw0 (ibverbs)\n")
	c := clitest.Run(t, "demo", "--json", "--device", "usiw0", "--connect",
		regexp.MustCompile(`10\.77\.0\.1:\d+`).FindString(text))
	require.Equal(t, clitest.Done, c.Code, c.Stderr)
	got := decodeResult(t, c.Stdout)
	require.Equal(t, "usiw0", got.Device)
	requireKernelSteps(t, got, "siw0", 0, "the other half's device")
	r := l.End(t)
	require.Equal(t, clitest.Done, r.Code, r.Stderr)
	require.Empty(t, r.Stderr)
	require.Regexp(t, `\nconnect +1 op +ok  siw0 \(ibverbs\), 10\.77\.0\.1:\d+ to 10\.77\.0\.1:\d+\n`, r.Stdout)
	require.Regexp(t, `\nsend .* ok  device has no local-inv, bind-mw\n`, r.Stdout)
	require.Regexp(t, `\nlock +skipped  device has no fetch-add, cmp-swap\n`, r.Stdout)
	require.Contains(t, r.Stdout,
		"\nverified: 5 of 11 steps; skipped: write-imm, imm64, masked-fetchadd, masked-cmpswap, lock, counter\n")
}

// Here too the halves may start in either order, and errors name what is impossible.
func TestKernelErrors(t *testing.T) {
	rdmatest.KernelDevice(t, "rxe0")
	rdmatest.KernelDevice(t, "siw0")
	for _, device := range []string{"rxe0", "siw0"} {
		c := clitest.Start(t, "demo", "--device", device, "--connect", clitest.KernelAddress[device][0]+":7307")
		c.Stderr.Await(t, "trying for 10s")
		c.Interrupt(t, syscall.SIGTERM)
	}
	r := clitest.Run(t, "demo", "--device", "mlx5_0")
	require.Equal(t, clitest.Usage, r.Code)
	require.Regexp(t, `present: (rxe0, siw0|siw0, rxe0), usiw0\)`, r.Stderr)
	r = clitest.Run(t, "demo", "--device", "rxe0", "--listen", "10.77.0.1:0")
	require.Equal(t, clitest.Failed, r.Code)
	require.Contains(t, r.Stderr, `"siw0", not of "rxe0"`)
	r = clitest.Run(t, "demo", "--device", "siw0", "--connect", "10.78.0.1:7307")
	require.Equal(t, clitest.Failed, r.Code)
	require.Contains(t, r.Stderr, `"rxe0", not of "siw0"`)
	require.Less(t, r.Took, 10*time.Second)
}

// The halves on two hosts: kernel siw with kernel siw, and with the user-space RNIC; rxe.
func TestKernelTwoHosts(t *testing.T) {
	for _, d := range []string{"siw1", "siw2", "rxe1", "rxe2"} {
		rdmatest.KernelDevice(t, d)
	}
	for _, c := range []struct{ client, server string }{{"siw2", "siw1"}, {"siw2", "usiw0"}} {
		t.Run(c.client+" to "+c.server, func(t *testing.T) {
			l := clitest.StartIn(t, "h1", "demo", "--device", c.server, "--listen", "10.77.0.1:7306")
			l.Stdout.Await(t, "listening on")
			r := clitest.StartIn(t, "h2", "demo", "--json", "--device", c.client, "--connect", "10.77.0.1:7306").End(t)
			require.Equal(t, clitest.Done, r.Code, r.Stderr)
			got := decodeResult(t, r.Stdout)
			require.Equal(t, c.client, got.Device)
			requireKernelSteps(t, got, "siw0", 0, "device")
			r = l.End(t)
			require.Equal(t, clitest.Done, r.Code, r.Stderr)
			require.Regexp(t, `\nconnect .* ok  `+c.server+` \(.*\), 10\.77\.0\.2:\d+ to 10\.77\.0\.1:7306\n`, r.Stdout)
		})
	}
	t.Run("demo rxe1 to rxe2", func(t *testing.T) {
		overtaken := outOfOrder(t)
		l := clitest.Start(t, "demo", "--device", "rxe2", "--listen", "10.78.0.2:7306")
		l.Stdout.Await(t, "listening on")
		r := clitest.Run(t, "demo", "--json", "--device", "rxe1", "--connect", "10.78.0.2:7306", "--clients", "2",
			"--ops", "20")
		require.Equal(t, clitest.Done, r.Code, r.Stderr)
		requireKernelSteps(t, decodeResult(t, r.Stdout), "rxe0", 40, "device")
		require.Equal(t, clitest.Done, l.End(t).Code)
		require.Equal(t, overtaken, outOfOrder(t), "packets have overtaken each other on the cable")
	})
}

// outOfOrder returns how many requests rxe1 and rxe2 received before an earlier one of the same QP.
func outOfOrder(t *testing.T) string {
	var counts string
	for _, d := range []string{"rxe1", "rxe2"} {
		n, err := os.ReadFile("/sys/class/infiniband/" + d + "/ports/1/hw_counters/out_of_seq_request")
		require.NoError(t, err)
		counts += string(n)
	}
	return counts
}
