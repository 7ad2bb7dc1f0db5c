// SPDX-License-Identifier: BSD-3-Clause

package demo

import (
	"strings"

	"github.com/goverbs/goverbs/cmd/goverbs/internal/devices"
	"github.com/goverbs/goverbs/verbs"
)

// lack tells what a step cannot do on a connection. Both sides find the same, since each knows the operations of both
// devices.
type lack struct {
	skipped string // why there is nothing left of the step
	without string // why it does less
	// fault: it is a lack of the user-space RNIC, which has every operation.
	fault bool
}

// lack compares a step with the two devices. It may be called on nil for a step that needs nothing.
func (e *endpoint) lack(s *step) (l lack) {
	if s.needs|s.uses == 0 {
		return l
	}
	if l.skipped = e.missing(s.needs); l.skipped == "" {
		l.without = e.missing(s.uses)
	}
	l.fault = devices.UserSpace(e.ctx.Device()) && !has(e.ctx.Ops(), s.needs|s.uses)
	return l
}

// missing says which of ops one of the devices has not, "" if both have all.
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

// outcome puts what came of a step into its result and shows it.
func (r *runResult) outcome(s *step, l lack, c *check, out *console, remark string) {
	if l.fault {
		c.fail("%s", l.skipped+l.without)
	}
	e := r.step(s.name)
	e.reached, e.Skipped, e.Without = true, l.skipped, l.without
	if l.skipped != "" {
		is(c, "a step that was skipped", l.skipped, l.skipped) // which --break does not let pass
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
