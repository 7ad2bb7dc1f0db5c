// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package fakeverbs

// SGE is a scatter/gather element as it was posted.
type SGE struct {
	Addr         uint64
	Length, LKey uint32
}

// WR is a work request as it arrived in a posting function. Fields that its opcode does not use are
// zero.
type WR struct {
	Call       uint64 // which call of a posting function, since Reset
	QPN, SRQ   uint32 // SRQ: which one since the process began
	Recv       bool
	WRID       uint64
	Opcode     uint32 // ibv_wr_opcode
	Flags      uint32 // ibv_send_flags
	NumSGE     int
	SGEs       []SGE  // at most 32 are kept
	Inline     []byte // the data of an inline request, at most 512 bytes
	Imm        uint32 // host order; only with immediate
	RemoteAddr uint64
	RKey       uint32

	InvalidateRKey   uint32 // the same field of the request as Imm, as it is
	CompareAdd, Swap uint64

	AH, RemoteQPN, RemoteQKey uint32 // UD; AH: which one since the process began

	MW, BindRKey, BindLKey, BindAccess uint32 // MW: which one since the process began
	BindAddr, BindLength               uint64
}

// Posted returns all requests posted since Reset, the last 8192 at most.
func Posted() []WR {
	all, _ := cPosted(0)
	return all
}

// LastPosted returns the requests of the last call that posted any.
func LastPosted() []WR {
	all := Posted()
	i := len(all)
	for i > 0 && all[i-1].Call == all[len(all)-1].Call {
		i--
	}
	return all[i:]
}

// AutoComplete makes send requests complete successfully when they are posted.
func AutoComplete(on bool) { cSetAuto(on) }

// Loopback makes requests be executed between QPs of the process, at once and in order: data is
// moved, receives are consumed, keys, rights and bounds are checked, windows bound. QPs reach each
// other by the number in ibv_modify_qp, on fake1 by the connection manager. It is for requests
// posted from now on, until Reset.
func Loopback(on bool) { cSetLoop(on) }

// CompleteSend completes the n oldest send requests of a QP with a status (ibv_wc_status) and
// returns how many there were. A successful one without a signal gives no completion. It returns -1
// if there is no such QP.
func CompleteSend(qpn uint32, n int, status uint32) int { return cComplete(qpn, false, n, status, 0) }

// CompleteRecv completes the n oldest receive requests of a QP or of its SRQ, each with so many
// bytes.
func CompleteRecv(qpn uint32, n int, status, bytes uint32) int {
	return cComplete(qpn, true, n, status, bytes)
}

// LateFlush has QPs that go into the error state keep their requests, and those that are posted
// then, until Flush.
func LateFlush(on bool) { cSetLate(on) }

// Flush flushes the requests of a QP and returns how many there were, -1 if there is no such QP.
func Flush(qpn uint32) int { return cFlush(qpn) }

// WC is a completion. Status, Opcode and Flags are ibv_wc_status, ibv_wc_opcode and ibv_wc_flags.
// Imm is in host order; InvalidatedRKey, if not 0, takes its place.
type WC struct {
	WRID                               uint64
	Status, Opcode, VendorErr, ByteLen uint32
	Imm, InvalidatedRKey, SrcQP, Flags uint32
	PKeyIndex, SLID, SL, PathBits      uint32
	Solicited                          bool // wakes a CQ armed for solicited completions
}

// InjectWC adds a completion as it is to a QP's send or receive CQ and reports whether there is
// that QP. What waits on the QP stays.
func InjectWC(qpn uint32, recv bool, wc WC) bool {
	if recv {
		return cInjectWC(qpn, 1, wc)
	}
	return cInjectWC(qpn, 0, wc)
}

// Receive completes the oldest receive request of a QP or of its SRQ with wc, whose WRID is the
// request's, and reports whether there was one.
func Receive(qpn uint32, wc WC) bool { return cInjectWC(qpn, 2, wc) }

// AHAttr is a struct ibv_ah_attr.
type AHAttr struct {
	DGID                              [16]byte
	FlowLabel                         uint32
	SGIDIndex, HopLimit, TrafficClass uint8
	DLID                              uint16
	SL, SrcPathBits, StaticRate       uint8
	IsGlobal                          bool
	Port                              uint8
}

// QP is what is known of a QP: how it was created, and the sum of all ibv_modify_qp.
type QP struct {
	Type                                                    uint32
	SigAll                                                  bool
	MaxSendWR, MaxRecvWR, MaxSendSGE, MaxRecvSGE, MaxInline uint32
	Modifies                                                int    // how often it was modified
	Mask                                                    uint32 // what was ever set
	State, Access                                           uint32
	PKeyIndex                                               uint16
	Port                                                    uint8
	QKey, PathMTU, DestQPN, RQPSN, SQPSN                    uint32
	MaxRdAtomic, MaxDestRdAtomic, MinRNRTimer, Timeout      uint8
	RetryCnt, RNRRetry                                      uint8
	AH                                                      AHAttr
}

// QPs returns the numbers of all QPs that are alive, oldest first.
func QPs() []uint32 { return cQPs() }

// QPByNum returns what is known of a QP that is alive.
func QPByNum(qpn uint32) (QP, bool) { return cQP(qpn) }

// MoveQP moves a QP to a state (ibv_qp_state) behind the program's back, as a device does after an
// error, and reports whether there is that QP. In ERR it is flushed.
func MoveQP(qpn uint32, state int) bool { return cMoveQP(qpn, state) }

// SetDepths gives a QP the depths that a connection has agreed on, of Reads in progress as
// requester and as responder, and reports whether there is that QP.
func SetDepths(qpn uint32, ord, ird int) bool { return cSetDepths(qpn, ord, ird) }

// AHByID returns the attributes of an address handle that is alive, by the number that a WR's AH
// gives.
func AHByID(id uint32) (AHAttr, bool) { return cAH(id) }

// MR is a region as it was registered. FD is -1 for ordinary memory.
type MR struct {
	Addr, Length, IOVA, Offset uint64
	Access, RKey, PD           uint32
	FD                         int
}

// MRByKey returns the region that has an lkey.
func MRByKey(lkey uint32) (MR, bool) { return cMR(lkey) }
