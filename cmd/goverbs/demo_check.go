// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"bytes"
	"errors"
	"fmt"
)

// check compares what a step found with what it must find. It remembers the first difference and lets the step go on, so
// that the two sides stay in step. With broken set what must be found is corrupted first: then everything must differ.
type check struct {
	broken bool
	err    error
}

func (c *check) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
}

// word compares two words.
func (c *check) word(what string, got, want uint64) {
	if c.broken {
		want ^= 1
	}
	if got != want {
		c.fail("%s is %#x, not %#x", what, got, want)
	}
}

// count compares two numbers that count something.
func (c *check) count(what string, got, want uint64) {
	if c.broken {
		want++
	}
	if got != want {
		c.fail("%s is %d, not %d", what, got, want)
	}
}

// bytes compares octets and names the first that differs.
func (c *check) bytes(what string, got, want []byte) {
	if c.broken {
		want = bytes.Clone(want)
		if len(want) > 0 {
			want[len(want)/2] ^= 1
		} else {
			want = []byte{0}
		}
	}
	if bytes.Equal(got, want) {
		return
	}
	if len(got) != len(want) {
		c.fail("%s has %d octets, not %d", what, len(got), len(want))
		return
	}
	for i := range got {
		if got[i] != want[i] {
			c.fail("%s: octet %d is %#02x, not %#02x", what, i, got[i], want[i])
			return
		}
	}
}

// is compares two values of any other kind.
func is[T comparable](c *check, what string, got, want T) {
	if c.broken {
		c.fail("%s is %v, which --break does not let pass", what, got)
	} else if got != want {
		c.fail("%s is %v, not %v", what, got, want)
	}
}

// noError takes an error as a difference.
func (c *check) noError(what string, err error) {
	if err != nil {
		c.fail("%s: %w", what, err)
	}
}

// peer takes what the other side found.
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

// tell puts what was found into a message.
func (c *check) tell(m *control) {
	m.OK = c.err == nil
	if c.err != nil {
		m.Error = c.err.Error()
	}
}
