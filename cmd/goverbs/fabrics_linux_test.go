// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package main

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cmd/goverbs/internal/clitest"
	"github.com/goverbs/goverbs/compat/ibcompat/scenario"
	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/internal/forward"
	"github.com/goverbs/goverbs/internal/race"
	"github.com/goverbs/goverbs/verbs"
)

// fakeAdapter starts the fake libraries with the InfiniBand adapter fake0, and adds the device
// names honest:NAME and liar:NAME: the former forwards everything, the latter adds one to the
// length of what is received.
func fakeAdapter(t *testing.T) {
	t.Helper()
	fakeverbs.Start(t)
	fakeverbs.Loopback(true)
	fakeverbs.SetHidden(fakeverbs.Fake1, true)
	registerMakers()
}

var registerMakers = sync.OnceFunc(func() {
	forward.Register("honest:", forward.Wrap)
	forward.Register("liar:", func(below *verbs.Device) *verbs.Device {
		return verbs.NewDevice(liar{forward.Wrap(below).Provider()})
	})
})

type liar struct{ verbs.ProviderDevice }

func (d liar) Unwrap() verbs.ProviderDevice { return d.ProviderDevice }

func (d liar) Open(owner *verbs.Context) (verbs.ProviderContext, error) {
	c, err := d.ProviderDevice.Open(owner)
	if err != nil {
		return nil, err
	}
	return &liarContext{c.(*forward.Context)}, nil
}

type liarContext struct{ *forward.Context }

func (c *liarContext) CreateCQ(owner *verbs.CQ, cqe int, ch verbs.ProviderCompChannel,
	vector int) (verbs.ProviderCQ, error) {
	in, err := c.NewCQ(owner, cqe, ch, vector)
	if err != nil {
		return nil, err
	}
	return liarCQ{in}, nil
}

type liarCQ struct{ *forward.CQ }

func (c liarCQ) Poll(wcs []verbs.WC) (int, error) {
	n, err := c.In.Poll(wcs)
	for i := range wcs[:n] {
		wcs[i].ByteLen++
	}
	return n, err
}

// fabricsReport is the output of fabrics --json.
type fabricsReport struct {
	Columns   []string
	Scenarios []struct {
		Name        string
		Row         int
		TracesEqual bool `json:"traces_equal"`
		Difference  string
		Seconds     []float64
	}
	OK      bool
	Missing []struct {
		Column   string
		Required bool
		Error    string
	}
}

// TestFabrics: the command succeeds if all columns agree and the required ones ran, and fails
// otherwise.
func TestFabrics(t *testing.T) {
	for _, c := range []struct {
		name, columns, required string
		code                    int
		stderr                  string
	}{
		{"equal", "fake0,honest:fake0", "fake0,honest:fake0", clitest.Done, ""},
		{"none is required", "fake0,honest:fake0", "", clitest.Done, ""},
		{"required besides", "fake0", "honest:fake0", clitest.Done, ""},
		{"two devices", "fake0,fake0+honest:fake0", "", clitest.Done, ""},
		{"one field differs", "fake0,liar:fake0", "", clitest.Failed, "1 of 3 scenarios differ"},
		{"on the end that receives", "fake0,fake0+liar:fake0", "", clitest.Failed, "1 of 3 scenarios differ"},
		{"on the end that does not", "fake0,liar:fake0+fake0", "", clitest.Done, ""},
		{"one column", "fake0", "", clitest.Failed, "nothing to compare: 1 of 2 columns could be run"},
		{"no column", "none0,none1", "", clitest.Failed, "nothing to compare: 0 of 2 columns could be run"},
		{"one is missing", "fake0,honest:fake0,none0", "", clitest.Done, "without column none0: "},
		{"a required one is missing", "fake0,honest:fake0", "none0", clitest.Failed, "column none0 did not run: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			fakeAdapter(t)
			r := execute(t, "fabrics", "--json", "--columns", c.columns, "--require", c.required, "--only",
				"row05/send-imm,row06/cmp-swap")
			require.Equal(t, c.code, r.code, "%s%s", r.stdout, r.stderr)
			require.Contains(t, r.stderr, c.stderr)
			var got fabricsReport
			require.NoError(t, json.Unmarshal([]byte(r.stdout), &got))
			require.Equal(t, c.code == clitest.Done, got.OK)
			for _, s := range got.Scenarios {
				require.Len(t, s.Seconds, len(got.Columns))
			}
		})
	}
}

// TestFabricsText: the output for people has a line for each scenario, and can show traces that
// differ.
func TestFabricsText(t *testing.T) {
	fakeAdapter(t)
	r := execute(t, "fabrics", "--columns", "fake0,liar:fake0", "--only", "row05/send-imm,row06/cmp-swap", "-v")
	require.Equal(t, clitest.Failed, r.code)
	out := clitest.Lines(t, r.stdout)
	require.Len(t, out, 4)
	require.Regexp(t, `^row05/send-imm +DIFFERS  fake0 and liar:fake0: event \d+ is "passive: received 0 success RECV, 0 bytes, immediate 0xabc" and `+
		`"passive: received 0 success RECV, 1 bytes, immediate 0xabc"$`, out[0])
	require.Regexp(t, `^row06/cmp-swap +equal +\[\d+\.\d \d+\.\d\] s$`, out[2])
	require.Equal(t, "3 scenarios on fake0, liar:fake0", out[3])
	require.Contains(t, r.stderr, "row05/send-imm on liar:fake0:\n    0  passive: call PostRecv = 1, none\n")
	require.NotContains(t, r.stderr, "row06/cmp-swap on")
}

// TestFabricsUsage: unknown columns and unknown scenarios.
func TestFabricsUsage(t *testing.T) {
	for _, args := range [][]string{{"--require", "usiw0,,rxe0"}, {"--require", "auto"}, {"--columns", "usiw0,usiw0"},
		{"more"}} {
		r := execute(t, append([]string{"fabrics"}, args...)...)
		require.Equal(t, clitest.Usage, r.code, args)
	}
	r := execute(t, "fabrics", "--only", "row25/")
	require.Equal(t, clitest.Usage, r.code)
	require.Contains(t, r.stderr, `--only "row25/": no scenario's name begins so`)
	require.Contains(t, r.stderr, "row07/misaligned")
}

// unlike lists the scenarios that are not compared with the fake adapter, and why.
var unlike = map[string]string{
	"row01/rnr-exceeded":     "it waits for ever",
	"row24/nobody-there":     "the same",
	"row24/peer-gone":        "the same",
	"row07/misaligned":       "it takes a misaligned atomic, and fails it later, as some adapters do",
	"row21/no-depth":         "it does not count Reads and atomics",
	"row19/qp-denies-write":  "it does not look at the access flags of QPs",
	"row19/qp-denies-read":   "the same",
	"row19/qp-denies-atomic": "the same",
}

// TestFabricsUserSpace: a program observes the same on the fake adapter and on the user-space RNIC
// with and without RFC 7306.
func TestFabricsUserSpace(t *testing.T) {
	fakeAdapter(t)
	var all, ours []string
	for _, s := range scenario.All() {
		switch {
		case s.Name == "row02/large" && race.Enabled:
		case unlike[s.Name] != "":
			ours = append(ours, s.Name)
		default:
			all = append(all, s.Name)
		}
	}
	for columns, only := range map[string][]string{"fake0,usiw0,usiw0-plain": all, "usiw0,usiw0-plain": ours} {
		r := execute(t, "fabrics", "--columns", columns, "--require", columns, "--only", strings.Join(only, ","), "-v")
		require.Equal(t, clitest.Done, r.code, "%s%s", r.stdout, r.stderr)
	}
}
