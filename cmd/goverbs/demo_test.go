// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var stepOrder = []string{"connect", "send", "write", "read", "write-imm", "imm64", "masked-fetchadd", "masked-cmpswap", "lock", "counter", "close"}

// decodeResult decodes the one line of demo --json, whose shape is fixed.
func decodeResult(t *testing.T, stdout string) demoResult {
	t.Helper()
	require.Len(t, lines(t, stdout), 1)
	var r demoResult
	dec := json.NewDecoder(strings.NewReader(stdout))
	dec.DisallowUnknownFields()
	require.NoError(t, dec.Decode(&r))
	names := make([]string, len(r.Steps))
	for i, s := range r.Steps {
		names[i] = s.Name
	}
	require.Equal(t, stepOrder, names)
	return r
}

// requireSteps asserts that exactly the named step failed; "" stands for none.
func requireSteps(t *testing.T, r demoResult, broken string) {
	t.Helper()
	require.Equal(t, broken == "", r.OK)
	for _, s := range r.Steps {
		require.Equal(t, s.Name != broken, s.OK, s.Name)
	}
}

func TestDemo(t *testing.T) {
	r := goverbs(t, "demo", "--json")
	require.Equal(t, exitDone, r.code, r.stderr)
	require.Empty(t, r.stderr)
	require.Regexp(t, `^\{"device":"usiw0","pids":\[\d+(,\d+){9}\],"steps":\[\{"name":"connect","ok":true,"ops":1\},.*\],"ok":true\}\n$`, r.stdout)
	got := decodeResult(t, r.stdout)
	require.Equal(t, "usiw0", got.Device)
	require.NotContains(t, r.stdout, "skipped")
	require.NotContains(t, r.stdout, "without")
	requireSteps(t, got, "")
	distinct := make(map[int]bool)
	for _, pid := range got.PIDs {
		distinct[pid] = true
	}
	require.Len(t, distinct, 10, "two halves and eight clients")
	require.NotContains(t, got.PIDs, os.Getpid())
	for i, want := range []int{1, 2000, 1024, 1024, 2000, 2000, 2000, 2000, 16000, 16000, 1} {
		require.Equal(t, want, got.Steps[i].Ops, got.Steps[i].Name)
	}
	nothingRuns(t)
}

// atomics are all there are: an RNIC has all or none.
const atomics = "fetch-add,cmp-swap,masked-fetch-add,masked-cmp-swap"

// What the user-space RNIC lacks is skipped, or done otherwise, and is a failure; everything else is verified as ever.
func TestDemoLacks(t *testing.T) {
	r := goverbs(t, "demo", "--json", "--ops", "50", "--without", atomics+",imm64,write-imm,send-inv")
	require.Equal(t, exitFailed, r.code)
	got := decodeResult(t, r.stdout)
	require.False(t, got.OK)
	for i, want := range []stepResult{
		{OK: true, Ops: 1},
		{Ops: 2000, Without: "device has no send-inv"},
		{OK: true, Ops: 1024},
		{OK: true, Ops: 1024},
		{Skipped: "device has no write-imm"},
		{Skipped: "device has no imm64"},
		{Skipped: "device has no fetch-add, masked-fetch-add"},
		{Skipped: "device has no cmp-swap, masked-cmp-swap"},
		{Skipped: "device has no fetch-add, cmp-swap"},
		{Skipped: "device has no fetch-add, cmp-swap"},
		{OK: true, Ops: 1},
	} {
		want.Name = stepOrder[i]
		require.Equal(t, want, got.Steps[i])
	}
	// That something is lacking is the first and only thing that was wrong with those steps.
	require.Equal(t, "step send: device has no send-inv\nstep write-imm: device has no write-imm\nstep imm64: device has no imm64\n"+
		"step masked-fetchadd: device has no fetch-add, masked-fetch-add\nstep masked-cmpswap: device has no cmp-swap, masked-cmp-swap\n"+
		"step lock: device has no fetch-add, cmp-swap\nstep counter: device has no fetch-add, cmp-swap\n"+
		"goverbs demo: not verified: send, write-imm, imm64, masked-fetchadd, masked-cmpswap, lock, counter\n", r.stderr)

	r = goverbs(t, "demo", "--ops", "20", "--without", "imm64,write-imm")
	require.Equal(t, exitFailed, r.code)
	require.Regexp(t, `\nimm64 +FAILED  device has no imm64\n`, r.stdout)
	require.Regexp(t, `\nwrite-imm +FAILED  device has no write-imm\n`, r.stdout)
	require.Contains(t, r.stderr, "goverbs demo: not verified: write-imm, imm64\n")

	r = goverbs(t, "demo", "--without", "imm64")
	require.NotEqual(t, exitDone, r.code)
	require.Contains(t, r.stderr, "imm64", "both immediates are one message: no RNIC has one of them")
}

// What only the other half lacks is not this half's failure.
func TestDemoOtherHalfLacks(t *testing.T) {
	l, address := listen(t, "--json", "--without", atomics)
	c := goverbs(t, "demo", "--connect", address)
	require.Equal(t, exitDone, c.code, c.stderr)
	require.Empty(t, c.stderr)
	lacks := map[string]string{"masked-fetchadd": "fetch-add, masked-fetch-add", "masked-cmpswap": "cmp-swap, masked-cmp-swap",
		"lock": "fetch-add, cmp-swap", "counter": "fetch-add, cmp-swap"}
	for step, what := range lacks {
		require.Regexp(t, `\n`+step+` +skipped  the other half's device has no `+what+`\n`, c.stdout)
	}
	require.Contains(t, c.stdout, "\nverified: 7 of 11 steps; skipped: masked-fetchadd, masked-cmpswap, lock, counter\n")
	r := l.end(t)
	require.Equal(t, exitFailed, r.code)
	for _, s := range decodeResult(t, r.stdout).Steps {
		want := stepResult{Name: s.Name, OK: true, Ops: s.Ops}
		what, lacking := lacks[s.Name]
		if lacking {
			want.OK, want.Skipped = false, "device has no "+what
		}
		require.Equal(t, want, s)
		require.Equal(t, lacking, s.Ops == 0, s.Name)
	}
	require.Contains(t, r.stderr, "goverbs demo: not verified: masked-fetchadd, masked-cmpswap, lock, counter\n")

	// A check that is to be corrupted must be made.
	l, address = listen(t, "--without", "imm64,write-imm")
	c = goverbs(t, "demo", "--connect", address, "--break", "imm64", "--clients", "2", "--ops", "20")
	require.Equal(t, exitFailed, c.code)
	require.Regexp(t, `\nimm64 +FAILED  the other half's device has no imm64\n`, c.stdout)
	require.Equal(t, exitFailed, l.end(t).code)
}

// Without a device of the kernel that owns the address, the choice by address is the user-space RNIC.
func TestDemoAuto(t *testing.T) {
	r := goverbs(t, "demo", "--json", "--device", "auto", "--clients", "2", "--ops", "20")
	require.Equal(t, exitDone, r.code, r.stderr)
	got := decodeResult(t, r.stdout)
	requireSteps(t, got, "")
	require.Equal(t, "usiw0", got.Device)
	l := start(t, "demo", "--device", "auto", "--listen", "127.0.0.1:0")
	text := l.stdout.await(t, "\n")
	var address string
	_, err := fmt.Sscanf(text, "listening on %s", &address)
	require.NoError(t, err)
	c := goverbs(t, "demo", "--connect", strings.TrimSuffix(address, ","), "--clients", "2", "--ops", "20")
	require.Equal(t, exitDone, c.code, c.stderr)
	require.Regexp(t, `\nconnect +1 op +ok  usiw0 \(siw\), 127.*\n`, l.end(t).stdout)
}

func TestDemoText(t *testing.T) {
	r := goverbs(t, "demo", "--ops", "50", "--device", "usiw0")
	require.Equal(t, exitDone, r.code, r.stderr)
	require.Empty(t, r.stderr)
	require.NotContains(t, r.stdout, "\x1b", "no colours unless on a terminal")
	require.NotContains(t, r.stdout, "\r")
	out := lines(t, r.stdout)
	require.Equal(t, "verified: all 11 steps", out[len(out)-1])
	i := 0
	for _, line := range out {
		if f := strings.Fields(line); i < len(stepOrder) && f[0] == stepOrder[i] && strings.Contains(line, "  ok") {
			i++
		}
	}
	require.Equal(t, len(stepOrder), i, r.stdout)
	require.Regexp(t, `\nwrite +1,024 ops +[0-9,]+/s +[0-9,]+ MB/s  ok\n`, r.stdout)
	require.Regexp(t, `\nlock +400 ops +[0-9,]+/s +ok  8 processes`, r.stdout)
	nothingRuns(t)
}

func TestBreakText(t *testing.T) {
	r := goverbs(t, "demo", "--ops", "20", "--break", "imm64")
	require.Equal(t, exitFailed, r.code)
	require.Regexp(t, `\nimm64 .* FAILED\n`, r.stdout)
	require.Regexp(t, `\nclose .* ok\n`, r.stdout)
	require.NotContains(t, r.stdout, "verified")
}

// listen starts the listening half on a free port and returns its address.
func listen(t *testing.T, args ...string) (*running, string) {
	t.Helper()
	l := start(t, append([]string{"demo", "--listen", "127.0.0.1:0"}, args...)...)
	var text string
	require.Eventually(t, func() bool {
		text = l.stdout.String() + l.stderr.String()
		return strings.Contains(text, "(siw)\n")
	}, 30*time.Second, 5*time.Millisecond)
	var address string
	_, err := fmt.Sscanf(text, "listening on %s", &address)
	require.NoError(t, err)
	return l, strings.TrimSuffix(address, ",")
}

func TestHalves(t *testing.T) {
	l, address := listen(t)
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	c := goverbs(t, "demo", "--json", "--connect", "localhost:"+port, "--clients", "3", "--ops", "100")
	require.Equal(t, exitDone, c.code, c.stderr)
	got := decodeResult(t, c.stdout)
	requireSteps(t, got, "")
	require.Len(t, got.PIDs, 1+3)
	require.Equal(t, 300, got.Steps[8].Ops)
	r := l.end(t)
	require.Equal(t, exitDone, r.code, r.stderr)
	require.Empty(t, r.stderr)
	require.Contains(t, r.stdout, "verified: all 11 steps\n")
	require.Regexp(t, `\nlock +300 ops .* ok\n`, r.stdout)
	nothingRuns(t)
}

// The order in which the halves are started does not matter.
func TestListenerComesLate(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := free.Addr().String()
	require.NoError(t, free.Close())
	c := start(t, "demo", "--connect", address, "--clients", "2", "--ops", "20")
	c.stderr.await(t, "trying for 10s")
	l := start(t, "demo", "--listen", address)
	r := c.end(t)
	require.Equal(t, exitDone, r.code, r.stderr)
	require.Len(t, lines(t, r.stderr), 1)
	require.Contains(t, r.stderr, address)
	require.Equal(t, exitDone, l.end(t).code)
}

func TestListenerNeverComes(t *testing.T) {
	t.Parallel()
	r := goverbs(t, "demo", "--connect", "127.0.0.1:1")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stderr, "127.0.0.1:1")
	require.Contains(t, r.stderr, "connection refused")
	require.Contains(t, r.stderr, "not verified: connect; 10 steps were not reached")
	require.Greater(t, r.took, refusedPatience)
	require.Less(t, r.took, refusedPatience+20*time.Second)
}

func TestAddressErrors(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"address in use", []string{"--listen", taken.Addr().String()}, "address already in use"},
		{"not an address of this host", []string{"--listen", "192.0.2.1:7306"}, "192.0.2.1:7306"},
		{"unresolvable host to listen on", []string{"--listen", "no-such-host.invalid:7306"}, "no-such-host.invalid"},
		{"unresolvable host to connect to", []string{"--connect", "no-such-host.invalid:7306"}, "no-such-host.invalid"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := goverbs(t, append([]string{"demo", "--json"}, c.args...)...)
			require.Equal(t, exitFailed, r.code)
			require.Contains(t, r.stderr, c.want)
			require.Less(t, r.took, 60*time.Second) // a name server may have to be waited for
			result := decodeResult(t, r.stdout)
			require.False(t, result.OK)
			for _, s := range result.Steps {
				require.False(t, s.OK, s.Name)
			}
		})
	}
}

// A peer that speaks another protocol is an error at once.
func TestConnectToStranger(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 20))
			_, _ = c.Write([]byte("HTTP/1.0 400 Bad Request\r\n\r\n"))
			c.Close()
		}
	}()
	r := goverbs(t, "demo", "--connect", ln.Addr().String())
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stderr, "step connect: ")
	require.Contains(t, r.stderr, ln.Addr().String())
	require.Less(t, r.took, refusedPatience*4/5)
}

// The listening half is not disturbed by strangers, and serves one demo only.
func TestListenerAndStrangers(t *testing.T) {
	l, address := listen(t)
	for _, garbage := range []string{"", "GET / HTTP/1.0\r\n\r\n", strings.Repeat("\x00", 100)} {
		c, err := net.Dial("tcp", address)
		require.NoError(t, err)
		_, err = c.Write([]byte(garbage))
		require.NoError(t, err)
		require.NoError(t, c.Close())
	}
	first := start(t, "demo", "--connect", address, "--clients", "4", "--ops", "5000")
	first.stdout.await(t, "masked-cmpswap")
	second := goverbs(t, "demo", "--connect", address)
	require.Equal(t, exitFailed, second.code)
	require.Contains(t, second.stderr, "a demo is in progress")
	require.Equal(t, exitDone, first.end(t).code)
	require.Equal(t, exitDone, l.end(t).code)
}

func TestCheckAddress(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", ":7306", "[::1]:65535", "host:1"} {
		require.Empty(t, checkAddress(address, true), address)
	}
	for _, address := range []string{"", "host", "host:", "host:1:2", "::1", ":65536", ":-1", ":1x"} {
		require.NotEmpty(t, checkAddress(address, true), address)
	}
	require.NotEmpty(t, checkAddress(":1", false))
	require.NotEmpty(t, checkAddress("host:0", false))
	require.Empty(t, checkAddress("host:65535", false))
}

func TestPrivateData(t *testing.T) {
	h := hello{Magic: demoMagic, Version: demoVersion, Role: roleClient, Nonce: 1, Token: 2}
	b := encodePrivate(&h)
	got, err := decodeHello(b)
	require.NoError(t, err)
	require.Equal(t, h, got)
	w := welcome{Magic: demoMagic, Version: demoVersion, BigEndian: 1, Nonce: 1, Token: 2, WordsAddr: 3, WordsKey: 4, DataKey: 5, DataAddr: 6}
	wb := encodePrivate(&w)
	require.LessOrEqual(t, len(wb), 56, "what fits in the private data of every fabric")
	gotw, err := decodeWelcome(wb)
	require.NoError(t, err)
	require.Equal(t, w, gotw)
	for n := range b {
		_, err := decodeHello(b[:n])
		require.ErrorIs(t, err, errStranger)
	}
	for n := range wb {
		_, err := decodeWelcome(wb[:n])
		require.ErrorIs(t, err, errStranger)
	}
	for i := range 5 { // magic and version
		other := bytes.Clone(wb)
		other[i]++
		_, err := decodeWelcome(other)
		require.ErrorIs(t, err, errStranger)
	}
}

func TestDecodeControl(t *testing.T) {
	m := control{Step: "lock", Phase: phaseCheck, OK: true, Words: []uint64{1<<64 - 1}}
	b, err := m.encode()
	require.NoError(t, err)
	got, err := decodeControl(b, "lock", phaseCheck)
	require.NoError(t, err)
	require.Equal(t, m, got)
	_, err = decodeControl(b, "counter", phaseCheck)
	require.ErrorContains(t, err, `"lock"`)
	_, err = decodeControl(b, "lock", phaseBegin)
	require.ErrorContains(t, err, "check")
	_, err = decodeControl(b[:len(b)-1], "lock", phaseCheck)
	require.Error(t, err)
	m.Error = strings.Repeat("x", slotSize)
	_, err = m.encode()
	require.ErrorContains(t, err, "octets")
}

func TestThousands(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 16000: "16,000", 1234567: "1,234,567", -1000: "-1,000", -100: "-100"} {
		require.Equal(t, want, thousands(n))
	}
}
