// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

import "errors"

// inlineSearch bounds what is tried. Drivers have up to about 1,000 bytes.
const inlineSearch = 1024

// maxInline finds out how many bytes of inline data a QP can have, which no attribute tells, by making QPs, once for
// each device. A device on which no QP can be made has none. known is what it is to be by the driver, 0 = not known.
func (d *kernelDevice) maxInline(c rawContext, known int) (most int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.probed {
		return d.inline, nil
	}
	pd, rc := c.allocPD()
	if rc != 0 {
		return 0, callError("ibv_alloc_pd", rc)
	}
	defer func() { err = errors.Join(err, callError("ibv_dealloc_pd", pd.dealloc())) }()
	cq, _, rc := c.createCQ(1, 0, 0, 0)
	if rc != 0 {
		return 0, callError("ibv_create_cq", rc)
	}
	defer func() { err = errors.Join(err, callError("ibv_destroy_cq", cq.destroy())) }()
	// try returns what a QP has that was asked for n bytes, -1 if there is none.
	try := func(n int) int {
		qp, has, _, rc := pd.createQP(rawQPConfig{sendCQ: cq, recvCQ: cq, typ: QPTypeRC,
			cap: QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: n}})
		if rc != 0 {
			return -1
		}
		qp.destroy()
		return has.MaxInlineData
	}
	if known > 0 && try(known) >= 0 {
		most = known
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
