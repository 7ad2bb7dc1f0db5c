// SPDX-License-Identifier: BSD-3-Clause

package scenario

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/verbs"
)

// Event is a single observation of a program. Fields that do not apply to its kind are empty.
type Event struct {
	End  string `json:"end"`  // "active", "passive", or for a further pair "active2" and so on
	Kind string `json:"kind"` // "call", "sent", "received", "memory", "fact"
	Name string `json:"name,omitempty"`

	Count int    `json:"count,omitempty"` // result of a call in addition to the error
	Error string `json:"error,omitempty"` // name of the sentinel; "" = no error

	ID     uint64 `json:"id,omitempty"` // of a completion: wr_id
	Status string `json:"status,omitempty"`
	Opcode string `json:"opcode,omitempty"`
	Bytes  uint32 `json:"bytes,omitempty"`
	Imm    string `json:"imm,omitempty"` // "" = none

	Data string `json:"data,omitempty"` // memory, private data, facts: up to 64 bytes in hex, otherwise a SHA-256
}

// String returns the event in one line.
func (e Event) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", e.End, e.Kind)
	if e.Name != "" {
		fmt.Fprintf(&b, " %s", e.Name)
	}
	switch e.Kind {
	case "call":
		fmt.Fprintf(&b, " = %d, %s", e.Count, orNone(e.Error))
	case "sent", "received":
		fmt.Fprintf(&b, " %d %s", e.ID, e.Status)
		if e.Opcode != "" {
			fmt.Fprintf(&b, " %s", e.Opcode)
		}
		if e.Opcode != "" && e.Kind == "received" {
			fmt.Fprintf(&b, ", %d bytes, immediate %s", e.Bytes, orNone(e.Imm))
		}
		if e.Error != "" {
			fmt.Fprintf(&b, " %s", e.Error)
		}
	}
	if e.Data != "" {
		fmt.Fprintf(&b, " %s", e.Data)
	}
	return b.String()
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// Trace is what a scenario observed on a fabric, in program order.
type Trace []Event

// Diff describes the first difference between t and u; "" if there is none.
func (t Trace) Diff(u Trace) string {
	for i := range max(len(t), len(u)) {
		if i < len(t) && i < len(u) && t[i] == u[i] {
			continue
		}
		return fmt.Sprintf("event %d is %q and %q", i, t.at(i), u.at(i))
	}
	return ""
}

// late reports whether the program timed out.
func (t Trace) late() bool { return t[len(t)-1].Error == sentinel(context.DeadlineExceeded) }

func (t Trace) at(i int) string {
	if i >= len(t) {
		return "nothing"
	}
	return t[i].String()
}

// sentinels are the errors that programs test for, and their names. The trace contains the first
// match.
var sentinels = []struct {
	name string
	err  error
}{
	{"ErrNotSupported", verbs.ErrNotSupported}, {"ErrQueueFull", verbs.ErrQueueFull}, {"ErrState", verbs.ErrState},
	{"ErrForeign", verbs.ErrForeign}, {"ErrBounds", verbs.ErrBounds}, {"ErrLimit", verbs.ErrLimit},
	{"ErrInvalid", verbs.ErrInvalid},
	{"ErrClosed", verbs.ErrClosed}, {"EOF", io.EOF}, {"DeadlineExceeded", context.DeadlineExceeded},
}

// sentinel returns the name of the sentinel that err matches.
func sentinel(err error) string {
	if err == nil {
		return ""
	}
	var rejected *cm.RejectedError
	if errors.As(err, &rejected) {
		return "RejectedError"
	}
	for _, s := range sentinels {
		if errors.Is(err, s.err) {
			return s.name
		}
	}
	return "another error"
}

// data returns the representation of memory in an event.
func data(b []byte) string {
	if len(b) <= 64 {
		return hex.EncodeToString(b)
	}
	sum := sha256.Sum256(b)
	return fmt.Sprintf("%d bytes, SHA-256 %s", len(b), hex.EncodeToString(sum[:]))
}
