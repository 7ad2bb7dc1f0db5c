// SPDX-License-Identifier: BSD-3-Clause

package dat

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/compat/ibcompat"
	"github.com/goverbs/goverbs/internal/lifetime"
	"github.com/goverbs/goverbs/verbs"
)

// IA is an interface adapter: an open device, and the root of all objects created on it. All
// methods may be called concurrently.
type IA struct {
	node  lifetime.Node
	dev   *verbs.Device
	ctx   *verbs.Context
	addr  netip.Addr
	async *EVD
	done  chan struct{} // closed when the goroutine returns

	numbers atomic.Uint32 // the last number given to an EP

	mu  sync.Mutex // a leaf; guards the fields below
	cqs map[*verbs.CQ]*EVD
	qps map[*verbs.QP]*EP
	lms map[uint32]*LMR // by context
}

// Config configures how an IA is opened. The zero value selects the defaults.
type Config struct {
	// Device is used instead of the device with the given name; it must be a device of package
	// ibcompat.
	Device *verbs.Device
	// Addr is the address of the IA, where its PSPs listen (zero = every address of the device).
	Addr netip.Addr
	// AsyncQLen is the length of the queue of the asynchronous EVD (0 = 16).
	AsyncQLen int
}

const defaultAsyncQLen = 16

// Open opens the device with the given name, for example "ib:usiw0" (dat_ia_open), as
// verbs.DeviceByName finds it; a program that uses the user-space RNIC imports package usiw. The
// prefix "ib:" is optional. Open creates the IA's asynchronous EVD, which [IA.Query] returns. The
// caller must close the IA. The error is [ProviderNotFound] if there is no such device, and
// [ModelNotSupported] if it cannot provide InfiniBand semantics.
func Open(name string, cfg Config) (*IA, error) {
	const call = "Open"
	qlen := cfg.AsyncQLen
	if qlen == 0 {
		qlen = defaultAsyncQLen
	}
	if qlen < 0 {
		return nil, argument(call, InvalidArg2, "room for %d events", qlen)
	}
	dev := cfg.Device
	if dev == nil {
		var err error
		if !strings.HasPrefix(name, ibcompat.Prefix) {
			name = ibcompat.Prefix + name
		}
		if dev, err = verbs.DeviceByName(name); err != nil {
			return nil, below(call, ResourceDevice, err)
		}
	}
	ctx, err := dev.Open()
	if err != nil {
		return nil, below(call, ResourceDevice, err)
	}
	ia := &IA{dev: dev, ctx: ctx, addr: cfg.Addr, done: make(chan struct{}), cqs: map[*verbs.CQ]*EVD{},
		qps: map[*verbs.QP]*EP{}, lms: map[uint32]*LMR{}}
	ia.node.SetOwner(dev)
	if ia.async, err = ia.newEVD(call, qlen, EVDAsync, nil); err != nil {
		return nil, errors.Join(err, ctx.Close())
	}
	_ = ia.node.Init("dat.IA", func() error { return ia.Close(CloseAbrupt) }) // it has no parent that could refuse
	go ia.watch()
	return ia, nil
}

func (ia *IA) enter(call string) error {
	if ia == nil || !ia.node.Enter() {
		return fault(call, InvalidHandle, InvalidHandleIA, lifetime.ErrClosed)
	}
	return nil
}

// freeing starts freeing an object that never has children: new calls fail, and pending ones have
// returned when it does. It returns false if that was done before.
func freeing(n *lifetime.Node) bool {
	first, _ := n.BeginClose()
	if first {
		n.Drain(0)
	}
	return first
}

// Close closes the IA (dat_ia_close). CloseAbrupt closes everything created on it; CloseGraceful is
// refused with [InvalidState] and [InvalidStateIAInUse] while any object is left. Close is
// idempotent.
func (ia *IA) Close(flags CloseFlags) error {
	const call = "IA.Close"
	if ia == nil {
		return fault(call, InvalidHandle, InvalidHandleIA, nil)
	}
	if flags != CloseAbrupt && flags != CloseGraceful {
		return argument(call, InvalidArg2, "close flags %#x", uint32(flags))
	}
	var errs []error
	first, err := ia.node.BeginClose()
	for err != nil && flags == CloseAbrupt { // also closes what is created in the meantime
		if fault := ia.node.CloseChildren(); fault != nil {
			return below(call, NoSubtype, fault)
		}
		first, err = ia.node.BeginClose()
	}
	if err != nil {
		return fault(call, InvalidState, InvalidStateIAInUse, err)
	}
	if !first {
		return nil
	}
	ia.node.Drain(0)
	errs = append(errs, ia.ctx.Close())
	<-ia.done
	errs = append(errs, ia.async.Free())
	ia.node.End()
	return below(call, NoSubtype, errors.Join(errs...))
}

// watch converts asynchronous device events to events of the EVD.
func (ia *IA) watch() {
	defer close(ia.done)
	for {
		ev, err := ia.ctx.WaitEvent(context.Background())
		if err != nil {
			return // the context was closed
		}
		switch ev.Type {
		case verbs.EventCQErr:
			if e := ia.evdOf(ev.CQ); e != nil {
				ia.asyncError(Event{Number: AsyncEVDOverflow, Async: AsyncError{EVD: e, Cause: ev.Err}})
				e.kick()
			}
		case verbs.EventQPFatal:
			if ep := ia.epOf(ev.QP); ep != nil {
				ia.asyncError(Event{Number: AsyncEPBroken, Async: AsyncError{EP: ep, Cause: ev.Err}})
			}
		case verbs.EventDeviceFatal:
			ia.asyncError(Event{Number: AsyncIACatastrophic, Async: AsyncError{Cause: ev.Err}})
		}
	}
}

// asyncError adds an event to the asynchronous EVD. If there is no room, the event is lost.
func (ia *IA) asyncError(ev Event) {
	e := ia.async
	if ev.Async.EVD == e {
		return
	}
	e.post(ev)
}

func note[K comparable, V any](ia *IA, m map[K]*V, k K, v *V) {
	ia.mu.Lock()
	defer ia.mu.Unlock()
	if v == nil {
		delete(m, k)
		return
	}
	m[k] = v
}

func (ia *IA) noteCQ(cq *verbs.CQ, e *EVD) { note(ia, ia.cqs, cq, e) }
func (ia *IA) noteQP(qp *verbs.QP, ep *EP) { note(ia, ia.qps, qp, ep) }

func (ia *IA) evdOf(cq *verbs.CQ) *EVD {
	ia.mu.Lock()
	defer ia.mu.Unlock()
	return ia.cqs[cq]
}

func (ia *IA) epOf(qp *verbs.QP) *EP {
	ia.mu.Lock()
	defer ia.mu.Unlock()
	return ia.qps[qp]
}
