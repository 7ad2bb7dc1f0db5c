// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package fakeverbs

// SGE is a scatter/gather element as posted.
type SGE struct {
	Addr         uint64
	Length, LKey uint32
}

// WR is a work request as passed to a posting function. Fields that its opcode does not use are
// zero.
type WR struct {
	Call       uint64 // number of the posting call, counted since Reset
	QPN, SRQ   uint32 // SRQ: its number since the process started
	Recv       bool
	WRID       uint64
	Opcode     uint32 // ibv_wr_opcode
	Flags      uint32 // ibv_send_flags
	NumSGE     int
	SGEs       []SGE  // at most 32 are recorded
	Inline     []byte // data of an inline request, at most 512 bytes
	Imm        uint32 // host byte order; only with immediate
	RemoteAddr uint64
	RKey       uint32

	InvalidateRKey   uint32 // shares its field in the request with Imm; not byte-swapped
	CompareAdd, Swap uint64

	AH, RemoteQPN, RemoteQKey uint32 // UD; AH: its number since the process started

	MW, BindRKey, BindLKey, BindAccess uint32 // MW: its number since the process started
	BindAddr, BindLength               uint64
}

// Posted returns all requests posted since Reset, at most the last 8192.
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

// AutoComplete makes send requests complete successfully as soon as they are posted.
func AutoComplete(on bool) { cSetAuto(on) }

// Loopback makes requests execute between QPs of the process, immediately and in order: data are
// moved, receives consumed, keys, rights and bounds checked, windows bound. QPs are connected by
// the number in ibv_modify_qp, on fake1 by the connection manager. It affects requests posted from
// now on, until Reset.
func Loopback(on bool) { cSetLoop(on) }

// CompleteSend completes the n oldest send requests of a QP with a status (ibv_wc_status) and
// returns how many there were. A successful unsignaled request generates no completion. It returns
// -1 if there is no such QP.
func CompleteSend(qpn uint32, n int, status uint32) int { return cComplete(qpn, false, n, status, 0) }

// CompleteRecv completes the n oldest receive requests of a QP or of its SRQ, each with the given
// number of bytes.
func CompleteRecv(qpn uint32, n int, status, bytes uint32) int {
	return cComplete(qpn, true, n, status, bytes)
}

// LateFlush makes QPs that enter the error state keep their requests, including those posted
// afterwards, until Flush.
func LateFlush(on bool) { cSetLate(on) }

// Flush flushes the requests of a QP and returns how many there were, or -1 if there is no such QP.
func Flush(qpn uint32) int { return cFlush(qpn) }

// WC is a completion. Status, Opcode and Flags are ibv_wc_status, ibv_wc_opcode and ibv_wc_flags.
// Imm is in host byte order; a non-zero InvalidatedRKey replaces it.
type WC struct {
	WRID                               uint64
	Status, Opcode, VendorErr, ByteLen uint32
	Imm, InvalidatedRKey, SrcQP, Flags uint32
	PKeyIndex, SLID, SL, PathBits      uint32
	Solicited                          bool // wakes a CQ armed for solicited completions
}

// InjectWC adds an arbitrary completion to a QP's send or receive CQ and reports whether the QP
// exists. Requests waiting on the QP remain.
func InjectWC(qpn uint32, recv bool, wc WC) bool {
	if recv {
		return cInjectWC(qpn, 1, wc)
	}
	return cInjectWC(qpn, 0, wc)
}

// Receive completes the oldest receive request of a QP or of its SRQ with wc and the request's own
// WRID, and reports whether there was one.
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

// QP is the state of a QP: how it was created, and the combined attributes of all calls of
// ibv_modify_qp.
type QP struct {
	Type                                                    uint32
	SigAll                                                  bool
	MaxSendWR, MaxRecvWR, MaxSendSGE, MaxRecvSGE, MaxInline uint32
	Modifies                                                int    // number of calls of ibv_modify_qp
	Mask                                                    uint32 // every bit that was ever set
	State, Access                                           uint32
	PKeyIndex                                               uint16
	Port                                                    uint8
	QKey, PathMTU, DestQPN, RQPSN, SQPSN                    uint32
	MaxRdAtomic, MaxDestRdAtomic, MinRNRTimer, Timeout      uint8
	RetryCnt, RNRRetry                                      uint8
	AH                                                      AHAttr
}

// QPs returns the numbers of all live QPs, oldest first.
func QPs() []uint32 { return cQPs() }

// QPByNum returns the state of a live QP.
func QPByNum(qpn uint32) (QP, bool) { return cQP(qpn) }

// MoveQP moves a QP to a state (ibv_qp_state) without the program's knowledge, as a device does
// after an error, and reports whether the QP exists. In ERR it is flushed.
func MoveQP(qpn uint32, state int) bool { return cMoveQP(qpn, state) }

// SetDepths sets the negotiated depths of a QP, for Reads in progress as requester and as
// responder, and reports whether the QP exists.
func SetDepths(qpn uint32, ord, ird int) bool { return cSetDepths(qpn, ord, ird) }

// AHByID returns the attributes of a live address handle, by the number in a WR's AH.
func AHByID(id uint32) (AHAttr, bool) { return cAH(id) }

// MR is a region as registered. FD is -1 for ordinary memory.
type MR struct {
	Addr, Length, IOVA, Offset uint64
	Access, RKey, PD           uint32
	FD                         int
}

// MRByKey returns the region with an lkey.
func MRByKey(lkey uint32) (MR, bool) { return cMR(lkey) }
