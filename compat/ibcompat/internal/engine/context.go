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
	native verbs.OpSet // operations of RFC 7306 that the inner device implements
	sge    int         // maximum elements of a request
	// the inner device reports neither why a connection ended nor which request the peer refused
	silent bool
	meet   *rendezvous

	localSinks bool                 // the sink of a Read on the inner device needs no remote right
	opener     verbs.ProviderOpener // opens receives; nil if the inner device cannot
	keyed      atomic.Int64         // keys of receives in use
	segments   atomic.Int64         // capacity retained for segments of the peers' receives

	ending sync.WaitGroup

	keys    sync.RWMutex   // guards regions
	regions map[uint32]*mr // by local and by remote key

	events *queue.Events[verbs.AsyncEvent]

	mu     sync.Mutex              // guards owners
	owners map[*verbs.QP]*verbs.QP // the program's handle for each inner QP
}

func (c *vcontext) QueryDevice() (verbs.DeviceAttr, error) {
	a, err := c.in.QueryDevice()
	a.MaxQPWR = min(a.MaxQPWR, wire.MaxSlots)
	if c.silent {
		a.MaxQPWR = min(a.MaxQPWR, leastCQE/2) // the inner CQ cannot grow
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

// Support implements ext.Supporter. How a connection executes an operation also depends on the
// peer: see the function Support.
func (c *vcontext) Support(op verbs.Op) ext.Support { return support(op, c.native == oneSided) }

// Support returns how a QP of this package executes an operation, and why. ok is false for other
// QPs.
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

// full reports whether the inner device implements all of RFC 7306 that the engine needs.
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

// translate forwards the events of the inner context.
func (c *vcontext) translate() {
	for {
		ev, err := c.in.WaitEvent(context.Background())
		if err != nil {
			return // closed
		}
		if ev.CQ != nil || ev.SRQ != nil {
			continue // of an inner queue, which cannot overflow
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

// own records the program's handle for an inner QP; nil removes it.
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
