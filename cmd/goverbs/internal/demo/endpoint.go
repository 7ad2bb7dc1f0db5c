// SPDX-License-Identifier: BSD-3-Clause

package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/cmd/goverbs/internal/devices"
	"github.com/goverbs/goverbs/verbs"
)

// Sizes of an endpoint.
const (
	slotSize  = 8192 // bytes per message
	recvSlots = 64   // posted receives; the peer may use at most half of them without an answer
	sendSlots = 16   // messages being sent
	window    = 16   // requests and messages in flight
)

// endpoint is one end of a connection with what the steps need. Receives are always posted, and
// requests are awaited in order. Only one goroutine uses it.
type endpoint struct {
	ctx          *verbs.Context
	pd           *verbs.PD
	sends, recvs *verbs.CQ
	qp           *verbs.QP
	out, in      *verbs.MR   // sendSlots and recvSlots of slotSize
	more         []*verbs.MR // allocated by allocMR
	id           *cm.ID
	peerOps      verbs.OpSet   // operations of the other half's device
	patience     time.Duration // for anything the peer must do

	nextSlot int
	wcs      []verbs.WC          // scratch
	taken    [recvSlots]verbs.WC // receives polled from the CQ
	arrived  []verbs.WC          // those in taken that are still unprocessed
}

// newEndpoint returns an unconnected endpoint in a PD of its own. Receives are posted once bind has
// bound the QP.
func newEndpoint(ctx *verbs.Context, bind func(*verbs.QP) error, patience time.Duration) (e *endpoint, err error) {
	e = &endpoint{ctx: ctx, patience: patience, wcs: make([]verbs.WC, 2*window)}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.close())
		}
	}()
	if e.pd, err = ctx.AllocPD(); err != nil {
		return e, err
	}
	if e.sends, err = ctx.CreateCQ(verbs.CQConfig{CQE: 256}); err != nil {
		return e, err
	}
	if e.recvs, err = ctx.CreateCQ(verbs.CQConfig{CQE: 2 * recvSlots}); err != nil {
		return e, err
	}
	if e.out, err = e.pd.AllocMR(sendSlots*slotSize, 0); err != nil {
		return e, err
	}
	if e.in, err = e.pd.AllocMR(recvSlots*slotSize, verbs.AccessLocalWrite); err != nil {
		return e, err
	}
	e.qp, err = e.pd.CreateQP(verbs.QPConfig{SendCQ: e.sends, RecvCQ: e.recvs,
		Cap: verbs.QPCap{MaxSendWR: 4 * window, MaxRecvWR: recvSlots}})
	if err != nil {
		return e, err
	}
	if err = bind(e.qp); err != nil {
		return e, err
	}
	for i := range recvSlots {
		if err = e.repost(uint64(i)); err != nil {
			return e, err
		}
	}
	return e, nil
}

// sinkAccess returns the access flags of memory that Reads fill. On iWARP hardware a Read Response
// is placed like a Write by the peer.
func (e *endpoint) sinkAccess() verbs.AccessFlags {
	if dev := e.ctx.Device(); dev.Info().Transport == verbs.TransportIWARP && !devices.UserSpace(dev) {
		return verbs.AccessLocalWrite | verbs.AccessRemoteWrite
	}
	return verbs.AccessLocalWrite
}

// allocMR registers memory that exists as long as the endpoint.
func (e *endpoint) allocMR(n int, access verbs.AccessFlags) (*verbs.MR, error) {
	mr, err := e.pd.AllocMR(n, access)
	if err == nil {
		e.more = append(e.more, mr)
	}
	return mr, err
}

// close closes the connection and releases everything, the QP before the memory that its requests
// may use.
func (e *endpoint) close() error {
	if e == nil {
		return nil
	}
	err := errors.Join(e.id.Close(), e.qp.Close(), e.out.Close(), e.in.Close(), e.sends.Close(), e.recvs.Close())
	for _, mr := range e.more {
		err = errors.Join(err, mr.Close())
	}
	return errors.Join(err, e.pd.Close())
}

// repost posts the receive of a slot.
func (e *endpoint) repost(slot uint64) error {
	sge, err := e.in.SGE(int(slot)*slotSize, slotSize)
	if err != nil {
		return err
	}
	_, err = e.qp.PostRecv([]verbs.RecvWR{{ID: slot, SGL: []verbs.SGE{sge}}})
	return err
}

// wait waits for completions. The peer may take up to e.patience for its part.
func (e *endpoint) wait(ctx context.Context, cq *verbs.CQ, wcs []verbs.WC) (int, error) {
	if n, err := cq.Poll(wcs); n > 0 || err != nil {
		return n, err
	}
	bounded, cancel := context.WithTimeout(ctx, e.patience)
	defer cancel()
	n, err := cq.Wait(bounded, wcs)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = fmt.Errorf("nothing came from the peer for %v: %w", e.patience, err)
	}
	return n, err
}

// failed describes an unsuccessful completion.
func (e *endpoint) failed(wc *verbs.WC) error {
	if cause := e.qp.Err(); cause != nil {
		return fmt.Errorf("%w: %w", wc.Status, cause)
	}
	return wc.Status
}

// pipeline posts n requests with at most window in flight, and waits for all. fill returns request
// i; done, which may be nil, receives its completion. They complete in order.
func (e *endpoint) pipeline(ctx context.Context, n int, fill func(i int) verbs.SendWR,
	done func(i int, wc *verbs.WC)) error {
	wrs := make([]verbs.SendWR, 0, window)
	for posted, completed := 0, 0; completed < n; {
		wrs = wrs[:0]
		for ; posted < n && posted-completed < window; posted++ {
			wr := fill(posted)
			wr.ID = uint64(posted)
			wr.Flags |= verbs.SendSignaled
			wrs = append(wrs, wr)
		}
		if _, err := e.qp.PostSend(wrs); err != nil {
			return err
		}
		k, err := e.wait(ctx, e.sends, e.wcs)
		if err != nil {
			return err
		}
		for i := range e.wcs[:k] {
			wc := &e.wcs[i]
			if wc.Status != verbs.WCSuccess {
				return fmt.Errorf("request %d: %w", wc.ID, e.failed(wc))
			}
			if wc.ID != uint64(completed) {
				return fmt.Errorf("request %d completed where %d was next", wc.ID, completed)
			}
			if done != nil {
				done(completed, wc)
			}
			completed++
		}
	}
	return nil
}

// do posts requests as one list, waits for all and returns the last completion.
func (e *endpoint) do(ctx context.Context, wrs ...verbs.SendWR) (last verbs.WC, err error) {
	for i := range wrs {
		wrs[i].ID = uint64(i)
		wrs[i].Flags |= verbs.SendSignaled
	}
	if _, err := e.qp.PostSend(wrs); err != nil {
		return last, err
	}
	for i := 0; i < len(wrs); {
		k, err := e.wait(ctx, e.sends, e.wcs)
		if err != nil {
			return last, err
		}
		for j := range e.wcs[:k] {
			last = e.wcs[j]
			if last.Status != verbs.WCSuccess {
				return last, fmt.Errorf("%v: %w", wrs[i].Opcode, e.failed(&last))
			}
			if last.ID != uint64(i) {
				return last, fmt.Errorf("request %d completed where %d was next", last.ID, i)
			}
			i++
		}
	}
	return last, nil
}

// sendWR copies a message into the next slot and returns the request that sends it. The slot is
// reused sendSlots messages later.
func (e *endpoint) sendWR(msg []byte) (verbs.SendWR, error) {
	off := e.nextSlot * slotSize
	sge, err := e.out.SGE(off, len(msg))
	if err != nil {
		return verbs.SendWR{}, err
	}
	copy(e.out.Bytes()[off:], msg)
	e.nextSlot = (e.nextSlot + 1) % sendSlots
	return verbs.SendWR{Opcode: verbs.WRSend, SGL: []verbs.SGE{sge}}, nil
}

// send sends one message with the given flags.
func (e *endpoint) send(ctx context.Context, msg []byte, flags verbs.SendFlags) error {
	wr, err := e.sendWR(msg)
	if err != nil {
		return err
	}
	wr.Flags = flags
	_, err = e.do(ctx, wr)
	return err
}

// receive waits for the next message and returns its completion and its bytes, which are valid
// until repost.
func (e *endpoint) receive(ctx context.Context) (verbs.WC, []byte, error) {
	if len(e.arrived) == 0 {
		n, err := e.wait(ctx, e.recvs, e.taken[:])
		if err != nil {
			return verbs.WC{}, nil, err
		}
		e.arrived = e.taken[:n]
	}
	wc := e.arrived[0]
	e.arrived = e.arrived[1:]
	if wc.Status != verbs.WCSuccess {
		return wc, nil, fmt.Errorf("receive: %w", e.failed(&wc))
	}
	var msg []byte
	if wc.Opcode == verbs.WCRecv {
		slot := e.in.Bytes()[int(wc.ID)*slotSize:]
		msg = slot[:min(wc.ByteLen, slotSize)]
	}
	return wc, msg, nil
}

// take waits for the next message and returns a copy of it.
func (e *endpoint) take(ctx context.Context) ([]byte, error) {
	wc, msg, err := e.receive(ctx)
	if err != nil {
		return nil, err
	}
	if wc.Opcode != verbs.WCRecv {
		return nil, fmt.Errorf("received %v where a message was expected", wc.Opcode)
	}
	msg = append([]byte(nil), msg...)
	return msg, e.repost(wc.ID)
}

// ask sends a message and returns the answer.
func (e *endpoint) ask(ctx context.Context, msg []byte) ([]byte, error) {
	if err := e.send(ctx, msg, 0); err != nil {
		return nil, err
	}
	return e.take(ctx)
}

// sendControl sends a control message.
func (e *endpoint) sendControl(ctx context.Context, m *control) error {
	b, err := m.encode()
	if err != nil {
		return err
	}
	return e.send(ctx, b, 0)
}

// takeControl waits for the control message of a step and phase.
func (e *endpoint) takeControl(ctx context.Context, step string, p phase) (control, error) {
	b, err := e.take(ctx)
	if err != nil {
		return control{}, err
	}
	return decodeControl(b, step, p)
}

// converse performs n operations, each of which the peer answers with one message, with at most
// window unanswered. fill returns the requests of operation i; answer receives the answers in
// order.
func (e *endpoint) converse(ctx context.Context, n int, fill func(i int) ([]verbs.SendWR, error),
	answer func(i int, wc *verbs.WC, msg []byte)) error {
	for sent, answered := 0, 0; answered < n; answered++ {
		for ; sent < n && sent-answered < window; sent++ {
			wrs, err := fill(sent)
			if err != nil {
				return err
			}
			if _, err := e.do(ctx, wrs...); err != nil {
				return err
			}
		}
		wc, msg, err := e.receive(ctx)
		if err != nil {
			return err
		}
		answer(answered, &wc, msg)
		if err := e.repost(wc.ID); err != nil {
			return err
		}
	}
	return nil
}

// respond is the peer's side of converse: it answers each of n messages with what reply returns.
func (e *endpoint) respond(ctx context.Context, n int,
	reply func(i int, wc *verbs.WC, msg []byte) (verbs.SendWR, error)) error {
	for i := range n {
		wc, msg, err := e.receive(ctx)
		if err != nil {
			return err
		}
		wr, err := reply(i, &wc, msg)
		if err != nil {
			return err
		}
		// The receive first: after the answer the peer may send again.
		if err := e.repost(wc.ID); err != nil {
			return err
		}
		if _, err := e.do(ctx, wr); err != nil {
			return err
		}
	}
	return nil
}
