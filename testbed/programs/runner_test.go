// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package programs

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// stanza parses one pair.
func stanza(t *testing.T, lines ...string) *pair {
	t.Helper()
	pairs, err := parse(strings.NewReader(strings.Join(lines, "\n")))
	require.NoError(t, err)
	require.Len(t, pairs, 1)
	return pairs[0]
}

// TestParse checks a stanza with every word.
func TestParse(t *testing.T) {
	p := stanza(t, "# comment", "", "race lost 2 50 either  is lost", "race refused 7 200 dial ^no$",
		"pair name quick host", "\tserver a -p {port}", "\tclient b {addr}", "\tenv X=y z", "\tport 7", "\tlimit 3s",
		"\tstops", "\tprints server ^x y$", "\tagain lost refused", "\tfails siw-usiw no  idea")
	require.Equal(t, "name", p.name)
	require.True(t, p.quick && p.host && p.stops)
	require.Equal(t, []string{"a", "-p", "{port}"}, p.server)
	require.Equal(t, []string{"b", "{addr}"}, p.client)
	require.Equal(t, []string{"X=y z"}, p.env)
	require.Equal(t, 7, p.port)
	require.Equal(t, 3*time.Second, p.limit)
	require.True(t, p.prints["server"][0].MatchString("w\nx y\nz"))
	require.False(t, p.prints["server"][0].MatchString("w x y"))
	require.Len(t, p.again, 2)
	require.Equal(t, []any{"lost", 2, 50, inEither},
		[]any{p.again[0].name, p.again[0].retries, p.again[0].most, p.again[0].where})
	require.Equal(t, []any{"refused", 7, 200, inDial},
		[]any{p.again[1].name, p.again[1].retries, p.again[1].most, p.again[1].where})
	require.True(t, p.again[0].shows.MatchString("all  is lost"))
	require.False(t, p.again[1].shows.MatchString("or no"))
	require.Equal(t, map[string]string{"siw-usiw": "no  idea"}, p.fails)
	require.Equal(t, defaultLimit, stanza(t, "pair other").limit)
}

// TestParseErrors: each error names the line and the mistake in it.
func TestParseErrors(t *testing.T) {
	for text, want := range map[string]string{
		"server x":                               "line 1: \"server\" above the first pair",
		"pair":                                   "line 1: a pair without a name",
		"pair a fast":                            "line 1: pair a: \"fast\" is neither quick nor host",
		"pair a\npair a":                         "line 2: a second pair \"a\"",
		"pair a\nclient":                         "line 2: pair a: client: without a value",
		"pair a\nclient x\nclient y":             "line 3: pair a: client: a second one",
		"pair a\nserver x\nserver y":             "line 3: pair a: server: a second one",
		"pair a\nport x":                         "line 2: pair a: port: strconv.Atoi: parsing \"x\"",
		"pair a\nlimit 3":                        "line 2: pair a: limit: time: missing unit",
		"pair a\nprints both x":                  "line 2: pair a: prints: \"both\" is neither server nor client",
		"pair a\nprints client (":                "line 2: pair a: prints: error parsing regexp",
		"pair a\nagain lost":                     "line 2: pair a: again: no race \"lost\" above it",
		"race lost 3 50 either":                  "line 1: race \"lost 3 50 either\": not NAME RETRIES MOST WHERE REGEXP",
		"race lost 0 50 either x":                "line 1: race lost: \"0\" is no number of retries",
		"race lost 3 all either x":               "line 1: race lost: \"all\" is no number of retries in 100 pairs",
		"race lost 3 50 server x":                "line 1: race lost: \"server\" is neither either nor dial",
		"race lost 3 50 dial (":                  "line 1: race lost: error parsing regexp",
		"race a 3 50 dial x\nrace a 3 50 dial y": "line 2: a second race \"a\"",
		"pair a\nfails rxe-rxe why":              "line 2: pair a: fails: \"rxe-rxe\" is none of",
		"pair a\nfails siw-siw":                  "line 2: pair a: fails: no reason why siw-siw fails",
		"pair a\nexpects x":                      "line 2: pair a: expects: no such word",
		"pair a\nserver x\n\n# y\npair b now":    "line 5: pair b: \"now\"",
	} {
		_, err := parse(strings.NewReader(text))
		require.ErrorContains(t, err, want, text)
	}
}

// TestList: pairs.list is valid, each pair has a client, a server has either {port} or a fixed
// port, and there are few quick pairs.
func TestList(t *testing.T) {
	f, err := os.Open("pairs.list")
	require.NoError(t, err)
	defer f.Close()
	pairs, err := parse(f)
	require.NoError(t, err)
	var quick int
	for _, p := range pairs {
		require.NotEmpty(t, p.client, p.name)
		if p.server != nil {
			require.Equal(t, p.port == 0, strings.Contains(strings.Join(p.server, " "), "{port}"), p.name)
		}
		if p.quick {
			quick++
		}
	}
	require.InDelta(t, 15, quick, 3)
	require.True(t, slices.ContainsFunc(pairs, (*pair).outside))
	require.False(t, pairs[0].outside())
	require.Greater(t, len(pairs), 40)
}

// TestVerdict: a pair that the list expects to fail must fail, and every other pair must pass.
func TestVerdict(t *testing.T) {
	p := stanza(t, "pair a", "fails siw-usiw it is known")
	broken := errors.New("broken")
	require.NoError(t, p.verdict(userUser, nil))
	require.ErrorIs(t, p.verdict(userUser, broken), broken)
	require.NoError(t, p.verdict(kernelUser, broken))
	require.EqualError(t, p.verdict(kernelUser, nil), "a passes, but the list says that it fails: it is known")
}

// TestOnce runs shell scripts instead of programs, each of which ends differently.
func TestOnce(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0") // the server listens, as far as the runner can see
	require.NoError(t, err)
	defer ln.Close()
	_, port, err := net.SplitHostPort(ln.Addr().String())
	require.NoError(t, err)
	for _, c := range []struct {
		name           string
		server, client string
		line           string // of the stanza
		want           string // "" = it passes
	}{
		{"good", "true", "true", "", ""},
		{"client fails", "true", "exit 3", "", "client: exit status 3"},
		{"server fails", "exit 4", "true", "", "server: exit status 4"},
		{"client hangs", "true", "exec sleep 60", "limit 300ms", "client: has not ended"},
		{"server hangs", "exec sleep 60", "true", "limit 4s", "server: has not ended"},
		{"server stops", "exec sleep 60", "true", "stops", ""},
		{"server crashes when told", "trap 'kill -SEGV $$' TERM; touch $F; sleep 60 & wait",
			"until [ -e $F ]; do sleep 0.01; done", "stops",
			"server: signal: segmentation fault"},
		{"client is killed", "true", "kill -TERM $$", "stops", "client: signal: terminated"},
		{"prints", "echo yes", "true", "prints server ^yes$", ""},
		{"does not print", "echo yes no", "true", "prints server ^yes$", "the server does not print \"^yes$\""},
		{"flushed", `echo 'goverbs run: WC(wr_id=0 status="Work Request Flushed Error" qp_num=3)'`, "true", "", ""},
		{"completion fails", "true", `echo 'goverbs run: WC(wr_id=0 status="local protection error" qp_num=3)' >&2`, "",
			`client: WC(wr_id=0 status="local protection error" qp_num=3)`},
		{"variable", "true", "test $X = {addr}6", "env X=here6", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			pr := stanza(t, "pair a", c.line, "port "+port)
			pr.server, pr.client = []string{c.server}, []string{c.client}
			pr.env = append(pr.env, "F="+filepath.Join(t.TempDir(), "ready"))
			shell := side{prefix: []string{"sh", "-c"}}
			p := place{server: shell, client: shell, addr: "here"}
			r := p.once(t, pr)
			if c.want == "" {
				require.NoError(t, r.err, "%v", r)
			} else {
				require.ErrorContains(t, r.err, c.want)
			}
			require.True(t, r.server.HasEnded() && r.client.HasEnded())
		})
	}
}

// TestServerEndsEarly: a server that exits instead of listening is an error immediately.
func TestServerEndsEarly(t *testing.T) {
	shell := side{prefix: []string{"sh", "-c"}}
	p := place{server: shell, client: shell}
	r := p.once(t, &pair{server: []string{"echo no; exit 5"}, client: []string{"true"}, limit: defaultLimit})
	require.ErrorContains(t, r.err, "server: exit status 5 before it listens")
	require.Nil(t, r.client)
	require.Contains(t, r.String(), "no\n")
}

// TestTries: a pair is retried only if it fails and shows a race that it can lose, as often as the
// race allows, and the last result counts. A client of goverbs run has lost a connection race only
// if nothing was listening.
func TestTries(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0") // the server listens, as far as the runner can see
	require.NoError(t, err)
	defer ln.Close()
	const nobody = "goverbs run: connection: cm: Connect 127.0.0.1:1: dial tcp 127.0.0.1:1: connect: connection refused"
	tell := func(goverbs string) string { return "echo x >>$F; echo '" + goverbs + "'; echo refused; exit 1" }
	for name, c := range map[string]struct {
		script, server, again string // no server = there is only a client
		byRun                 bool   // the client runs under goverbs run
		tries                 int
		passes                bool
	}{
		"once": {"echo x >>$F; [ $(wc -l <$F) -gt 1 ] || { echo refused; exit 1; }", "",
			"refused 3 50 either ^refused$", false, 2, true},
		"again and again": {"echo x >>$F; echo refused; exit 1", "", "refused 3 50 either ^refused$", false, 4,
			false},
		"fewer retries": {"echo x >>$F; echo refused; exit 1", "", "refused 1 50 either ^refused$", false, 2,
			false},
		"something else": {"echo x >>$F; echo broken; exit 1", "", "refused 3 50 either ^refused$", false, 1,
			false},
		"passes":  {"echo x >>$F; echo refused", "", "refused 3 50 either ^refused$", false, 1, true},
		"no race": {"echo x >>$F; echo refused; exit 1", "", "", false, 1, false},
		"server": {"echo x >>$F", "echo refused; exit 1", "refused 3 50 either ^refused$", false, 4,
			false},
		"server, something else": {"echo x >>$F", "echo broken; exit 1", "refused 3 50 either ^refused$", false, 1,
			false},
		"server, of a dial": {"echo x >>$F", "echo refused; exit 1", "refused 3 50 dial ^refused$", false, 1,
			false},
		"dial":           {tell(""), "", "refused 2 50 dial ^refused$", false, 3, false},
		"by goverbs run": {tell(nobody), "", "refused 2 50 dial ^refused$", true, 3, false},
		"no connection was tried": {tell("goverbs run: rdma_listen: no"), "", "refused 2 50 dial ^refused$", true, 1,
			false},
		"a refusal of ours": {tell(
			"goverbs run: connection: cm: Connect 127.0.0.1:1: connection rejected by the peer: backlog full"), "",
			"refused 2 50 dial ^refused$", true, 1, false},
		"a refusal of the program": {tell(
			"goverbs run: connection: cm: Connect 127.0.0.1:1: connection rejected by the peer (0 bytes of private data)"), "", "refused 2 50 dial ^refused$", true, 1, false}, "reset": {tell(
			"goverbs run: connection: cm: Connect 127.0.0.1:1: read: connection reset by peer"), "",
			"refused 2 50 dial ^refused$", true, 1, false},
		"both": {tell(nobody + "\ngoverbs run: connection: cm: Connect 127.0.0.1:1: EOF"), "",
			"refused 2 50 dial ^refused$", true, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			shell := side{prefix: []string{"sh", "-c"}}
			p := place{server: shell, client: shell, tally: newTally()}
			file := filepath.Join(t.TempDir(), "tries")
			pr := &pair{name: "a", client: []string{c.script}, env: []string{"F=" + file}, limit: defaultLimit}
			if c.byRun {
				pr.client = append(pr.client, "run") // as an argument that the script ignores
			}
			if c.server != "" {
				pr.server, pr.port = []string{c.server}, ln.Addr().(*net.TCPAddr).Port
			}
			if c.again != "" {
				r, err := parseRace(c.again)
				require.NoError(t, err)
				pr.again = []*race{r}
			}
			r := p.tries(t, pr)
			require.Equal(t, c.passes, r.err == nil, "%v", r.err)
			b, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, c.tries, strings.Count(string(b), "\n"), c.script)
			if c.tries > 1 {
				require.Equal(t, map[string]int{"a": c.tries - 1}, p.tally.retries[pr.again[0]])
			} else {
				require.Empty(t, p.tally.retries)
			}
		})
	}
}

// TestTally: the retries of all pairs are printed and limited.
func TestTally(t *testing.T) {
	pairs, err := parse(strings.NewReader(
		"race often 7 200 dial x\nrace rare 3 50 dial x\npair a\nagain often\npair b\nagain often rare\n" +
			"pair c\nagain rare\npair d"))
	require.NoError(t, err)
	often, rare := pairs[1].again[0], pairs[1].again[1]
	c := newTally()
	require.Equal(t, "no pair was tried again", c.String())
	for _, pr := range pairs {
		c.enter(pr)
	}
	for range 3 {
		c.retry(rare, pairs[2])
	}
	c.retry(often, pairs[0])
	for range 3 {
		c.retry(often, pairs[1])
	}
	require.Equal(t, "tried again: a 1 (often), b 3 (often), c 3 (rare)", c.String())
	require.NoError(t, c.err())
	c.retry(often, pairs[1])
	require.EqualError(t, c.err(), "race often: 5 retries in 2 pairs, of at most 4")
	c = newTally()
	c.enter(pairs[1])
	for range 4 {
		c.retry(rare, pairs[1])
	}
	require.EqualError(t, c.err(), "race rare: 4 retries in 1 pairs, of at most 3")
}
