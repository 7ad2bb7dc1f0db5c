// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package programs

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// race is a line of pairs.list, which explains the keywords: a bug of a program itself, after which
// a pair is retried.
type race struct {
	name    string
	retries int // of one pair
	most    int // in 100 pairs
	where   string
	shows   *regexp.Regexp
}

// Where a race can show.
const (
	inEither = "either"
	inDial   = "dial"
)

// fewRetries is how many are allowed in any run, however few its pairs are.
const fewRetries = 3

// parseRace parses what follows the word race.
func parseRace(line string) (*race, error) {
	words := strings.SplitN(line, " ", 5)
	if len(words) < 5 {
		return nil, fmt.Errorf("race %q: not NAME RETRIES MOST WHERE REGEXP", line)
	}
	r := &race{name: words[0], where: words[3]}
	var err error
	if r.retries, err = strconv.Atoi(words[1]); err != nil || r.retries < 1 {
		return nil, fmt.Errorf("race %s: %q is no number of retries", r.name, words[1])
	}
	if r.most, err = strconv.Atoi(words[2]); err != nil || r.most < 1 {
		return nil, fmt.Errorf("race %s: %q is no number of retries in 100 pairs", r.name, words[2])
	}
	if r.where != inEither && r.where != inDial {
		return nil, fmt.Errorf("race %s: %q is neither %s nor %s", r.name, r.where, inEither, inDial)
	}
	if r.shows, err = regexp.Compile("(?m)" + words[4]); err != nil {
		return nil, fmt.Errorf("race %s: %w", r.name, err)
	}
	return r, nil
}

// The messages with which goverbs run reports that a connection could not be made, and that nothing
// was listening. A rejection by a listener of the RNIC has a different text, as does a listener
// that resets a connection.
var (
	notConnected   = regexp.MustCompile(`(?m)^goverbs run: connection: .*`)
	nobodyListened = regexp.MustCompile(`connect: connection refused$`)
)

// lost returns what a pair printed about a race that it lost, or "".
func (r *race) lost(res result) string {
	if r.where == inEither {
		return r.shows.FindString(res.printed())
	}
	if res.client == nil {
		return ""
	}
	out := res.client.Out.String()
	for _, line := range notConnected.FindAllString(out, -1) {
		if !nobodyListened.MatchString(line) {
			return ""
		}
	}
	if byRun := slices.Contains(res.client.Cmd.Args, "run"); byRun && !notConnected.MatchString(out) {
		return "" // the failure was not the connection
	}
	return r.shows.FindString(out)
}

// tally counts the pairs that can lose a race, and how often each was retried.
type tally struct {
	pairs   map[*race]int
	retries map[*race]map[string]int
}

func newTally() *tally { return &tally{make(map[*race]int), make(map[*race]map[string]int)} }

// enter records that a pair runs.
func (c *tally) enter(pr *pair) {
	for _, r := range pr.again {
		c.pairs[r]++
	}
}

// retry records a retry of a pair.
func (c *tally) retry(r *race, pr *pair) {
	if c.retries[r] == nil {
		c.retries[r] = make(map[string]int)
	}
	c.retries[r][pr.name]++
}

// String lists which pairs were retried, and how often.
func (c *tally) String() string {
	var texts []string
	for r, of := range c.retries {
		for name, n := range of {
			texts = append(texts, fmt.Sprintf("%s %d (%s)", name, n, r.name))
		}
	}
	if len(texts) == 0 {
		return "no pair was tried again"
	}
	slices.Sort(texts)
	return "tried again: " + strings.Join(texts, ", ")
}

// err reports a race that was lost more often than its line allows, or nil.
func (c *tally) err() error {
	for r, of := range c.retries {
		n := 0
		for k := range maps.Values(of) {
			n += k
		}
		if most := max(fewRetries, r.most*c.pairs[r]/100); n > most {
			return fmt.Errorf("race %s: %d retries in %d pairs, of at most %d", r.name, n, c.pairs[r], most)
		}
	}
	return nil
}
