// SPDX-License-Identifier: BSD-3-Clause

package verbs

import "sync/atomic"

// A device that wraps another one and passes most requests and completions through unchanged can
// let the handles bypass it. A layer then costs almost nothing: each request is checked once, in
// the outermost handle, and there is one lock and one count of the calls in progress. Both
// interfaces are optional. Objects that implement them follow these rules:
//
//   - The inner object has the capacities and attributes that the outer one reports; it may have
//     fewer operations.
//   - The outer provider closes the inner object only in its own closing call. The outer handle's
//     count of calls in progress therefore covers both.
//   - shut disables the bypass. Handles and providers read it on every call, without a lock. The
//     outer provider sets it before an operation that later requests must not overtake, and clears
//     it once the state is the same as if nothing had been held back.

// ProviderQPBypass is a ProviderQP that requests can bypass.
type ProviderQPBypass interface {
	ProviderQP
	// Bypass returns the inner QP and the flag that disables the bypass. While shut is false, the
	// handle posts a send list directly to the inner QP if the inner device has all its operations
	// and it names no objects. A call that read shut as false can still post after shut is set; it
	// is concurrent with the call that set it, so their order is undefined. Receives always bypass,
	// whatever shut is.
	Bypass() (inner *QP, shut *atomic.Bool)
}

// ProviderCQBypass is a ProviderCQ that polling can bypass.
type ProviderCQBypass interface {
	ProviderCQ
	// Bypass returns the inner CQ and the flag that disables the bypass. While shut is false,
	// CQ.Poll polls the inner CQ directly; CQ.Wait always calls Poll of the outer CQ. polling
	// counts the calls of CQ.Poll in progress that read shut as false or are about to read it. A
	// provider that sets shut and then finds polling 0 therefore polls after every completion that
	// bypassed it.
	Bypass() (inner *CQ, shut *atomic.Bool, polling *atomic.Int32)
	// Sift is called with the completions of a poll that read shut as false before and as true
	// after. It removes those that are not the program's, changes those that need it, and returns
	// the number left at the start of wcs. Destroy may be in progress.
	Sift(wcs []WC) int
}

// bypassPoster is the directPoster that bypasses the provider of a QP.
type bypassPoster struct {
	inner *QP
	shut  *atomic.Bool
	pass  [wrOpcodeCount]bool // by opcode
}

// newBypassPoster returns nil if q's provider has no bypass.
func newBypassPoster(q *QP) *bypassPoster {
	p, ok := q.p.(ProviderQPBypass)
	if !ok {
		return nil
	}
	b := new(bypassPoster)
	b.inner, b.shut = p.Bypass()
	for opcode, op := range opOf {
		b.pass[opcode] = op != opCount && op != OpBindMW && q.typ != QPTypeUD && q.ops.Has(op) && b.inner.ops.Has(op)
	}
	return b
}

func (b *bypassPoster) canPostDirect() bool { return true }

func (b *bypassPoster) postSendDirect(q *QP, wrs []SendWR) (int, error) {
	if b.shut.Load() || !b.passes(wrs) {
		return q.checkAndPost(q.p, wrs)
	}
	if d := b.inner.direct; d != nil {
		return d.postSendDirect(q, wrs)
	}
	return q.checkAndPost(b.inner.p, wrs)
}

func (b *bypassPoster) passes(wrs []SendWR) bool {
	for i := range wrs {
		if op := int(wrs[i].Opcode); op >= len(b.pass) || !b.pass[op] {
			return false
		}
	}
	return true
}

func (b *bypassPoster) postRecvDirect(q *QP, wrs []RecvWR) (int, error) {
	if d := b.inner.direct; d != nil {
		return d.postRecvDirect(q, wrs)
	}
	return q.checkAndPostRecv(b.inner.p, wrs)
}

// bypassPoller is the directPoller that bypasses the provider of a CQ.
type bypassPoller struct {
	p       ProviderCQBypass
	inner   *CQ
	shut    *atomic.Bool
	polling *atomic.Int32
}

// newBypassPoller returns nil if cq's provider has no bypass.
func newBypassPoller(cq *CQ) *bypassPoller {
	p, ok := cq.p.(ProviderCQBypass)
	if !ok {
		return nil
	}
	b := &bypassPoller{p: p}
	b.inner, b.shut, b.polling = p.Bypass()
	return b
}

func (b *bypassPoller) canPollDirect() bool { return true }

func (b *bypassPoller) pollDirect(wcs []WC) (n int, ok bool, err error) {
	b.polling.Add(1)
	if b.shut.Load() {
		b.polling.Add(-1)
		return 0, false, nil
	}
	if d := b.inner.direct; d != nil {
		n, ok, err = d.pollDirect(wcs)
	} else {
		n, err = b.inner.Poll(wcs) // Close of the outer CQ waits in Close of the inner CQ
		ok = true
	}
	if n > 0 && b.shut.Load() {
		n = b.p.Sift(wcs[:n])
	}
	b.polling.Add(-1)
	return n, ok, err
}
