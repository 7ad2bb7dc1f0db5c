// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package uverbs

// SRQAttr is struct ibv_srq_attr.
type SRQAttr struct {
	MaxWR, MaxSGE, Limit uint32
}

// SRQConfig configures a shared receive queue.
type SRQConfig struct {
	Cookie uint64 // identifies the SRQ in events
	PD     uint32 // handle
	Attr   SRQAttr
}

type createSRQ struct { // struct ib_uverbs_create_srq
	answered
	cookie uint64
	pd     uint32
	attr   SRQAttr
}

type createdSRQ[D any] struct { // struct ib_uverbs_create_srq_resp
	handle, maxWR, maxSGE, num uint32
	driver                     D
}

// CreateSRQ creates an SRQ and returns its handle and its actual attributes. D is the driver's part
// of the response.
func CreateSRQ[D any](fd int, cfg SRQConfig) (handle uint32, has SRQAttr, driver D, err error) {
	c := createSRQ{cookie: cfg.Cookie, pd: cfg.PD, attr: cfg.Attr}
	resp := new(createdSRQ[D])
	err = ask(fd, cmdCreateSRQ, &c, &c.answered, resp)
	return resp.handle, SRQAttr{MaxWR: resp.maxWR, MaxSGE: resp.maxSGE}, resp.driver, err
}

type modifySRQ struct { // struct ib_uverbs_modify_srq
	header
	handle, mask uint32
	maxWR, limit uint32
}

// ModifySRQ changes the attributes selected by mask (enum ibv_srq_attr_mask).
func ModifySRQ(fd int, handle uint32, attr SRQAttr, mask uint32) error {
	c := modifySRQ{handle: handle, mask: mask, maxWR: attr.MaxWR, limit: attr.Limit}
	return tell(fd, cmdModifySRQ, &c, &c.header)
}

type querySRQ struct { // struct ib_uverbs_query_srq
	answered
	handle, reserved uint32
}

type queriedSRQ struct { // struct ib_uverbs_query_srq_resp
	SRQAttr
	reserved uint32
}

// QuerySRQ returns the attributes of an SRQ.
func QuerySRQ(fd int, handle uint32) (SRQAttr, error) {
	c := querySRQ{handle: handle}
	r := new(queriedSRQ)
	err := ask(fd, cmdQuerySRQ, &c, &c.answered, r)
	return r.SRQAttr, err
}

// DestroySRQ destroys an SRQ.
func DestroySRQ(fd int, handle uint32) error {
	c := destroy{handle: handle}
	return ask(fd, cmdDestroySRQ, &c, &c.answered, new(uint32))
}
