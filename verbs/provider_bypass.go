// SPDX-License-Identifier: BSD-3-Clause

package verbs

import "sync/atomic"

// A device that wraps another one and passes most requests and completions on unchanged can let the
// handles go past it. Then a layer costs next to nothing: each request is checked once, in the
// handle on top, and there is one lock and one account of the calls in progress. Both interfaces
// are optional. An object that has them keeps to these rules:
//
//   - The inner object has the capacities and the attributes that the outer one has told; its
//     operations may be fewer.
//   - The outer provider closes the inner object in its own closing call only. So the account of
//     the outer handle covers both.
//   - shut is what both providers and handles look at on every call, without a lock. The outer
//     provider sets it before it does something that must not be passed, and clears it when
//     everything is as it would be if nothing had been stopped.

// ProviderQPBypass is a ProviderQP past which requests can be posted.
type ProviderQPBypass interface {
	ProviderQP
	// Bypass returns the inner QP, and what stops the handle from using it. While shut is false,
	// the handle does not call PostRecv, nor PostSend for lists all of whose operations the inner
	// device has and that name no objects: it posts them to the inner QP. A call that has seen shut
	// false can still post after shut is set; it is concurrent with the one that has set it, so
	// that the order of the two is not defined. PostRecv goes past whatever shut is.
	Bypass() (inner *QP, shut *atomic.Bool)
}

// ProviderCQBypass is a ProviderCQ past which completions can be polled.
type ProviderCQBypass interface {
	ProviderCQ
	// Bypass returns the inner CQ, and what stops the handle from polling it. While shut is false,
	// CQ.Poll does not call Poll; CQ.Wait always does. polling counts the calls of CQ.Poll that
	// have seen shut false, or are about to look, and have not returned. So a provider that has set
	// shut and finds polling 0 takes completions after all that went past it.
	Bypass() (inner *CQ, shut *atomic.Bool, polling *atomic.Int32)
	// Sift is called with completions that a call has polled which saw shut false before, and true
	// after that. It takes out those that are not the program's, changes those that need it, and
	// returns how many are left, from wcs[0] on. Destroy may be in progress.
	Sift(wcs []WC) int
}

// bypassPoster posts past the provider of a QP (directPoster).
type bypassPoster struct {
	inner *QP
	shut  *atomic.Bool
	pass  [wrOpcodeCount]bool // by opcode
}

// newBypassPoster returns nil if q's provider lets nothing past.
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

// bypassPoller polls past the provider of a CQ (directPoller).
type bypassPoller struct {
	p       ProviderCQBypass
	inner   *CQ
	shut    *atomic.Bool
	polling *atomic.Int32
}

// newBypassPoller returns nil if cq's provider lets nothing past.
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
		n, err = b.inner.Poll(wcs) // Close of the outer CQ waits in that of the inner one
		ok = true
	}
	if n > 0 && b.shut.Load() {
		n = b.p.Sift(wcs[:n])
	}
	b.polling.Add(-1)
	return n, ok, err
}
