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

// Event is one thing that a program has seen. Fields that do not belong to its kind are empty.
type Event struct {
	End  string `json:"end"`  // whose: "active", "passive", or of a further pair "active2" and so on
	Kind string `json:"kind"` // "call", "sent", "received", "memory", "fact"
	Name string `json:"name,omitempty"`

	Count int    `json:"count,omitempty"` // what a call has returned besides the error
	Error string `json:"error,omitempty"` // the sentinel, "" = none

	ID     uint64 `json:"id,omitempty"` // of completions: wr_id
	Status string `json:"status,omitempty"`
	Opcode string `json:"opcode,omitempty"`
	Bytes  uint32 `json:"bytes,omitempty"`
	Imm    string `json:"imm,omitempty"` // "" = none

	Data string `json:"data,omitempty"` // memory, private data, facts: up to 64 bytes in hex, more as their SHA-256
}

// String has the event in a line.
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

// Trace is what a scenario has seen on a fabric, in the order of the program.
type Trace []Event

// Diff says where t and u differ first, "" if they do not.
func (t Trace) Diff(u Trace) string {
	for i := range max(len(t), len(u)) {
		if i < len(t) && i < len(u) && t[i] == u[i] {
			continue
		}
		return fmt.Sprintf("event %d is %q and %q", i, t.at(i), u.at(i))
	}
	return ""
}

// late reports whether the program has waited in vain.
func (t Trace) late() bool { return t[len(t)-1].Error == sentinel(context.DeadlineExceeded) }

func (t Trace) at(i int) string {
	if i >= len(t) {
		return "nothing"
	}
	return t[i].String()
}

// sentinels are the errors that programs ask for, by their names. The first one that matches is in
// the trace.
var sentinels = []struct {
	name string
	err  error
}{
	{"ErrNotSupported", verbs.ErrNotSupported}, {"ErrQueueFull", verbs.ErrQueueFull}, {"ErrState", verbs.ErrState},
	{"ErrForeign", verbs.ErrForeign}, {"ErrBounds", verbs.ErrBounds}, {"ErrLimit", verbs.ErrLimit},
	{"ErrInvalid", verbs.ErrInvalid},
	{"ErrClosed", verbs.ErrClosed}, {"EOF", io.EOF}, {"DeadlineExceeded", context.DeadlineExceeded},
}

// sentinel names what an error is.
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

// data is memory as it stands in an event.
func data(b []byte) string {
	if len(b) <= 64 {
		return hex.EncodeToString(b)
	}
	sum := sha256.Sum256(b)
	return fmt.Sprintf("%d bytes, SHA-256 %s", len(b), hex.EncodeToString(sum[:]))
}
