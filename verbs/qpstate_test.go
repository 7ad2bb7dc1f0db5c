// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTransitions checks every pair of states against the diagram of ibv_modify_qp(3).
func TestTransitions(t *testing.T) {
	allowed := map[QPState]string{ // the states that may follow
		QPStateReset: "RESET INIT ERR",
		QPStateInit:  "RESET INIT RTR ERR",
		QPStateRTR:   "RESET RTS ERR",
		QPStateRTS:   "RESET RTS SQD ERR",
		QPStateSQD:   "RESET RTS SQD ERR",
		QPStateSQE:   "RESET RTS ERR",
		QPStateErr:   "RESET ERR",
	}
	for from := QPStateReset; from <= QPStateErr; from++ {
		for to := QPStateReset; to <= QPStateErr; to++ {
			err := CheckTransition(from, to)
			if containsWord(allowed[from], to.String()) {
				require.NoError(t, err, "%v to %v", from, to)
				continue
			}
			require.ErrorIs(t, err, ErrState, "%v to %v", from, to)
			require.ErrorContains(t, err, "QP is in state "+from.String())
			require.ErrorContains(t, err, "it cannot go to "+to.String())
		}
	}
	require.ErrorIs(t, CheckTransition(7, QPStateReset), ErrInvalid)
	require.ErrorIs(t, CheckTransition(QPStateReset, 7), ErrInvalid)
}

func containsWord(list, word string) bool { return slices.Contains(strings.Fields(list), word) }

// TestModifyRules: for every service a QP is brought up with what the tables ask for, and each
// attribute is missed when it is not there and refused where it does not belong.
func TestModifyRules(t *testing.T) {
	for change, byType := range qpAttrRules {
		from, to := change[0], change[1]
		for typ, rule := range byType {
			whole := QPAttrState | rule.needs | rule.takes
			require.NoError(t, checkModify(typ, TransportIB, from, to, whole))
			require.NoError(t, checkModify(typ, TransportIB, from, to, QPAttrState|rule.needs))
			for bit := QPAttrMask(1) << 1; bit <= QPAttrDestQPN; bit <<= 1 {
				var err error
				if rule.needs&bit != 0 {
					err = checkModify(typ, TransportIB, from, to, whole&^bit)
					require.ErrorContains(t, err, "lacks "+bit.String())
				} else if rule.takes&bit == 0 {
					err = checkModify(typ, TransportIB, from, to, whole|bit)
					require.ErrorContains(t, err, "does not take "+bit.String())
				} else {
					continue
				}
				require.ErrorIs(t, err, ErrInvalid)
				require.ErrorContains(t, err, typ.String()+" QP from "+from.String()+" to "+to.String())
			}
		}
	}
	for from := QPStateReset; from <= QPStateErr; from++ {
		require.NoError(t, checkModify(QPTypeRC, TransportIB, from, QPStateErr, QPAttrState))
		require.NoError(t, checkModify(QPTypeRC, TransportIB, from, QPStateReset, QPAttrState))
		require.ErrorIs(t, checkModify(QPTypeRC, TransportIB, from, QPStateErr, QPAttrState|QPAttrPort), ErrInvalid)
		require.ErrorIs(t, checkModify(QPTypeRC, TransportIB, from, 7, QPAttrState), ErrInvalid)
	}
	require.ErrorIs(t, checkModify(QPTypeRC, TransportIB, QPStateReset, QPStateRTS, QPAttrState), ErrState)
	require.ErrorIs(t, checkModify(QPTypeRC, TransportIB, QPStateSQE, QPStateRTS, QPAttrState), ErrState,
		"RC has no SQE")
	require.ErrorIs(t, checkModify(QPTypeRC, TransportIB, QPStateRTS, QPStateRTS, 0), ErrInvalid)
}

func TestModifyIWARP(t *testing.T) {
	require.NoError(t, checkModify(QPTypeRC, TransportIWARP, QPStateReset, QPStateInit, QPAttrState|QPAttrAccessFlags))
	require.NoError(t, checkModify(QPTypeRC, TransportIWARP, QPStateRTS, QPStateRTS, QPAttrAccessFlags))
	require.NoError(t, checkModify(QPTypeRC, TransportIWARP, QPStateRTS, QPStateErr, QPAttrState))
	err := checkModify(QPTypeRC, TransportIWARP, QPStateInit, QPStateRTR, QPAttrState)
	require.ErrorIs(t, err, ErrState)
	require.ErrorContains(t, err, "connection manager")
	require.ErrorIs(t, checkModify(QPTypeRC, TransportIWARP, QPStateRTS, QPStateSQD, QPAttrState), ErrNotSupported)
	require.ErrorIs(t, checkModify(QPTypeRC, TransportIWARP, QPStateReset, QPStateInit, QPAttrState|QPAttrAV),
		ErrInvalid)
}

func TestModifyValues(t *testing.T) {
	good := QPAttr{CurState: QPStateRTR, PortNum: 2, AccessFlags: AccessRemoteRead, PathMTU: MTU1024,
		DestQPNum: 1<<24 - 1, Timeout: 31, RetryCnt: 7, RNRRetry: 7, MinRNRTimer: 31, MaxRdAtomic: 255}
	const all = QPAttrCurState | QPAttrPort | QPAttrAccessFlags | QPAttrPathMTU | QPAttrDestQPN | QPAttrRQPSN |
		QPAttrSQPSN | QPAttrTimeout |
		QPAttrMinRNRTimer | QPAttrRetryCnt | QPAttrRNRRetry | QPAttrMaxRdAtomic | QPAttrMaxDestRdAtomic
	require.NoError(t, checkAttrs(&good, all, QPStateRTR, 2))
	for name, spoil := range map[string]func(a *QPAttr){
		"port_num 0":             func(a *QPAttr) { a.PortNum = 0 },
		"max_rd_atomic -1":       func(a *QPAttr) { a.MaxRdAtomic = -1 },
		"max_dest_rd_atomic 256": func(a *QPAttr) { a.MaxDestRdAtomic = 256 },
		"cur_qp_state":           func(a *QPAttr) { a.CurState = QPStateRTS },
		"port_num":               func(a *QPAttr) { a.PortNum = 3 },
		"qp_access_flags":        func(a *QPAttr) { a.AccessFlags = AccessOnDemand },
		"path_mtu":               func(a *QPAttr) { a.PathMTU = 0 },
		"dest_qp_num":            func(a *QPAttr) { a.DestQPNum = 1 << 24 },
		"rq_psn":                 func(a *QPAttr) { a.RQPSN = 1 << 24 },
		"sq_psn":                 func(a *QPAttr) { a.SQPSN = 1 << 24 },
		"timeout":                func(a *QPAttr) { a.Timeout = 32 },
		"min_rnr_timer":          func(a *QPAttr) { a.MinRNRTimer = 32 },
		"retry_cnt":              func(a *QPAttr) { a.RetryCnt = 8 },
		"rnr_retry":              func(a *QPAttr) { a.RNRRetry = 8 },
		"max_rd_atomic":          func(a *QPAttr) { a.MaxRdAtomic = 256 },
		"max_dest_rd_atomic":     func(a *QPAttr) { a.MaxDestRdAtomic = -1 },
	} {
		bad := good
		spoil(&bad)
		err := checkAttrs(&bad, all, QPStateRTR, 2)
		require.ErrorIs(t, err, ErrInvalid)
		require.ErrorContains(t, err, name)
		require.NoError(t, checkAttrs(&bad, 0, QPStateRTR, 2), "what the mask does not select does not count")
	}
}
