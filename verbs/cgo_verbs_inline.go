// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

// #include "cgo_verbs.h"
import "C"

import "errors"

// inlineSearch bounds what is tried. Drivers have up to about 1,000 octets.
const inlineSearch = 1024

// maxInline finds out how many octets of inline data a QP can have, which no attribute tells, by making QPs, once for
// each device. A device on which no QP can be made has none.
func (d *cgoDevice) maxInline(c *cgoContext) (most int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.probed {
		return d.inline, nil
	}
	var pd *C.struct_ibv_pd
	var cq *C.struct_ibv_cq
	if err := callError("ibv_alloc_pd", C.gv_alloc_pd(c.c, &pd)); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, callError("ibv_dealloc_pd", C.gv_result(C.ibv_dealloc_pd(pd)))) }()
	if err := callError("ibv_create_cq", C.gv_create_cq(c.c, 1, 0, nil, &cq)); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, callError("ibv_destroy_cq", C.gv_result(C.ibv_destroy_cq(cq)))) }()
	// try returns what a QP has that was asked for n octets, -1 if there is none.
	try := func(n int) int {
		caps := C.struct_ibv_qp_cap{max_send_wr: 1, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1, max_inline_data: C.uint32_t(n)}
		var qp *C.struct_ibv_qp
		if C.gv_create_qp(pd, 0, cq, cq, nil, C.int(QPTypeRC), 0, &caps, &qp) != 0 {
			return -1
		}
		C.ibv_destroy_qp(qp)
		return int(caps.max_inline_data)
	}
	if n := c.model.inline; n > 0 && try(n) >= 0 {
		most = n
	} else if n := try(0); n >= 0 {
		// Between what works and what does not.
		most = n
		for bad := max(inlineSearch, n) + 1; bad-most > 1; {
			middle := (most + bad) / 2
			if n := try(middle); n >= 0 {
				most = max(middle, min(n, bad-1))
			} else {
				bad = middle
			}
		}
	}
	d.probed, d.inline = true, most
	return most, nil
}
