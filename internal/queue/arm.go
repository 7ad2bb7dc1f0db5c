// SPDX-License-Identifier: BSD-3-Clause

package queue

// Arm is the notification state of a CQ: which completions generate an event.
type Arm uint8

const (
	Disarmed Arm = iota
	ArmedSolicited
	ArmedAny
)

// With returns the state after another request for notification. A request for any completion stays
// in force after a later one for solicited completions (ibv_req_notify_cq(3)).
func (a Arm) With(solicitedOnly bool) Arm {
	if solicitedOnly {
		return max(a, ArmedSolicited)
	}
	return ArmedAny
}

// Fires reports whether a completion generates an event. Failed completions count as solicited.
func (a Arm) Fires(solicited bool) bool { return a == ArmedAny || a == ArmedSolicited && solicited }
