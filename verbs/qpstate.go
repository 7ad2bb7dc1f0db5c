// SPDX-License-Identifier: BSD-3-Clause

package verbs

import "fmt"

// The state diagram of a QP (InfiniBand Architecture volume 1, 10.3.1; ibv_modify_qp(3)):
//
//	RESET -> INIT -> RTR -> RTS <-> SQD
//	                         |
//	                        SQE -> RTS
//	any state -> RESET, any state -> ERR; from ERR only -> RESET
//
// On iWARP the connection manager moves a QP from INIT through RTR to RTS when it establishes the
// connection.

// qpTransitions[from] lists the states that may follow. It includes from itself where attributes
// can be set without changing the state.
var qpTransitions = [...][]QPState{
	QPStateReset: {QPStateReset, QPStateInit, QPStateErr},
	QPStateInit:  {QPStateReset, QPStateInit, QPStateRTR, QPStateErr},
	QPStateRTR:   {QPStateReset, QPStateRTS, QPStateErr},
	QPStateRTS:   {QPStateReset, QPStateRTS, QPStateSQD, QPStateErr},
	QPStateSQD:   {QPStateReset, QPStateRTS, QPStateSQD, QPStateErr},
	QPStateSQE:   {QPStateReset, QPStateRTS, QPStateErr},
	QPStateErr:   {QPStateReset, QPStateErr},
}

// CheckTransition returns nil if the state diagram allows the transition. Otherwise the error Is
// [ErrState] and lists the states that may follow.
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

// attrRule lists the required and optional attributes of a transition.
type attrRule struct{ needs, takes QPAttrMask }

// The bits of struct ibv_qp_attr that connection managers set but QPAttr lacks.
const (
	qpAttrAltPath      QPAttrMask = 1 << 14 // IBV_QP_ALT_PATH
	qpAttrPathMigState QPAttrMask = 1 << 18 // IBV_QP_PATH_MIG_STATE
	qpAttrMigration               = qpAttrAltPath | qpAttrPathMigState
)

// qpAttrRules are tables 91 and 92 of InfiniBand Architecture volume 1, 11.2.5.2: the required and
// optional attributes of each transition, per transport service. Transitions to RESET or ERR have
// none.
var qpAttrRules = map[[2]QPState]map[QPType]attrRule{
	{QPStateReset, QPStateInit}: {
		QPTypeRC: {needs: QPAttrPKeyIndex | QPAttrPort | QPAttrAccessFlags},
		QPTypeUC: {needs: QPAttrPKeyIndex | QPAttrPort | QPAttrAccessFlags},
		QPTypeUD: {needs: QPAttrPKeyIndex | QPAttrPort | QPAttrQKey},
	},
	{QPStateInit, QPStateInit}: {
		QPTypeRC: {takes: QPAttrPKeyIndex | QPAttrPort | QPAttrAccessFlags},
		QPTypeUC: {takes: QPAttrPKeyIndex | QPAttrPort | QPAttrAccessFlags},
		QPTypeUD: {takes: QPAttrPKeyIndex | QPAttrPort | QPAttrQKey},
	},
	{QPStateInit, QPStateRTR}: {
		QPTypeRC: {needs: QPAttrAV | QPAttrPathMTU | QPAttrDestQPN | QPAttrRQPSN | QPAttrMaxDestRdAtomic |
			QPAttrMinRNRTimer, takes: QPAttrAccessFlags | QPAttrPKeyIndex | qpAttrAltPath},
		QPTypeUC: {needs: QPAttrAV | QPAttrPathMTU | QPAttrDestQPN | QPAttrRQPSN,
			takes: QPAttrAccessFlags | QPAttrPKeyIndex | qpAttrAltPath},
		QPTypeUD: {takes: QPAttrPKeyIndex | QPAttrQKey},
	},
	{QPStateRTR, QPStateRTS}: {
		QPTypeRC: {needs: QPAttrTimeout | QPAttrRetryCnt | QPAttrRNRRetry | QPAttrSQPSN | QPAttrMaxRdAtomic,
			takes: QPAttrCurState | QPAttrAccessFlags | QPAttrMinRNRTimer | qpAttrMigration},
		QPTypeUC: {needs: QPAttrSQPSN, takes: QPAttrCurState | QPAttrAccessFlags | qpAttrMigration},
		QPTypeUD: {needs: QPAttrSQPSN, takes: QPAttrCurState | QPAttrQKey},
	},
	{QPStateRTS, QPStateRTS}: runningRules,
	{QPStateSQD, QPStateRTS}: runningRules,
	{QPStateSQE, QPStateRTS}: {
		QPTypeUC: {takes: QPAttrCurState | QPAttrAccessFlags},
		QPTypeUD: {takes: QPAttrCurState | QPAttrQKey},
	},
	{QPStateRTS, QPStateSQD}: {
		QPTypeRC: {takes: QPAttrSQDAsyncNotify},
		QPTypeUC: {takes: QPAttrSQDAsyncNotify},
		QPTypeUD: {takes: QPAttrSQDAsyncNotify},
	},
	{QPStateSQD, QPStateSQD}: {
		QPTypeRC: {takes: QPAttrPort | QPAttrAV | QPAttrTimeout | QPAttrRetryCnt | QPAttrRNRRetry | QPAttrMaxRdAtomic |
			QPAttrMaxDestRdAtomic |
			QPAttrAccessFlags | QPAttrPKeyIndex | QPAttrMinRNRTimer | qpAttrMigration},
		QPTypeUC: {takes: QPAttrAV | QPAttrAccessFlags | QPAttrPKeyIndex | qpAttrMigration},
		QPTypeUD: {takes: QPAttrPKeyIndex | QPAttrQKey},
	},
}

var runningRules = map[QPType]attrRule{
	QPTypeRC: {takes: QPAttrCurState | QPAttrAccessFlags | QPAttrMinRNRTimer | qpAttrMigration},
	QPTypeUC: {takes: QPAttrCurState | QPAttrAccessFlags | qpAttrMigration},
	QPTypeUD: {takes: QPAttrCurState | QPAttrQKey},
}

// iwarpAttrs are the attributes of an iWARP QP in RESET and INIT. Connection managers set them all.
const iwarpAttrs = QPAttrPKeyIndex | QPAttrPort | QPAttrAccessFlags

// checkModify returns a readable reason where a device would only return EINVAL, as far as that
// depends on the states and on which attributes are set. If mask does not change the state, to
// equals from.
func checkModify(typ QPType, transport Transport, from, to QPState, mask QPAttrMask) error {
	if mask == 0 {
		return invalid("nothing is to be changed")
	}
	if to > QPStateErr {
		return invalid("%v is not a QP state", to)
	}
	if err := CheckTransition(from, to); err != nil {
		return err
	}
	if transport == TransportIWARP && to != from {
		switch to {
		case QPStateRTR, QPStateRTS:
			return &StateError{State: from,
				Why: fmt.Sprintf("on iWARP the connection manager moves it from INIT to RTS, Modify cannot move it to %v", to)}
		case QPStateSQD:
			return fmt.Errorf("%w: iWARP QPs have no state %v", ErrNotSupported, to)
		}
	}
	rule := attrRule{}
	switch {
	case to == QPStateReset || to == QPStateErr:
	case transport == TransportIWARP:
		rule.takes = iwarpAttrs
		if from == QPStateRTS {
			rule.takes = QPAttrAccessFlags
		}
	default:
		var ok bool
		if rule, ok = qpAttrRules[[2]QPState{from, to}][typ]; !ok {
			return &StateError{State: from, Why: fmt.Sprintf("no %v QP goes to %v", typ, to)}
		}
	}
	change := fmt.Sprintf("the change of the %v QP from %v to %v", typ, from, to)
	if missing := rule.needs &^ mask; missing != 0 {
		return invalid("%s lacks %v", change, missing)
	}
	if extra := mask &^ (rule.needs | rule.takes | QPAttrState); extra != 0 {
		return invalid("%s does not take %v", change, extra)
	}
	return nil
}

// CheckModify checks a Modify for providers, by the rules of an InfiniBand device with this number
// of ports: the states, which attributes are set, and their ranges. The error Is [ErrState] or
// [ErrInvalid], and says what is wrong.
func CheckModify(typ QPType, from QPState, attr *QPAttr, mask QPAttrMask, ports int) error {
	to := from
	if mask&QPAttrState != 0 {
		to = attr.State
	}
	if err := checkModify(typ, TransportIB, from, to, mask); err != nil {
		return err
	}
	return checkAttrs(attr, mask, from, ports)
}

// accessNoQP are the flags that apply to memory but not to QPs. Flags without a name here are
// allowed, because the connection manager of a newer kernel may set them.
const accessNoQP = accessKnown &^ (AccessLocalWrite | accessRemote | AccessMWBind)

// checkAttrs checks the values that mask selects, as far as they do not depend on the device,
// except for its number of ports.
func checkAttrs(a *QPAttr, mask QPAttrMask, from QPState, ports int) error {
	for _, c := range []struct {
		bit  QPAttrMask
		bad  bool
		name string
		v    any
	}{
		{QPAttrCurState, a.CurState != from, "cur_qp_state", a.CurState},
		{QPAttrPort, a.PortNum < 1 || int(a.PortNum) > ports, "port_num", a.PortNum},
		{QPAttrAccessFlags, a.AccessFlags&accessNoQP != 0, "qp_access_flags", a.AccessFlags},
		{QPAttrPathMTU, a.PathMTU == 0, "path_mtu", a.PathMTU},
		{QPAttrDestQPN, a.DestQPNum >= 1<<24, "dest_qp_num", a.DestQPNum},
		{QPAttrRQPSN, a.RQPSN >= 1<<24, "rq_psn", a.RQPSN},
		{QPAttrSQPSN, a.SQPSN >= 1<<24, "sq_psn", a.SQPSN},
		{QPAttrTimeout, a.Timeout > 31, "timeout", a.Timeout},
		{QPAttrMinRNRTimer, a.MinRNRTimer > 31, "min_rnr_timer", a.MinRNRTimer},
		{QPAttrRetryCnt, a.RetryCnt > 7, "retry_cnt", a.RetryCnt},
		{QPAttrRNRRetry, a.RNRRetry > 7, "rnr_retry", a.RNRRetry},
		{QPAttrMaxRdAtomic, a.MaxRdAtomic < 0 || a.MaxRdAtomic > 255, "max_rd_atomic", a.MaxRdAtomic},
		{QPAttrMaxDestRdAtomic, a.MaxDestRdAtomic < 0 || a.MaxDestRdAtomic > 255, "max_dest_rd_atomic",
			a.MaxDestRdAtomic},
	} {
		if mask&c.bit != 0 && c.bad {
			return invalid("%s %v", c.name, c.v)
		}
	}
	return nil
}
