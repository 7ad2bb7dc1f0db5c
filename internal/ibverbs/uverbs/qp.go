// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package uverbs

// QPCap holds the queue sizes of a QP (struct ibv_qp_cap).
type QPCap struct {
	MaxSendWR, MaxRecvWR, MaxSendSGE, MaxRecvSGE, MaxInlineData uint32
}

// QPConfig configures a queue pair. PD, CQs and SRQ are handles.
type QPConfig struct {
	Cookie         uint64 // identifies the QP in events
	PD             uint32
	SendCQ, RecvCQ uint32
	SRQ            uint32
	HasSRQ         bool
	Type           uint8 // enum ib_uverbs_qp_type, as enum ibv_qp_type
	Cap            QPCap
}

type createQP struct { // struct ib_uverbs_create_qp
	answered
	cookie                  uint64
	pd, sendCQ, recvCQ, srq uint32
	cap                     QPCap
	sigAll, typ, isSRQ      uint8
	reserved                uint8
}

type createQPOf[A any] struct {
	createQP
	driver A
}

type createdQP[D any] struct { // struct ib_uverbs_create_qp_resp
	handle, num uint32
	cap         QPCap
	reserved    uint32
	driver      D
}

// CreateQP creates a QP and returns its handle, its number and its actual sizes. A is the driver's
// part of the command, whose size must be a multiple of 8 bytes. D is the driver's part of the
// response.
func CreateQP[D, A any](fd int, cfg QPConfig, asked A) (handle, num uint32, has QPCap, driver D, err error) {
	c := createQPOf[A]{driver: asked,
		createQP: createQP{cookie: cfg.Cookie, pd: cfg.PD, sendCQ: cfg.SendCQ, recvCQ: cfg.RecvCQ, srq: cfg.SRQ,
			cap: cfg.Cap, typ: cfg.Type}}
	if cfg.HasSRQ {
		c.isSRQ = 1
	}
	resp := new(createdQP[D])
	err = ask(fd, cmdCreateQP, &c, &c.answered, resp)
	return resp.handle, resp.num, resp.cap, resp.driver, err
}

// DestroyQP destroys a QP.
func DestroyQP(fd int, handle uint32) error {
	c := destroy{handle: handle}
	return ask(fd, cmdDestroyQP, &c, &c.answered, new(uint32))
}

// path is struct ib_uverbs_qp_dest, which iWARP does not use.
type path struct {
	_ [32]byte
}

// QPAttr holds the attributes of an iWARP QP, numbered as in libibverbs.
type QPAttr struct {
	State, CurState              uint8
	AccessFlags                  uint32
	Port                         uint8
	MaxRdAtomic, MaxDestRdAtomic uint8
	Cap                          QPCap // set by queries only
}

type modifyQP struct { // struct ib_uverbs_modify_qp
	header
	dest, altDest                path
	handle, mask                 uint32
	qkey, rqPSN, sqPSN, destNum  uint32
	access                       uint32
	pkey, altPKey                uint16
	state, curState              uint8
	mtu, migration, notify       uint8
	maxRdAtomic, maxDestRdAtomic uint8
	minRNRTimer, port, timeout   uint8
	retries, rnrRetries          uint8
	altPort, altTimeout          uint8
	reserved                     [2]uint8
}

// ModifyQP changes the attributes selected by mask (enum ibv_qp_attr_mask).
func ModifyQP(fd int, handle uint32, attr QPAttr, mask uint32) error {
	c := modifyQP{handle: handle, mask: mask, access: attr.AccessFlags, state: attr.State, curState: attr.CurState,
		maxRdAtomic: attr.MaxRdAtomic, maxDestRdAtomic: attr.MaxDestRdAtomic, port: attr.Port}
	return tell(fd, cmdModifyQP, &c, &c.header)
}

type queryQP struct { // struct ib_uverbs_query_qp
	answered
	handle, mask uint32
}

type queriedQP struct { // struct ib_uverbs_query_qp_resp
	dest, altDest                path
	cap                          QPCap
	qkey, rqPSN, sqPSN, destNum  uint32
	access                       uint32
	pkey, altPKey                uint16
	state, curState              uint8
	mtu, migration, draining     uint8
	maxRdAtomic, maxDestRdAtomic uint8
	minRNRTimer, port, timeout   uint8
	retries, rnrRetries          uint8
	altPort, altTimeout, sigAll  uint8
	reserved                     [5]uint8
}

// QueryQP returns the attributes selected by mask.
func QueryQP(fd int, handle, mask uint32) (QPAttr, error) {
	c := queryQP{handle: handle, mask: mask}
	r := new(queriedQP)
	err := ask(fd, cmdQueryQP, &c, &c.answered, r)
	return QPAttr{State: r.state, CurState: r.curState, AccessFlags: r.access, Port: r.port, MaxRdAtomic: r.maxRdAtomic,
		MaxDestRdAtomic: r.maxDestRdAtomic, Cap: r.cap}, err
}
