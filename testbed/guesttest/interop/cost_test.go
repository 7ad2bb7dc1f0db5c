// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package interop

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/verbs"
)

// The cost of RFC 7306 with the module, between two QPs of siw0 in one process.

// listed is the length of a list of requests.
const listed = 16

// lists returns lists of 8-byte requests from s to the other side's memory. The last request of
// each is signalled.
func lists(s *side, other *verbs.MR) map[string][]verbs.SendWR {
	at, key := other.Addr(), other.RKey()
	repeat := func(wrs ...verbs.SendWR) []verbs.SendWR {
		l := slices.Repeat(wrs, listed/len(wrs))
		for i := range l {
			l[i].Flags &^= verbs.SendSignaled
		}
		l[len(l)-1].Flags |= verbs.SendSignaled
		return l
	}
	pair := ext.WriteImm64WRs(other.Remote(), 7306, s.sgl(0, 8)...)
	return map[string][]verbs.SendWR{
		"Read":       repeat(verbs.SendWR{Opcode: verbs.WRRDMARead, SGL: s.sgl(0, 8), RemoteAddr: at, RKey: key}),
		"FetchAdd":   repeat(ext.FetchAddWR(other.Remote(), 1, s.sgl(0, 8)...)),
		"Write":      repeat(verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGL: s.sgl(0, 8), RemoteAddr: at, RKey: key}),
		"Write+Send": repeat(pair[0], verbs.SendWR{Opcode: verbs.WRSend, SGL: s.sgl(8, 8)}),
		"Write+Imm":  repeat(pair[:]...),
	}
}

// exchange posts a list of requests in one call and polls until all have completed, including the
// other side's receives, if any.
func exchange(t testing.TB, s, other *side, list []verbs.SendWR, receives []verbs.RecvWR) {
	poll := func(cq *verbs.CQ, want int) {
		var wcs [listed]verbs.WC
		for end := time.Now().Add(waitLimit); want > 0; {
			n, err := cq.Poll(wcs[:want])
			require.NoError(t, err)
			for _, wc := range wcs[:n] {
				require.Equal(t, verbs.WCSuccess, wc.Status)
			}
			want -= n
			require.True(t, n > 0 || time.Now().Before(end), "%d completions are missing", want)
		}
	}
	if len(receives) > 0 {
		n, err := other.qp.PostRecv(receives)
		require.NoError(t, err)
		require.Equal(t, len(receives), n)
	}
	n, err := s.qp.PostSend(list)
	require.NoError(t, err)
	require.Equal(t, len(list), n)
	poll(s.scq, 1)
	poll(other.rcq, len(receives))
}

// systemCalls returns how often this process has called write(2) and related calls.
func systemCalls(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/io")
	require.NoError(t, err)
	found := regexp.MustCompile(`(?m)^syscw: (\d+)$`).FindSubmatch(b)
	require.NotNil(t, found, "%s", b)
	n, err := strconv.Atoi(string(found[1]))
	require.NoError(t, err)
	return n
}

// TestModuleCosts: a list of requests costs one system call, its doorbell, regardless of its
// contents; receives and polling cost none. The log shows the time per request of each kind,
// measured alternately, and the cost of RFC 7306 compared with alternatives without it.
func TestModuleCosts(t *testing.T) {
	needModule(t)
	l := here.link(t, linkConfig{memory: 4096, kernels: true, user: depth(listed, listed),
		kernel: depth(listed, listed)})
	mr := l.kernel.region(l.kernel.pd, 64, allRights)
	receives := slices.Repeat([]verbs.RecvWR{{SGL: l.kernel.sgl(64, 8)}}, listed/2)
	const rounds = 200
	calls, times := make(map[string]int), make(map[string][]time.Duration)
	for range rounds {
		for name, list := range lists(l.user, mr) {
			rs := receives
			if name != "Write+Send" && name != "Write+Imm" {
				rs = nil
			}
			before, began := systemCalls(t), time.Now()
			exchange(t, l.user, l.kernel, list, rs)
			times[name] = append(times[name], time.Since(began)/listed)
			calls[name] += systemCalls(t) - before
		}
	}
	median := func(name string) time.Duration {
		slices.Sort(times[name])
		return times[name][rounds/2]
	}
	for name, n := range calls {
		t.Logf("%s: %v, %.3f system calls for each request", name, median(name), float64(n)/rounds/listed)
		// Go's runtime writes too, to wake a thread that waits for descriptors.
		require.InDelta(t, rounds, n, rounds/2)
	}
	for _, pair := range [][2]string{{"FetchAdd", "Read"}, {"Write+Imm", "Write+Send"}} {
		t.Logf("%s / %s: %.2f", pair[0], pair[1], float64(median(pair[0]))/float64(median(pair[1])))
	}
}
