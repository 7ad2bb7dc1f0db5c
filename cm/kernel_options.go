// SPDX-License-Identifier: BSD-3-Clause

package cm

import "fmt"

// setOptions applies the options of a Config to an ID, before the ID has an address.
func (e *endpoint) setOptions(cfg *Config, afOnly bool) error {
	if cfg.TOS != 0 {
		if err := e.call(func(id rawID) error { return id.setTOS(cfg.TOS) }); err != nil {
			return e.callError(fmt.Sprintf("rdma_set_option TOS %d", cfg.TOS), err)
		}
	}
	if err := e.setAckTimeout(cfg.AckTimeout); err != nil {
		return err
	}
	if cfg.ReuseAddr {
		if err := e.call(rawID.setReuseAddr); err != nil {
			return e.callError("rdma_set_option REUSEADDR", err)
		}
	}
	if afOnly {
		if err := e.call(rawID.setAFOnly); err != nil {
			return e.callError("rdma_set_option AFONLY", err)
		}
	}
	return nil
}

// setAckTimeout sets the ACK timeout, unless code is 0. IDs of requests need it too, because they
// do not inherit the timeout from their listener.
func (e *endpoint) setAckTimeout(code uint8) error {
	if code == 0 {
		return nil
	}
	err := e.call(func(id rawID) error { return id.setAckTimeout(code) })
	return e.callError(fmt.Sprintf("rdma_set_option ACK_TIMEOUT %d", code), err)
}
