// SPDX-License-Identifier: BSD-3-Clause

package queue

// Arm says which completions make a CQ send an event.
type Arm uint8

const (
	Disarmed Arm = iota
	ArmedSolicited
	ArmedAny
)

// With returns what the CQ is armed for after one more request for an event. A request for any
// completion stays in force after a later one for solicited ones (ibv_req_notify_cq(3)).
func (a Arm) With(solicitedOnly bool) Arm {
	if solicitedOnly {
		return max(a, ArmedSolicited)
	}
	return ArmedAny
}

// Fires reports whether a completion makes an event. Completions with an error count as solicited.
func (a Arm) Fires(solicited bool) bool { return a == ArmedAny || a == ArmedSolicited && solicited }
