// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package programs

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The kinds of pairs: the RNIC of the server and that of the client.
const (
	userUser     = "usiw-usiw"
	userKernel   = "usiw-siw"
	kernelUser   = "siw-usiw"
	kernelKernel = "siw-siw"
)

var kinds = []string{userUser, userKernel, kernelUser, kernelKernel}

// pair is a stanza of pairs.list, which explains the keywords.
type pair struct {
	name   string
	quick  bool
	host   bool
	server []string // nil = the pair has no server
	client []string
	env    []string
	port   int // 0 = any free one
	limit  time.Duration
	stops  bool
	again  []*race
	prints map[string][]*regexp.Regexp // what the server or the client prints on success
	fails  map[string]string           // the reason for each kind
}

// outside reports whether the pair needs an interface that is not loopback.
func (pr *pair) outside() bool { return slices.Contains(pr.client, "{netaddr}") }

// defaultLimit is the time limit of a pair whose stanza has none. It is sufficient on a slow, busy
// machine.
const defaultLimit = 60 * time.Second

// parse reads a list of pairs.
func parse(r io.Reader) ([]*pair, error) {
	var pairs []*pair
	races := make(map[string]*race)
	number := 0
	for scanner := bufio.NewScanner(r); ; {
		if !scanner.Scan() {
			return pairs, scanner.Err()
		}
		number++
		line := scanner.Text()
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		rest = strings.TrimSpace(rest)
		var err error
		switch {
		case word == "" || strings.HasPrefix(word, "#"):
			continue
		case word == "pair":
			if slices.ContainsFunc(pairs, func(p *pair) bool { return p.name == first(rest) }) {
				err = fmt.Errorf("a second pair %q", first(rest))
				break
			}
			var p *pair
			if p, err = begin(rest); err == nil {
				pairs = append(pairs, p)
			}
		case word == "race":
			var r *race
			if r, err = parseRace(rest); err == nil {
				if races[r.name] != nil {
					err = fmt.Errorf("a second race %q", r.name)
				}
				races[r.name] = r
			}
		case len(pairs) == 0:
			err = fmt.Errorf("%q above the first pair", word)
		default:
			err = pairs[len(pairs)-1].add(word, rest, races)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
	}
}

// first returns the first word of a line.
func first(line string) string {
	word, _, _ := strings.Cut(line, " ")
	return word
}

// begin parses the first line of a pair.
func begin(line string) (*pair, error) {
	words := strings.Fields(line)
	if len(words) == 0 {
		return nil, fmt.Errorf("a pair without a name")
	}
	p := &pair{name: words[0], limit: defaultLimit, prints: make(map[string][]*regexp.Regexp),
		fails: make(map[string]string)}
	for _, word := range words[1:] {
		switch word {
		case "quick":
			p.quick = true
		case "host":
			p.host = true
		default:
			return nil, fmt.Errorf("pair %s: %q is neither quick nor host", p.name, word)
		}
	}
	return p, nil
}

// add parses a further line of a pair.
func (p *pair) add(word, rest string, races map[string]*race) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("pair %s: %s: %w", p.name, word, err)
		}
	}()
	switch word {
	case "server", "client", "env", "port", "limit", "again", "prints", "fails":
		if rest == "" {
			return fmt.Errorf("without a value")
		}
	}
	switch word {
	case "server":
		if p.server != nil {
			return fmt.Errorf("a second one")
		}
		p.server = strings.Fields(rest)
	case "client":
		if p.client != nil {
			return fmt.Errorf("a second one")
		}
		p.client = strings.Fields(rest)
	case "env":
		p.env = append(p.env, rest)
	case "port":
		p.port, err = strconv.Atoi(rest)
	case "limit":
		p.limit, err = time.ParseDuration(rest)
	case "stops":
		p.stops = true
	case "again":
		for name := range strings.FieldsSeq(rest) {
			if races[name] == nil {
				return fmt.Errorf("no race %q above it", name)
			}
			p.again = append(p.again, races[name])
		}
	case "prints":
		side, text, _ := strings.Cut(rest, " ")
		if side != "server" && side != "client" {
			return fmt.Errorf("%q is neither server nor client", side)
		}
		var want *regexp.Regexp
		want, err = regexp.Compile("(?m)" + text)
		p.prints[side] = append(p.prints[side], want)
	case "fails":
		kind, reason, _ := strings.Cut(rest, " ")
		if !slices.Contains(kinds, kind) {
			return fmt.Errorf("%q is none of %v", kind, kinds)
		}
		if reason == "" {
			return fmt.Errorf("no reason why %s fails", kind)
		}
		p.fails[kind] = reason
	default:
		return fmt.Errorf("no such word")
	}
	return err
}
