// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	o, err := parse(nil)
	require.NoError(t, err)
	require.Equal(t, 5, o.rounds)
	require.Nil(t, o.only)
	require.Empty(t, o.out)
	require.False(t, o.busy)

	o, err = parse([]string{"-rounds", "1", "-only", "UCX|C TCP", "-time", "2s", "-busy"})
	require.NoError(t, err)
	require.Equal(t, 1, o.rounds)
	require.Equal(t, 2*time.Second, o.seconds)
	require.True(t, o.busy)
	require.True(t, o.only.MatchString("C TCP, 64 B"))
	require.False(t, o.only.MatchString("Go TCP"))

	for _, args := range [][]string{{"ADDRESS"}, {"-rounds", "0"}, {"-rounds", "-5"}, {"-time", "0s"}, {"-only", "("},
		{"-size", "1"}} {
		_, err = parse(args)
		require.Error(t, err, args)
	}
}

// TestParseOut: results that are kept require all subjects and at least 5 rounds. Otherwise the
// program refuses before measuring.
func TestParseOut(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tables.md")
	for _, rounds := range []string{"5", "6", "100"} {
		o, err := parse([]string{"-rounds", rounds, "-out", file})
		require.NoError(t, err)
		require.Equal(t, file, o.out)
	}
	for _, rounds := range []string{"1", "4"} {
		err := measure([]string{"-rounds", rounds, "-out", file})
		require.ErrorContains(t, err, "-rounds "+rounds)
		require.ErrorContains(t, err, file)
		require.ErrorContains(t, err, "5 rounds")
	}
	err := measure([]string{"-out", file, "-only", "UCX"})
	require.ErrorContains(t, err, "-only UCX")
	require.NoFileExists(t, file)
}

// TestMetrics: the metrics of a benchmark come from one run per round, in any order; a failed run
// is an error for each of them.
func TestMetrics(t *testing.T) {
	dir := t.TempDir()
	usiwtest := filepath.Join(dir, "siw.test")
	require.NoError(t, os.WriteFile(usiwtest,
		[]byte("#!/bin/sh\ncd "+dir+"\necho run >>runs\n[ ! -e fail ] || exit 1\n"+
			"echo \"BenchmarkX/n=5-$GOMAXPROCS 1 7 ns/op $(wc -l <runs) p50-us 9 MB/s\"\n"), 0o755))
	tools := &tools{seconds: time.Second}
	b := tools.benchmark(usiwtest, "BenchmarkX/n=5", 1)
	p50, rate := b.metric("p50", unitBack, "p50-us"), b.metric("rate", unitRate, "MB/s")
	require.True(t, p50.less)
	require.False(t, rate.less)
	for round, order := range [][]*subject{{p50, rate}, {rate, p50}, {p50, rate}} {
		for i, s := range order {
			f, used, err := s.run()
			require.NoError(t, err)
			if s == p50 {
				require.EqualValues(t, round+1, f, "runs")
			} else {
				require.EqualValues(t, 9, f)
			}
			if i == 1 {
				require.Zero(t, used)
			}
		}
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "fail"), nil, 0o644))
	for _, s := range []*subject{p50, rate} {
		_, _, err := s.run()
		require.ErrorContains(t, err, "BenchmarkX/n=5")
	}
}

// TestCompute: compute returns when its input ends.
func TestCompute(t *testing.T) {
	r, w := io.Pipe()
	over := make(chan struct{})
	go func() {
		defer close(over)
		compute(r)
	}()
	select {
	case <-over:
		require.FailNow(t, "it has ended by itself")
	case <-time.After(10 * time.Millisecond):
	}
	require.NoError(t, w.Close())
	<-over
}
