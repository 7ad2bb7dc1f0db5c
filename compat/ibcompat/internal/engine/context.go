// SPDX-License-Identifier: BSD-3-Clause

package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/compat/ibcompat/internal/wire"
	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/internal/queue"
	"github.com/goverbs/goverbs/verbs"
)

// vcontext is an open device (verbs.ProviderContext, ext.Supporter).
type vcontext struct {
	dev    *device
	in     *verbs.Context
	native verbs.OpSet // what the inner device has of RFC 7306
	sge    int         // elements of a request
	// the inner device does not tell why a connection has ended, nor which request the peer has
	// refused
	silent bool
	meet   *rendezvous

	localSinks bool                 // a sink of a Read below needs no right of the peer's
	opener     verbs.ProviderOpener // opens receives; nil = the inner device cannot
	keyed      atomic.Int64         // keys of receives
	segments   atomic.Int64         // places for segments of the peers' receives

	ending sync.WaitGroup

	keys    sync.RWMutex   // guards regions
	regions map[uint32]*mr // by local and by remote key

	events *queue.Events[verbs.AsyncEvent]

	mu     sync.Mutex              // guards owners
	owners map[*verbs.QP]*verbs.QP // the program's handle of an inner QP
}

func (c *vcontext) QueryDevice() (verbs.DeviceAttr, error) {
	a, err := c.in.QueryDevice()
	a.MaxQPWR = min(a.MaxQPWR, wire.MaxSlots)
	if c.silent {
		a.MaxQPWR = min(a.MaxQPWR, leastCQE/2) // its inner CQ may not grow
	}
	a.MaxQPWR = max(0, a.MaxQPWR-c.ownSlots())
	a.MaxSGE, a.MaxSGERd, a.MaxInlineData = c.sge, c.sge, mostInline
	a.MaxSRQ, a.MaxSRQWR, a.MaxSRQSGE, a.MaxMW, a.MaxAH = 0, 0, 0, 0, 0
	a.DeviceCapFlags &^= verbs.DeviceMemWindow | verbs.DeviceMemMgtExt | verbs.DeviceMemWindowType2A |
		verbs.DeviceMemWindowType2B
	a.AtomicCap = verbs.AtomicGlob
	a.MaxQP = min(a.MaxQP, mostQPs)
	return a, err
}

func (c *vcontext) Ops() verbs.OpSet { return operations }

// Support implements ext.Supporter. What a connection does depends on the peer too: see the
// function Support.
func (c *vcontext) Support(op verbs.Op) ext.Support { return support(op, c.native == oneSided) }

// Support says how a QP of this package does an operation, and why; ok is false for other QPs.
func Support(handle *verbs.QP, op verbs.Op) (s ext.Support, why string, ok bool) {
	q, err := own(handle)
	if err != nil {
		return 0, "", false
	}
	q.mu.Lock()
	full, peer, self := q.ctx.full(), "", q.self()
	if q.heard {
		full, peer = q.full, "; the peer has it not"
		if verbs.OpSet(q.peer.Native)&oneSided == oneSided {
			peer = "; the peer has it"
		}
	}
	q.mu.Unlock()
	name := q.ctx.in.Device().Name()
	s = support(op, full)
	switch {
	case self && s != ext.None:
		return ext.Emulated, "the QP is its own peer: the engine executes what is posted", true
	case s == ext.Native && oneSided.Has(op):
		return s, fmt.Sprintf("%s has %v by RFC 7306%s", name, op, peer), true
	case s == ext.Native:
		return s, fmt.Sprintf("%s has %v", name, op), true
	case op == verbs.OpSend || op == verbs.OpSendImm:
		return s, fmt.Sprintf("%s is iWARP: a message of the engine waits for a receive of the peer, and has room for an immediate", name), true
	case s == ext.None:
		return s, fmt.Sprintf("%s has no %v", name, op), true
	case q.ctx.full():
		return s, fmt.Sprintf("%s has %v by RFC 7306%s", name, op, peer), true
	}
	return s, fmt.Sprintf("%s has no %v, for which there are messages of the engine", name, op), true
}

// full reports whether the inner device has everything of RFC 7306 that is needed.
func (c *vcontext) full() bool { return c.native == oneSided }

func support(op verbs.Op, full bool) ext.Support {
	switch {
	case !operations.Has(op):
		return ext.None
	case op == verbs.OpWrite, op == verbs.OpRead, full && oneSided.Has(op):
		return ext.Native
	}
	return ext.Emulated
}

// translate passes on the events of the inner context.
func (c *vcontext) translate() {
	for {
		ev, err := c.in.WaitEvent(context.Background())
		if err != nil {
			return // it is closed
		}
		if ev.CQ != nil || ev.SRQ != nil {
			continue // of an inner queue, whose overflow cannot be
		}
		if ev.QP != nil {
			c.mu.Lock()
			ev.QP = c.owners[ev.QP]
			c.mu.Unlock()
			if ev.QP == nil {
				continue
			}
		}
		c.events.Post(ev)
	}
}

// own notes the program's handle of an inner QP; nil forgets it.
func (c *vcontext) own(in, owner *verbs.QP) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if owner == nil {
		delete(c.owners, in)
		return
	}
	c.owners[in] = owner
}

func (c *vcontext) WaitEvent(ctx context.Context) (verbs.AsyncEvent, error) {
	return c.events.Wait(ctx)
}

func (c *vcontext) Close() error {
	c.events.Close()
	err := errors.Join(c.meet.close(), c.in.Close())
	c.ending.Wait()
	return err
}
