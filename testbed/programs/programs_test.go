// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package programs

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/internal/runenv"
	"github.com/goverbs/goverbs/internal/testprogram"
	"github.com/goverbs/goverbs/verbs"
)

// wantedVariable selects pairs: quick, all, or the name of one.
const wantedVariable = "GOVERBS_TEST_PROGRAMS"

// wanted returns which pairs to run.
func wanted(t *testing.T) string {
	t.Helper()
	w := os.Getenv(wantedVariable)
	if w == "" {
		t.Skipf("%s is not set: make test-programs runs this", wantedVariable)
	}
	return w
}

// TestUser runs the pairs on the user-space RNIC, on this host.
func TestUser(t *testing.T) {
	wanted(t)
	here := place{kind: userUser, server: user(t), client: user(t), addr: "127.0.0.1", addr6: "::1"}
	here.netdev, here.netaddr = outside(t)
	here.run(t)
}

// TestKernel runs the pairs with the siw driver of Linux, in the guest.
func TestKernel(t *testing.T) {
	rdmatest.KernelDevice(t, kernel().device)
	for _, p := range []place{
		{kind: userKernel, server: user(t), client: kernel()},
		{kind: kernelUser, server: kernel(), client: user(t)},
		{kind: kernelKernel, server: kernel(), client: kernel()},
	} {
		t.Run(p.kind, func(t *testing.T) {
			p.addr, p.addr6, p.slow = "10.77.0.1", "fd00:77::1", guestSlow
			p.netdev, p.netaddr = "d0", p.addr
			p.run(t)
		})
	}
}

// run runs the wanted pairs in sequence.
func (p *place) run(t *testing.T) {
	f, err := os.Open("pairs.list")
	require.NoError(t, err)
	pairs, err := parse(f)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	wanted := wanted(t)
	p.writeDAT(t)
	p.tally = newTally()
	var ran int
	for _, pr := range pairs {
		if wanted == "quick" && !pr.quick || wanted != "quick" && wanted != "all" && wanted != pr.name {
			continue
		}
		if pr.host && p.kind != userUser {
			continue
		}
		ran++
		t.Run(pr.name, func(t *testing.T) {
			if pr.outside() && p.netdev == "" {
				t.Skip("this host has no interface but loopback")
			}
			p.judge(t, pr)
		})
	}
	t.Logf("%s: %d pairs; %v", p.kind, ran, p.tally)
	require.NoError(t, p.tally.err())
	require.NotZero(t, ran, "%s=%s: neither quick, all nor the name of a pair", wantedVariable, wanted)
}

// judge runs a pair and compares the result with the list.
func (p *place) judge(t *testing.T, pr *pair) {
	t.Helper()
	began := time.Now()
	c := record(t, p.kind+"-"+pr.name)
	r := p.tries(t, pr)
	wrong := pr.verdict(p.kind, r.err)
	kept := c.end(t, wrong != nil)
	if wrong != nil {
		t.Errorf("%v\n%s\n%v", wrong, kept, r)
	} else if r.err != nil {
		t.Logf("fails as is known (%s): %v", pr.fails[p.kind], r.err)
	}
	t.Logf("%s %s: %.1f s", p.kind, pr.name, time.Since(began).Seconds())
}

// verdict compares the result of a pair with the list. It returns an error if a pair fails that
// should pass, or passes that should fail.
func (pr *pair) verdict(kind string, err error) error {
	why, known := pr.fails[kind]
	switch {
	case known && err == nil:
		return fmt.Errorf("%s passes, but the list says that it fails: %s", pr.name, why)
	case known:
		return nil
	default:
		return err
	}
}

// result is the outcome of a pair. A program that was not started is nil.
type result struct {
	server, client *testprogram.Program
	err            error
}

// String returns the two commands and their output.
func (r result) String() string {
	var b strings.Builder
	for _, prog := range []*testprogram.Program{r.server, r.client} {
		if prog != nil {
			fmt.Fprintf(&b, "--- %s\n%s\n", prog.Cmd, prog.Out)
		}
	}
	return b.String()
}

// printed returns the output of both.
func (r result) printed() string {
	var b strings.Builder
	for _, prog := range []*testprogram.Program{r.server, r.client} {
		if prog != nil {
			b.WriteString(prog.Out.String())
		}
	}
	return b.String()
}

// tries runs a pair, and retries it while it loses one of its races, as often as the race allows.
func (p *place) tries(t *testing.T, pr *pair) result {
	t.Helper()
	p.tally.enter(pr)
	for lost := make(map[*race]int); ; {
		r := p.once(t, pr)
		if r.err == nil {
			return r
		}
		var which *race
		var printed string
		for _, which = range pr.again {
			if printed = which.lost(r); printed != "" {
				break
			}
		}
		if printed == "" || lost[which] == which.retries {
			return r
		}
		lost[which]++
		p.tally.retry(which, pr)
		t.Logf("%s: %v; %q was printed, so it has lost the race %s and is tried again\n%v", pr.name, r.err, printed,
			which.name, r)
	}
}

// once runs a pair. Both programs have exited when it returns.
func (p *place) once(t *testing.T, pr *pair) (r result) {
	t.Helper()
	port := pr.port
	if port == 0 {
		port = freePort(t)
	}
	deadline := time.After(pr.limit * max(1, p.slow))
	run := func(s side, words []string) *testprogram.Program {
		prog, err := start(append(s.prefix[:len(s.prefix):len(s.prefix)], p.words(words, s, port)...),
			append(p.words(pr.env, s, port), runenv.Verbose+"=1"))
		require.NoError(t, err)
		return prog
	}
	if pr.server != nil {
		r.server = run(p.server, pr.server)
		defer r.server.Kill()
		for !listens(t, port) {
			if r.server.HasEnded() {
				r.err = fmt.Errorf("server: %v before it listens: %v", r.server.Cmd.ProcessState, r.server.Cmd)
				return r
			}
			select {
			case <-deadline:
				r.err = fmt.Errorf("server: does not listen on port %d: %v", port, r.server.Cmd)
				return r
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	r.client = run(p.client, pr.client)
	defer r.client.Kill()
	if err := outcome(r.client, deadline, false); err != nil {
		r.err = fmt.Errorf("client: %w", err)
		return r
	}
	if r.server != nil {
		if pr.stops {
			_ = r.server.Signal(syscall.SIGTERM)
		}
		if err := outcome(r.server, deadline, pr.stops); err != nil {
			r.err = fmt.Errorf("server: %w", err)
			return r
		}
	}
	for name, prog := range map[string]*testprogram.Program{"server": r.server, "client": r.client} {
		for _, want := range pr.prints[name] {
			if prog == nil || !want.MatchString(prog.Out.String()) {
				r.err = fmt.Errorf("the %s does not print %q", name, strings.TrimPrefix(want.String(), "(?m)"))
				return r
			}
		}
		if prog == nil {
			continue
		}
		if failed := failed(prog.Out.String()); failed != "" && r.err == nil {
			r.err = fmt.Errorf("%s: %s", name, failed)
		}
	}
	return r
}

// completionFailed matches what goverbs run prints about a completion with an error if
// GOVERBS_RUN_VERBOSE is set.
var completionFailed = regexp.MustCompile(`goverbs run: (WC\(.*status="(.*?)".*)`)

// failed returns the first completion that the RNIC failed, or "". Some programs ignore the status
// of completions. Flushed requests are those that a program left outstanding when a connection
// ended.
func failed(printed string) string {
	for _, found := range completionFailed.FindAllStringSubmatch(printed, -1) {
		if found[2] != verbs.WCWRFlushErr.String() {
			return found[1]
		}
	}
	return ""
}
