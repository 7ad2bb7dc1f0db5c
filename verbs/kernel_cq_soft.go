// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

import (
	"math"

	"github.com/goverbs/goverbs/internal/ibverbs"
)

// batch is how many completions are taken from the device at a time.
const batch = 64

// digest notes what the errors among completions say, takes out the marks of a drain and returns
// how many remain.
func (cq *kernelCQ) digest(wcs []WC) int {
	n := 0
	for i := range wcs {
		if wc := &wcs[i]; wc.Status != WCSuccess {
			if q := cq.qps.find(wc.QPNum); q != nil && q.refused(wc) {
				continue
			}
		}
		if n != i {
			wcs[n] = wcs[i]
		}
		n++
	}
	return n
}

// pollSoft is Poll through soft.
func (cq *kernelCQ) pollSoft(wcs []WC) (int, error) {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	err := cq.fetch(len(wcs))
	n := cq.soft.take(wcs)
	if cq.drains == 0 && cq.soft.len() == 0 {
		cq.slow.Store(false)
	}
	return n, cq.softError(n, err)
}

// softError is the error of a poll that took n completions from soft, which fetch had filled with
// the result err.
func (cq *kernelCQ) softError(n int, err error) error {
	switch {
	case n > 0:
		return nil
	case err == nil && cq.lost.Load():
		return ErrCQOverflow
	}
	return err
}

// fetch takes completions from the device until soft holds want of them or the device has no more.
func (cq *kernelCQ) fetch(want int) error {
	return cq.fetchTo(want, func(wcs []WC) { cq.soft.put(wcs[:cq.digest(wcs)]...) })
}

// fetchTo takes completions from the device and has them put into soft, until that holds want of
// them or the device has no more.
func (cq *kernelCQ) fetchTo(want int, put func([]WC)) error {
	if cq.gone {
		return nil
	}
	if cq.buf == nil {
		cq.buf = make([]WC, batch)
	}
	for cq.soft.len() < want {
		ask := min(want-cq.soft.len(), batch)
		n := cq.c.Poll(flatWCs(cq.buf[:ask]), nil)
		if n < 0 {
			return callError("ibv_poll_cq", ibverbs.NoErrno)
		}
		got := n &^ ibverbs.PollErrors
		put(cq.buf[:got])
		if got < ask {
			break
		}
	}
	return nil
}

// fetchAll takes all completions that the device has.
func (cq *kernelCQ) fetchAll() {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	_ = cq.fetch(math.MaxInt) // a CQ that cannot be polled has nothing
}
