// SPDX-License-Identifier: BSD-3-Clause

package demo

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

	"github.com/goverbs/goverbs/cmd/goverbs/internal/clitest"
	"github.com/goverbs/goverbs/compat/ibcompat"
)

var stepOrder = []string{"connect", "send", "write", "read", "write-imm", "imm64", "masked-fetchadd", "masked-cmpswap",
	"lock", "counter", "close"}

// decodeResult decodes the single line of demo --json, whose format is fixed.
func decodeResult(t *testing.T, stdout string) runResult {
	t.Helper()
	require.Len(t, clitest.Lines(t, stdout), 1)
	var r runResult
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

// requireSteps asserts that only the named step failed; "" means none.
func requireSteps(t *testing.T, r runResult, broken string) {
	t.Helper()
	require.Equal(t, broken == "", r.OK)
	for _, s := range r.Steps {
		require.Equal(t, s.Name != broken, s.OK, s.Name)
	}
}

func TestDemo(t *testing.T) {
	r := clitest.Run(t, "demo", "--json")
	require.Equal(t, clitest.Done, r.Code, r.Stderr)
	require.Empty(t, r.Stderr)
	require.Regexp(t, `^\{"device":"usiw0","pids":\[\d+(,\d+){9}\],"steps":\[\{"name":"connect","ok":true,"ops":1\},.*\],"ok":true\}\n$`, r.Stdout)
	got := decodeResult(t, r.Stdout)
	require.Equal(t, "usiw0", got.Device)
	require.NotContains(t, r.Stdout, "skipped")
	require.NotContains(t, r.Stdout, "without")
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
	clitest.NothingRuns(t)
}

// atomics lists all atomics: an RNIC has all or none.
const atomics = "fetch-add,cmp-swap,masked-fetch-add,masked-cmp-swap"

// What the user-space RNIC lacks is skipped or done differently, and is a failure. Everything else
// is verified as usual.
func TestDemoLacks(t *testing.T) {
	r := clitest.Run(t, "demo", "--json", "--ops", "50", "--without", atomics+",imm64,write-imm,send-inv")
	require.Equal(t, clitest.Failed, r.Code)
	got := decodeResult(t, r.Stdout)
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
	// The missing operations are the first and only fault in those steps.
	require.Equal(t, "step send: device has no send-inv\nstep write-imm: device has no write-imm\nstep imm64: device has no imm64\n"+
		"step masked-fetchadd: device has no fetch-add, masked-fetch-add\nstep masked-cmpswap: device has no cmp-swap, masked-cmp-swap\n"+
		"step lock: device has no fetch-add, cmp-swap\nstep counter: device has no fetch-add, cmp-swap\n"+
		"goverbs demo: not verified: send, write-imm, imm64, masked-fetchadd, masked-cmpswap, lock, counter\n",
		r.Stderr)

	r = clitest.Run(t, "demo", "--ops", "20", "--without", "imm64,write-imm")
	require.Equal(t, clitest.Failed, r.Code)
	require.Regexp(t, `\nimm64 +FAILED  device has no imm64\n`, r.Stdout)
	require.Regexp(t, `\nwrite-imm +FAILED  device has no write-imm\n`, r.Stdout)
	require.Contains(t, r.Stderr, "goverbs demo: not verified: write-imm, imm64\n")

	r = clitest.Run(t, "demo", "--without", "imm64")
	require.NotEqual(t, clitest.Done, r.Code)
	require.Contains(t, r.Stderr, "imm64", "both immediates are one message: no RNIC has one of them")
}

// The RNIC without RFC 7306 has everything that it should: the operations it lacks are skipped, and
// all others verified.
func TestDemoPlain(t *testing.T) {
	r := clitest.Run(t, "demo", "--json", "--ops", "50", "--clients", "2", "--device", "usiw0-plain")
	require.Equal(t, clitest.Done, r.Code, r.Stderr)
	require.Empty(t, r.Stderr)
	got := decodeResult(t, r.Stdout)
	require.Equal(t, "usiw0-plain", got.Device)
	require.True(t, got.OK)
	var skipped []string
	for _, s := range got.Steps {
		require.True(t, s.OK, s.Name)
		require.Empty(t, s.Without)
		if s.Skipped != "" {
			require.Zero(t, s.Ops)
			skipped = append(skipped, s.Name+": "+s.Skipped)
		}
	}
	require.Equal(t, []string{"write-imm: device has no write-imm", "imm64: device has no imm64",
		"masked-fetchadd: device has no fetch-add, masked-fetch-add",
		"masked-cmpswap: device has no cmp-swap, masked-cmp-swap",
		"lock: device has no fetch-add, cmp-swap", "counter: device has no fetch-add, cmp-swap"}, skipped)
}

// Operations that only the other half lacks are not this half's failure.
func TestDemoOtherHalfLacks(t *testing.T) {
	l, address := listen(t, "--json", "--without", atomics)
	c := clitest.Run(t, "demo", "--connect", address)
	require.Equal(t, clitest.Done, c.Code, c.Stderr)
	require.Empty(t, c.Stderr)
	lacks := map[string]string{"masked-fetchadd": "fetch-add, masked-fetch-add",
		"masked-cmpswap": "cmp-swap, masked-cmp-swap", "lock": "fetch-add, cmp-swap", "counter": "fetch-add, cmp-swap"}
	for step, what := range lacks {
		require.Regexp(t, `\n`+step+` +skipped  the other half's device has no `+what+`\n`, c.Stdout)
	}
	require.Contains(t, c.Stdout,
		"\nverified: 7 of 11 steps; skipped: masked-fetchadd, masked-cmpswap, lock, counter\n")
	r := l.End(t)
	require.Equal(t, clitest.Failed, r.Code)
	for _, s := range decodeResult(t, r.Stdout).Steps {
		want := stepResult{Name: s.Name, OK: true, Ops: s.Ops}
		what, lacking := lacks[s.Name]
		if lacking {
			want.OK, want.Skipped = false, "device has no "+what
		}
		require.Equal(t, want, s)
		require.Equal(t, lacking, s.Ops == 0, s.Name)
	}
	require.Contains(t, r.Stderr, "goverbs demo: not verified: masked-fetchadd, masked-cmpswap, lock, counter\n")

	// A comparison that --break names must be made: skipping it is a failure.
	l, address = listen(t, "--without", "imm64,write-imm")
	c = clitest.Run(t, "demo", "--connect", address, "--break", "imm64", "--clients", "2", "--ops", "20")
	require.Equal(t, clitest.Failed, c.Code)
	require.Regexp(t, `\nimm64 +FAILED  the other half's device has no imm64\n`, c.Stdout)
	require.Equal(t, clitest.Failed, l.End(t).Code)
}

// If no kernel device owns the address, choosing by address selects the user-space RNIC.
func TestDemoAuto(t *testing.T) {
	r := clitest.Run(t, "demo", "--json", "--device", "auto", "--clients", "2", "--ops", "20")
	require.Equal(t, clitest.Done, r.Code, r.Stderr)
	got := decodeResult(t, r.Stdout)
	requireSteps(t, got, "")
	require.Equal(t, "usiw0", got.Device)
	l := clitest.Start(t, "demo", "--device", "auto", "--listen", "127.0.0.1:0")
	text := l.Stdout.Await(t, "\n")
	var address string
	_, err := fmt.Sscanf(text, "listening on %s", &address)
	require.NoError(t, err)
	c := clitest.Run(t, "demo", "--connect", strings.TrimSuffix(address, ","), "--clients", "2", "--ops", "20")
	require.Equal(t, clitest.Done, c.Code, c.Stderr)
	require.Regexp(t, `\nconnect +1 op +ok  usiw0 \(usiw\), 127.*\n`, l.End(t).Stdout)
}

func TestDemoText(t *testing.T) {
	r := clitest.Run(t, "demo", "--ops", "50", "--device", "usiw0")
	require.Equal(t, clitest.Done, r.Code, r.Stderr)
	require.Empty(t, r.Stderr)
	require.NotContains(t, r.Stdout, "\x1b", "no colours unless on a terminal")
	require.NotContains(t, r.Stdout, "\r")
	out := clitest.Lines(t, r.Stdout)
	require.Equal(t, "verified: all 11 steps", out[len(out)-1])
	i := 0
	for _, line := range out {
		if f := strings.Fields(line); i < len(stepOrder) && f[0] == stepOrder[i] && strings.Contains(line, "  ok") {
			i++
		}
	}
	require.Equal(t, len(stepOrder), i, r.Stdout)
	require.Regexp(t, `\nwrite +1,024 ops +[0-9,]+/s +[0-9,]+ MB/s  ok\n`, r.Stdout)
	require.Regexp(t, `\nlock +400 ops +[0-9,]+/s +ok  8 processes`, r.Stdout)
	clitest.NothingRuns(t)
}

func TestBreakText(t *testing.T) {
	r := clitest.Run(t, "demo", "--ops", "20", "--break", "imm64")
	require.Equal(t, clitest.Failed, r.Code)
	require.Regexp(t, `\nimm64 .* FAILED\n`, r.Stdout)
	require.Regexp(t, `\nclose .* ok\n`, r.Stdout)
	require.NotContains(t, r.Stdout, "verified")
}

// listen starts the listening half on a free port and returns its address.
func listen(t *testing.T, args ...string) (*clitest.Running, string) {
	t.Helper()
	l := clitest.Start(t, append([]string{"demo", "--listen", "127.0.0.1:0"}, args...)...)
	var text string
	require.Eventually(t, func() bool {
		text = l.Stdout.String() + l.Stderr.String()
		return strings.Contains(text, "(usiw)\n")
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
	c := clitest.Run(t, "demo", "--json", "--connect", "localhost:"+port, "--clients", "3", "--ops", "100")
	require.Equal(t, clitest.Done, c.Code, c.Stderr)
	got := decodeResult(t, c.Stdout)
	requireSteps(t, got, "")
	require.Len(t, got.PIDs, 1+3)
	require.Equal(t, 300, got.Steps[8].Ops)
	r := l.End(t)
	require.Equal(t, clitest.Done, r.Code, r.Stderr)
	require.Empty(t, r.Stderr)
	require.Contains(t, r.Stdout, "verified: all 11 steps\n")
	require.Regexp(t, `\nlock +300 ops .* ok\n`, r.Stdout)
	clitest.NothingRuns(t)
}

// The halves may start in either order.
func TestListenerComesLate(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := free.Addr().String()
	require.NoError(t, free.Close())
	c := clitest.Start(t, "demo", "--connect", address, "--clients", "2", "--ops", "20")
	c.Stderr.Await(t, "trying for 10s")
	l := clitest.Start(t, "demo", "--listen", address)
	r := c.End(t)
	require.Equal(t, clitest.Done, r.Code, r.Stderr)
	require.Len(t, clitest.Lines(t, r.Stderr), 1)
	require.Contains(t, r.Stderr, address)
	require.Equal(t, clitest.Done, l.End(t).Code)
}

func TestListenerNeverComes(t *testing.T) {
	t.Parallel()
	r := clitest.Run(t, "demo", "--connect", "127.0.0.1:1")
	require.Equal(t, clitest.Failed, r.Code)
	require.Contains(t, r.Stderr, "127.0.0.1:1")
	require.Contains(t, r.Stderr, "connection refused")
	require.Contains(t, r.Stderr, "not verified: connect; 10 steps were not reached")
	require.Greater(t, r.Took, refusedPatience)
	require.Less(t, r.Took, refusedPatience+20*time.Second)
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
			r := clitest.Run(t, append([]string{"demo", "--json"}, c.args...)...)
			require.Equal(t, clitest.Failed, r.Code)
			require.Contains(t, r.Stderr, c.want)
			require.Less(t, r.Took, 60*time.Second) // name resolution may be slow
			result := decodeResult(t, r.Stdout)
			require.False(t, result.OK)
			for _, s := range result.Steps {
				require.False(t, s.OK, s.Name)
			}
		})
	}
}

// A peer with another protocol is an immediate error.
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
	r := clitest.Run(t, "demo", "--connect", ln.Addr().String())
	require.Equal(t, clitest.Failed, r.Code)
	require.Contains(t, r.Stderr, "step connect: ")
	require.Contains(t, r.Stderr, ln.Addr().String())
	require.Less(t, r.Took, refusedPatience*4/5)
}

// The listening half is not disturbed by strangers, and serves only one demo.
func TestListenerAndStrangers(t *testing.T) {
	l, address := listen(t)
	for _, garbage := range []string{"", "GET / HTTP/1.0\r\n\r\n", strings.Repeat("\x00", 100)} {
		c, err := net.Dial("tcp", address)
		require.NoError(t, err)
		_, err = c.Write([]byte(garbage))
		require.NoError(t, err)
		require.NoError(t, c.Close())
	}
	first := clitest.Start(t, "demo", "--connect", address, "--clients", "4", "--ops", "5000")
	first.Stdout.Await(t, "masked-cmpswap")
	second := clitest.Run(t, "demo", "--connect", address)
	require.Equal(t, clitest.Failed, second.Code)
	require.Contains(t, second.Stderr, "a demo is in progress")
	require.Equal(t, clitest.Done, first.End(t).Code)
	require.Equal(t, clitest.Done, l.End(t).Code)
}

func TestPrivateData(t *testing.T) {
	h := hello{Magic: magic, Version: version, Role: roleClient, Nonce: 1, Token: 2}
	b := encodePrivate(&h)
	got, err := decodeHello(b)
	require.NoError(t, err)
	require.Equal(t, h, got)
	w := welcome{Magic: magic, Version: version, BigEndian: 1, Nonce: 1, Token: 2, WordsAddr: 3, WordsKey: 4,
		DataKey: 5, DataAddr: 6}
	wb := encodePrivate(&w)
	require.LessOrEqual(t, len(wb), ibcompat.PrivateData, "what fits in the private data of every device")
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
	got, err = decodeControl([]byte(`{"step":"lock","phase":"check","error":"\u001b[2J\nstep close: verified"}`), "",
		phaseCheck)
	require.NoError(t, err)
	require.Equal(t, `\u001b[2J\u000astep close: verified`, got.Error,
		"a peer's text controls nothing, and is no line of its own")
	m.Error = strings.Repeat("x", slotSize)
	_, err = m.encode()
	require.ErrorContains(t, err, "bytes")
}

func TestThousands(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 16000: "16,000", 1234567: "1,234,567",
		-1000: "-1,000", -100: "-100"} {
		require.Equal(t, want, thousands(n))
	}
}
