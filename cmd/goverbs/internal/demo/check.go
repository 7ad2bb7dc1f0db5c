// SPDX-License-Identifier: BSD-3-Clause

package demo

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// check compares the results of a step with what is expected. It records the first difference and
// lets the step continue, so that both sides stay in sync. Values whose comparison is named in
// broken are corrupted first, and the comparison must then report a difference.
type check struct {
	broken []string // "" means all
	err    error
}

// newCheck returns the check of a step.
func newCheck(step string, breaks []string) *check {
	c := new(check)
	for _, b := range breaks {
		if s, name, _ := strings.Cut(b, ":"); s == step {
			c.broken = append(c.broken, name)
		}
	}
	return c
}

// breaks reports whether to corrupt the value of a comparison, in whose name N replaces every
// number.
func (c *check) breaks(what string) bool {
	return c.broken != nil &&
		(slices.Contains(c.broken, "") || slices.Contains(c.broken, numbers.ReplaceAllString(what, "N")))
}

var numbers = regexp.MustCompile("[0-9]+")

func (c *check) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
}

// word compares two words.
func (c *check) word(what string, got, want uint64) {
	if c.breaks(what) {
		got ^= 1
	}
	if got != want {
		c.fail("%s is %#x, not %#x", what, got, want)
	}
}

// count compares two counts.
func (c *check) count(what string, got, want uint64) {
	if c.breaks(what) {
		got++
	}
	if got != want {
		c.fail("%s is %d, not %d", what, got, want)
	}
}

// bytes compares bytes and reports the first that differs.
func (c *check) bytes(what string, got, want []byte) {
	if c.breaks(what) {
		if len(got) == 0 {
			got = []byte{0}
		}
		// In place, so that a comparison of a buffer with itself still finds no difference.
		got[len(got)/2] ^= 1
		defer func() { got[len(got)/2] ^= 1 }()
	}
	if bytes.Equal(got, want) {
		return
	}
	if len(got) != len(want) {
		c.fail("%s has %d bytes, not %d", what, len(got), len(want))
		return
	}
	for i := range got {
		if got[i] != want[i] {
			c.fail("%s: byte %d is %#02x, not %#02x", what, i, got[i], want[i])
			return
		}
	}
}

// is compares two values of any other kind.
func is[T comparable](c *check, what string, got, want T) {
	if c.breaks(what) {
		c.fail("%s is %v, which --break does not let pass", what, got)
	} else if got != want {
		c.fail("%s is %v, not %v", what, got, want)
	}
}

// noError treats an error as a difference.
func (c *check) noError(what string, err error) {
	if c.breaks(what) {
		err = errors.New("an error of --break")
	}
	if err != nil {
		c.fail("%s: %w", what, err)
	}
}

// peer records a failure that the other side reports.
func (c *check) peer(who string, m *control) {
	if m.OK {
		return
	}
	err := errors.New(m.Error)
	if m.Error == "" {
		err = errors.New("failed")
	}
	c.fail("%s: %w", who, err)
}

// tell puts this side's result into a message.
func (c *check) tell(m *control) {
	m.OK = c.err == nil
	if c.err != nil {
		m.Error = c.err.Error()
	}
}
