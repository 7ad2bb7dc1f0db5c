// SPDX-License-Identifier: BSD-3-Clause

package rping

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cmd/goverbs/internal/clitest"
)

// reports decodes the lines of rping --json, whose field names are fixed.
func reports(t *testing.T, stdout string) (all []report) {
	t.Helper()
	for _, line := range clitest.Lines(t, stdout) {
		var r report
		dec := json.NewDecoder(strings.NewReader(line))
		dec.DisallowUnknownFields()
		require.NoError(t, dec.Decode(&r), line)
		all = append(all, r)
	}
	return all
}

// With --json stdout has one line, and the output of -v and -d goes to stderr.
func TestRPingJSON(t *testing.T) {
	s := clitest.Start(t, "rping", "-sdv", "-p0", "-a", "127.0.0.1", "--json", "-S100")
	port := s.Stderr.AwaitMatch(t, `listening on 127\.0\.0\.1:(\d+)\s`)[1]
	c := clitest.Run(t, "rping", "-cvV", "-C50", "-a", "127.0.0.1", "-p", port, "--json")
	require.Equal(t, clitest.Done, c.Code, c.Stderr)
	require.Regexp(t, `^\{"role":"client","device":"usiw0","local":"127\.0\.0\.1:\d+","peer":"127\.0\.0\.1:`+port+
		`","size":64,"pings":50,"round_trip_ns":\{"min":\d+,"p50":\d+,"p99":\d+,"max":\d+\},"ok":true\}\n$`, c.Stdout)
	require.Equal(t, pingLines("ping data: ", 50, 64)+clientDone, c.Stderr)
	got := reports(t, c.Stdout)[0]
	trip := got.RoundTrip
	require.True(t, 0 < trip.Min && trip.Min <= trip.P50 && trip.P50 <= trip.P99 && trip.P99 <= trip.Max, "%+v", trip)

	r := s.End(t)
	require.Equal(t, clitest.Done, r.Code, r.Stderr)
	require.Equal(t, []report{{Role: "server", Device: "usiw0", Local: "127.0.0.1:" + port, Peer: got.Local, Size: 100,
		Pings: 50, OK: true}}, reports(t, r.Stdout))
	require.Equal(t, pingLines("server ping data: ", 50, 64), dataLines("server ping data: ", r.Stderr))
}

// The line also reports a failure, even one before there is a connection.
func TestRPingJSONError(t *testing.T) {
	c := clitest.Run(t, "rping", "-c", "-a", "no-such-host.invalid", "--json", "--device", "auto")
	require.Equal(t, clitest.Failed, c.Code)
	got := reports(t, c.Stdout)
	require.Len(t, got, 1)
	require.Contains(t, got[0].Error, "no-such-host.invalid")
	require.Equal(t, report{Role: "client", Device: "auto", Size: 64, Error: got[0].Error}, got[0])
	require.Contains(t, c.Stderr, got[0].Error)

	s := clitest.Start(t, "rping", "-sd", "-p0", "-C4", "--json", "-a", "127.0.0.1")
	port := s.Stderr.AwaitMatch(t, `listening on 127\.0\.0\.1:(\d+)\s`)[1]
	require.Equal(t, clitest.Done, clitest.Run(t, "rping", "-c", "-C3", "-a", "127.0.0.1", "-p", port).Code)
	r := s.End(t)
	require.Equal(t, clitest.Failed, r.Code)
	got = reports(t, r.Stdout)
	require.Len(t, got, 1)
	require.Equal(t, "the peer disconnected after 3 of 4 pings", got[0].Error)
	require.Equal(t, 3, got[0].Pings)
	require.False(t, got[0].OK)
}

// A server for many clients prints a line for each.
func TestRPingJSONPersistent(t *testing.T) {
	s := clitest.Start(t, "rping", "-sdP", "-p0", "--json", "-a", "127.0.0.1")
	port := s.Stderr.AwaitMatch(t, `listening on 127\.0\.0\.1:(\d+)\s`)[1]
	for n := 1; n <= 3; n++ {
		c := clitest.Run(t, "rping", "-c", "-C"+strconv.Itoa(n), "-S40", "-a", "127.0.0.1", "-p", port)
		require.Equal(t, clitest.Done, c.Code, c.Stderr)
		s.Stdout.Await(t, `"pings":`+strconv.Itoa(n)+`,"ok":true}`)
	}
	got := reports(t, s.Stdout.String())
	require.Len(t, got, 3)
	for i, r := range got {
		require.Equal(t, report{Role: "server", Device: "usiw0", Local: "127.0.0.1:" + port, Peer: r.Peer, Size: 64,
			Pings: i + 1, OK: true}, r)
	}
	require.NoError(t, s.Kill())
}
