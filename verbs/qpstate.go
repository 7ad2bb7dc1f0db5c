// SPDX-License-Identifier: BSD-3-Clause

package verbs

// The state diagram of a QP (InfiniBand Architecture volume 1, 10.3.1; ibv_modify_qp(3)):
//
//	RESET -> INIT -> RTR -> RTS <-> SQD
//	                         |
//	                        SQE -> RTS
//	any state -> RESET, any state -> ERR; from ERR only -> RESET
//
// On iWARP the connection manager moves a QP from INIT through RTR to RTS, when the stream is up.

// qpTransitions[from] lists the states that may follow; a state may always be "changed" to itself where attributes
// can be set in it.
var qpTransitions = [...][]QPState{
	QPStateReset: {QPStateReset, QPStateInit, QPStateErr},
	QPStateInit:  {QPStateReset, QPStateInit, QPStateRTR, QPStateErr},
	QPStateRTR:   {QPStateReset, QPStateRTS, QPStateErr},
	QPStateRTS:   {QPStateReset, QPStateRTS, QPStateSQD, QPStateErr},
	QPStateSQD:   {QPStateReset, QPStateRTS, QPStateSQD, QPStateErr},
	QPStateSQE:   {QPStateReset, QPStateRTS, QPStateErr},
	QPStateErr:   {QPStateReset, QPStateErr},
}

// CheckTransition returns nil if a QP may go from one state to the other, and otherwise an error that Is [ErrState]
// and says which states may follow.
func CheckTransition(from, to QPState) error {
	if int(from) >= len(qpTransitions) {
		return invalid("%v is not a QP state", from)
	}
	if int(to) >= len(qpTransitions) {
		return invalid("%v is not a QP state", to)
	}
	next := ""
	for _, s := range qpTransitions[from] {
		if s == to {
			return nil
		}
		if next != "" {
			next += ", "
		}
		next += s.String()
	}
	return &StateError{State: from, Why: "it cannot go to " + to.String() + ", only to " + next}
}
