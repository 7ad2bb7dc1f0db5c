// SPDX-License-Identifier: BSD-3-Clause

package demo

import (
	"strings"

	"github.com/goverbs/goverbs/cmd/goverbs/internal/devices"
	"github.com/goverbs/goverbs/verbs"
)

// lack is what a step cannot do on a connection. Both sides reach the same result, because each
// knows the operations of both devices.
type lack struct {
	skipped string // why the step is skipped
	without string // why the step does less
	// fault is set if the user-space RNIC lacks something, because it should have every operation.
	fault bool
}

// lack compares the needs of a step with both devices. It may be called on nil for a step without
// needs.
func (e *endpoint) lack(s *step) (l lack) {
	if s.needs|s.uses == 0 {
		return l
	}
	if l.skipped = e.missing(s.needs); l.skipped == "" {
		l.without = e.missing(s.uses)
	}
	l.fault = devices.Complete(e.ctx.Device()) && !has(e.ctx.Ops(), s.needs|s.uses)
	return l
}

// missing returns which of ops either device lacks, or "" if both have all.
func (e *endpoint) missing(ops verbs.OpSet) string {
	whose, none := "device", ops&^e.ctx.Ops()
	if none == 0 {
		whose, none = "the other half's device", ops&^e.peerOps
	}
	if none == 0 {
		return ""
	}
	return whose + " has no " + strings.ReplaceAll(none.String(), ",", ", ")
}

// has reports whether both devices have all of ops.
func (e *endpoint) has(ops verbs.OpSet) bool { return has(e.ctx.Ops()&e.peerOps, ops) }

func has(set, ops verbs.OpSet) bool { return ops&^set == 0 }

// outcome stores the outcome of a step in its result and shows it.
func (r *runResult) outcome(s *step, l lack, c *check, out *console, remark string) {
	if l.fault {
		c.fail("%s", l.skipped+l.without)
	}
	e := r.step(s.name)
	e.reached, e.Skipped, e.Without = true, l.skipped, l.without
	if l.skipped != "" {
		is(c, "a step that was skipped", l.skipped, l.skipped) // fails under --break
		e.OK = c.err == nil
		out.skip(s.name, e.OK, l.skipped)
		return
	}
	e.OK = c.err == nil
	if l.without != "" {
		remark = strings.TrimPrefix(remark+"; "+l.without, "; ")
	}
	e.Ops = out.end(e.OK, remark)
}
