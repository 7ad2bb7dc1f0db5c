// SPDX-License-Identifier: BSD-3-Clause

package engine

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/internal/queue"
	"github.com/goverbs/goverbs/verbs"
)

// pump polls the inner CQ and dispatches completions to the QPs. It runs in the program's
// goroutines that poll and wait, and when there are none in a goroutine of its own, so that
// connections progress whatever the program does.
//
// Two locks pass between goroutines. The holder of turn polls. It is held only briefly, and a
// goroutine that finds it taken need not wait, because the holder polls on its behalf. The holder
// of seat sleeps until completions arrive. A goroutine of the program that wants the seat makes the
// pump's own goroutine leave it; that goroutine stays away while the program keeps returning within
// restTime.
type pump struct {
	in   *verbs.CQ
	ch   *verbs.CompChannel     // used by in only
	own  verbs.ProviderCQDriver // the inner device's own way of sleeping for in; nil = wait on ch
	spin time.Duration
	seat chan struct{}
	stop chan struct{}
	done chan struct{}

	visits atomic.Uint64 // polls by goroutines of the program
	wanted atomic.Int32  // goroutines of the program that sleep or want to

	seated  sync.Mutex         // guards asleep and dismiss
	asleep  bool               // the pump's own goroutine sleeps, or is about to
	dismiss context.CancelFunc // ends that sleep
	until   context.Context    // done after dismiss; replaced only by the pump's own goroutine, and only once done

	debts

	left chan struct{} // holds a token after a sleeping goroutine of the program has left
	back chan struct{} // holds a token when the program wants events: the pump's own goroutine is needed immediately

	turn sync.Mutex // guards the following; taken before the QPs' mu
	qps  []*qp      // indexed by the upper half of the IDs of inner requests
	need int        // completions that the QPs can have outstanding
	buf  [32]verbs.WC
}

// restTime is how long the pump's own goroutine stays away after the program last polled.
const restTime = time.Millisecond

// The initial size of an inner CQ. It grows with the QPs on devices that can resize a CQ. On others
// it must suffice for all QPs whose requests fit the program's CQ, and for their messages.
const (
	leastCQE = 16384
	innerCQE = 4 // multiple of the program's CQE
)

func newPump(ctx *verbs.Context, cqe, vector int) (*pump, error) {
	ch, err := ctx.CreateCompChannel()
	if err != nil {
		return nil, err
	}
	attr, err := ctx.QueryDevice()
	if err != nil {
		return nil, errors.Join(err, ch.Close())
	}
	in, err := ctx.CreateCQ(
		verbs.CQConfig{CQE: min(max(innerCQE*cqe, leastCQE), attr.MaxCQE), Channel: ch, CompVector: vector})
	if err != nil {
		return nil, errors.Join(err, ch.Close())
	}
	p := &pump{in: in, ch: ch, seat: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
		left: make(chan struct{}, 1), back: make(chan struct{}, 1)}
	if d, ok := verbs.Ability[verbs.ProviderCQDriver](in.Provider()); ok {
		p.own, p.spin = d, d.Spin()
	}
	go p.run()
	return p, nil
}

// close stops the pump, which has no QPs left.
func (p *pump) close() error {
	close(p.stop)
	p.call()
	<-p.done
	return errors.Join(p.in.Close(), p.ch.Close())
}

// attach assigns a QP its place, and makes room in the inner CQ for n more completions.
func (p *pump) attach(q *qp, n int) (place uint64, err error) {
	p.turn.Lock()
	defer p.turn.Unlock()
	if room := p.need + n; room > p.in.CQE() {
		if err := p.in.Resize(room); errors.Is(err, verbs.ErrNotSupported) {
			return 0, &verbs.LimitError{Name: "cqe of the inner CQ", Limit: uint64(p.in.CQE()), Value: uint64(room)}
		} else if err != nil {
			return 0, err
		}
	}
	p.need += n
	for i := range p.qps {
		if p.qps[i] == nil {
			p.qps[i] = q
			return uint64(i) << 32, nil
		}
	}
	p.qps = append(p.qps, q)
	return uint64(len(p.qps)-1) << 32, nil
}

// detach releases the place. The inner QP is closed, so its last completions are in the inner CQ.
func (p *pump) detach(place uint64, n int) {
	p.turn.Lock()
	defer p.turn.Unlock()
	p.take()
	p.qps[place>>32] = nil
	p.need -= n
}

// take polls the inner CQ until it is empty. The caller holds turn.
func (p *pump) take() {
	for {
		n, err := p.in.Poll(p.buf[:])
		p.dispatch(p.buf[:n])
		if n < len(p.buf) || err != nil {
			return
		}
	}
}

func (p *pump) dispatch(wcs []verbs.WC) {
	var q *qp
	for i := range wcs {
		if next := p.qps[wcs[i].ID>>32]; next != q {
			if q != nil {
				q.advance()
				q.mu.Unlock()
			}
			if q = next; q != nil {
				q.mu.Lock()
			}
		}
		if q != nil {
			q.completed(&wcs[i])
		}
	}
	if q != nil {
		q.advance()
		q.mu.Unlock()
	}
}

// work polls; it waits for a goroutine that is already polling.
func (p *pump) work() {
	p.turn.Lock()
	p.take()
	p.turn.Unlock()
}

// visit polls in a goroutine of the program, unless another goroutine already does.
func (p *pump) visit() {
	p.visits.Add(1)
	p.pay()
	if p.turn.TryLock() {
		p.take()
		p.turn.Unlock()
	}
}

// arm arms the inner CQ and polls completions that arrived before. A device with its own way of
// sleeping arms the CQ when it sleeps.
func (p *pump) arm() error {
	if p.own != nil {
		return nil
	}
	if err := p.in.ReqNotify(false); err != nil {
		return err
	}
	p.work()
	return nil
}

// sleep waits for a completion after arm. The caller holds the seat, and clears idle once awake, at
// the latest before it leaves the seat.
func (p *pump) sleep(ctx context.Context) {
	p.idle.Store(true)
	p.pay()
	if p.own != nil {
		_ = p.own.Sleep(ctx, false)
		return
	}
	_, _ = p.ch.Wait(ctx)
}

// call makes the pump's own goroutine leave the seat.
func (p *pump) call() {
	p.wanted.Add(1)
	p.seated.Lock()
	if p.asleep {
		p.dismiss()
	}
	p.seated.Unlock()
}

// leave records that a goroutine of the program no longer wants the seat.
func (p *pump) leave() {
	p.visits.Add(1)
	p.wanted.Add(-1)
	queue.Signal(p.left)
}

// run is the pump's own goroutine.
func (p *pump) run() {
	defer close(p.done)
	defer func() {
		if p.dismiss != nil {
			p.dismiss()
		}
	}()
	rest := time.NewTimer(0)
	defer rest.Stop()
	for {
	away:
		for visits, first := uint64(0), true; ; first = false {
			if p.wanted.Load() > 0 {
				select {
				case <-p.left:
				case <-p.stop:
					return
				}
			}
			now := p.visits.Load()
			if !first && now == visits && p.wanted.Load() == 0 {
				break
			}
			visits = now
			rest.Reset(restTime)
			select {
			case <-rest.C:
			case <-p.back:
				if p.wanted.Load() == 0 {
					break away
				}
			case <-p.stop:
				return
			}
		}
		select {
		case p.seat <- struct{}{}:
		case <-p.stop:
			return
		}
		p.watch()
		<-p.seat
	}
}

// watch polls as completions arrive, until the program wants to.
func (p *pump) watch() {
	p.seated.Lock()
	if p.until == nil || p.until.Err() != nil {
		p.until, p.dismiss = context.WithCancel(context.Background())
	}
	p.asleep = true
	p.seated.Unlock()
	visits := p.visits.Load()
	for p.wanted.Load() == 0 && p.until.Err() == nil && p.arm() == nil {
		p.sleep(p.until)
		p.work()
		if p.visits.Load() != visits {
			break
		}
	}
	p.idle.Store(false)
	p.seated.Lock()
	p.asleep = false
	p.seated.Unlock()
}
