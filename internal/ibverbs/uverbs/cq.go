// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package uverbs

// CQConfig configures a completion queue.
type CQConfig struct {
	Cookie  uint64 // identifies the CQ in events
	CQE     uint32 // entries
	Vector  uint32 // completion vector
	Channel int32  // file descriptor of the completion channel, -1 = none
}

type createCQ struct { // struct ib_uverbs_create_cq
	answered
	cookie   uint64
	cqe      uint32
	vector   uint32
	channel  int32
	reserved uint32
}

type createdCQ[D any] struct { // struct ib_uverbs_create_cq_resp
	handle, cqe uint32
	driver      D
}

// CreateCQ creates a CQ and returns its handle and its actual number of entries. D is the driver's
// part of the response.
func CreateCQ[D any](fd int, cfg CQConfig) (handle, cqe uint32, driver D, err error) {
	c := createCQ{cookie: cfg.Cookie, cqe: cfg.CQE, vector: cfg.Vector, channel: cfg.Channel}
	resp := new(createdCQ[D])
	err = ask(fd, cmdCreateCQ, &c, &c.answered, resp)
	return resp.handle, resp.cqe, resp.driver, err
}

type destroy struct { // struct ib_uverbs_destroy_cq, _qp, _srq
	answered
	handle, reserved uint32
}

// DestroyCQ destroys a CQ. Unread events are discarded.
func DestroyCQ(fd int, handle uint32) error {
	c := destroy{handle: handle}
	return ask(fd, cmdDestroyCQ, &c, &c.answered, new([2]uint32))
}
