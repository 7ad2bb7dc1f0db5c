// SPDX-License-Identifier: BSD-3-Clause

package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/verbs"
)

// Node serves connections on one device. All methods may be called concurrently.
type Node struct {
	ctx    *verbs.Context
	pd     *verbs.PD
	ln     *cm.Listener
	counts *Counts
	fail   func(error)

	conns  sync.WaitGroup // the goroutine that accepts, and one for each connection
	events sync.WaitGroup

	mu   sync.Mutex
	pool *pool
}

// Serve listens on an address of a device and serves until Close. It passes errors other than the
// end of a connection to fail, which several goroutines may call concurrently.
func Serve(dev *verbs.Device, address string, counts *Counts, fail func(error)) (*Node, error) {
	n := &Node{counts: counts, fail: fail}
	var err error
	if n.ctx, err = dev.Open(); err != nil {
		return nil, err
	}
	if n.pd, err = n.ctx.AllocPD(); err != nil {
		return nil, errors.Join(err, n.ctx.CloseAll())
	}
	ctx, cancel := context.WithTimeout(context.Background(), Limit)
	defer cancel()
	if n.ln, err = cm.Listen(ctx, address, cm.Config{Context: n.ctx}); err != nil {
		return nil, errors.Join(err, n.ctx.CloseAll())
	}
	n.conns.Go(n.accept)
	n.events.Go(n.watch)
	return n, nil
}

// Addr returns the address on which the Node listens.
func (n *Node) Addr() string { return n.ln.Addr().String() }

// Close stops listening and waits until the clients have closed every connection.
func (n *Node) Close() error {
	name := n.ctx.Device().Name()
	errs := []error{n.ln.Close()}
	if err := within(n.conns.Wait, "the connections of "+name+" to end"); err != nil {
		return errors.Join(append(errs, err)...)
	}
	n.mu.Lock()
	if n.pool != nil {
		errs = append(errs, n.pool.close())
	}
	n.mu.Unlock()
	errs = append(errs, n.pd.Close(), n.ctx.Close(), within(n.events.Wait, "WaitEvent of "+name+" to end"))
	return errors.Join(errs...)
}

// within runs f, which must return within Limit.
func within(f func(), what string) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	timer := time.NewTimer(Limit)
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-timer.C:
		return fmt.Errorf("%w: waited for %s", ErrHang, what)
	}
}

// watch counts the asynchronous events.
func (n *Node) watch() {
	for {
		ev, err := n.ctx.WaitEvent(context.Background())
		if err != nil {
			if !errors.Is(err, verbs.ErrClosed) {
				n.fail(err)
			}
			return
		}
		n.counts.Add("event "+ev.Type.String(), 1)
	}
}

func (n *Node) accept() {
	for {
		req, err := n.ln.Accept(context.Background())
		if err != nil {
			if !errors.Is(err, verbs.ErrClosed) {
				n.fail(err)
			}
			return
		}
		n.conns.Go(func() { n.serve(req) })
	}
}

// serve answers a request and serves the connection. A client that is gone is not an error.
func (n *Node) serve(req *cm.Request) {
	data := req.PrivateData()
	if len(data) < 2 || data[0] != wishMagic {
		n.fail(fmt.Errorf("a request has the private data %x", data))
		_ = req.Reject(nil)
		return
	}
	wish := Wish(data[1])
	if wish&WishRefuse != 0 {
		n.counts.Add("refused", 1)
		if err := req.Reject([]byte(refusalMsg)); err != nil {
			n.counts.Add("refusal not heard", 1)
		}
		return
	}
	s := &server{node: n}
	err := s.open(wish)
	if err == nil {
		if err = s.accept(req); err != nil {
			// The client gave up, or was killed. A request must be answered nevertheless.
			n.counts.Add("accept failed", 1)
			_ = req.Reject(nil)
			err = nil
		} else {
			n.counts.Add("accepted", 1)
			err = s.run()
		}
	} else {
		_ = req.Reject(nil)
	}
	if err = errors.Join(err, s.close()); err != nil {
		n.fail(fmt.Errorf("server of %s: %w", n.ctx.Device().Name(), err))
	}
}
