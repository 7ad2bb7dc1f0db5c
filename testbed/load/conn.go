// SPDX-License-Identifier: BSD-3-Clause

package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/verbs"
)

// Conn is a client's connection to a [Node]. Apart from ID and QP, only one goroutine may use it.
type Conn struct {
	ID *cm.ID
	QP *verbs.QP
	CQ *verbs.CQ // of both queues

	ctx    *verbs.Context
	pd     *verbs.PD
	mem    *verbs.MR // regionLen bytes for data, then slots to send from, then slots to receive into
	remote region
	counts *Counts
	rng    *rand.Rand

	shadow  []byte // expected contents of the server's region
	word    uint64 // expected value of the word at its start
	pending []uint64
	next    uint64
	own     bool // ctx was opened for this connection
}

// Options configure a connection.
type Options struct {
	Wish Wish
	// Context is where the connection's objects are created (nil = a new one).
	Context *verbs.Context
	Source  netip.AddrPort // local address (zero = chosen by the route)
	Retries int            // cm.ConnParam.RetryCount
	Depth   int            // of Reads either way (0 = the default)
	Seed    uint64
	Counts  *Counts // not nil
}

// Dial connects to a Node. If the Node was asked to refuse, the error Is cm.ErrRejected. After an
// error, nothing is left open.
func Dial(dev *verbs.Device, address string, o Options) (c *Conn, err error) {
	c = &Conn{ctx: o.Context, counts: o.Counts, rng: rand.New(rand.NewPCG(o.Seed, 1)), shadow: make([]byte, regionLen)}
	if c.ctx == nil {
		if c.ctx, err = dev.Open(); err != nil {
			return nil, err
		}
		c.own = true
	}
	if err = c.dial(address, o); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	c.counts.Add("connected", 1)
	return c, nil
}

func (c *Conn) dial(address string, o Options) (err error) {
	if c.pd, err = c.ctx.AllocPD(); err != nil {
		return err
	}
	if c.CQ, err = c.ctx.CreateCQ(verbs.CQConfig{}); err != nil {
		return err
	}
	if c.mem, err = c.pd.AllocMR(regionLen+2*slots*slotLen, anyAccess); err != nil {
		return err
	}
	c.QP, err = c.pd.CreateQP(
		verbs.QPConfig{SendCQ: c.CQ, RecvCQ: c.CQ, Cap: verbs.QPCap{MaxSendWR: 32, MaxRecvWR: 32}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), Limit)
	defer cancel()
	if c.ID, err = cm.Resolve(ctx, address, cm.Config{Context: c.ctx, Source: o.Source}); err != nil {
		return err
	}
	if err := c.ID.Connect(ctx, c.QP, cm.ConnParam{PrivateData: []byte{wishMagic, byte(o.Wish)}, RetryCount: o.Retries,
		InitiatorDepth: o.Depth, ResponderResources: o.Depth}); err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("%w: %w", ErrHang, err)
		}
		return err
	}
	c.remote, err = unmarshalRegion(c.ID.PrivateData())
	return err
}

// Supports reports whether the device has an operation.
func (c *Conn) Supports(op verbs.Op) bool { return c.ctx.Supports(op) }

// Context returns the context of the connection's objects.
func (c *Conn) Context() *verbs.Context { return c.ctx }

// id returns the ID for a request that will complete.
func (c *Conn) id() uint64 {
	c.next++
	c.pending = append(c.pending, c.next)
	return c.next
}

// post posts requests whose IDs are from id. Those that are not accepted do not complete.
func (c *Conn) post(wrs ...verbs.SendWR) error {
	n, err := c.QP.PostSend(wrs)
	c.pending = c.pending[:len(c.pending)-(len(wrs)-n)]
	return err
}

func (c *Conn) recv(slot int) error {
	wr := recvOf(c.mem, slot)
	wr.SGL[0].Addr += regionLen + slots*slotLen
	wr.ID = c.id()
	if _, err := c.QP.PostRecv([]verbs.RecvWR{wr}); err != nil {
		c.pending = c.pending[:len(c.pending)-1]
		return err
	}
	return nil
}

// Collect waits until everything posted has completed, each request exactly once. It returns the
// first failure of a request, which Is its verbs.WCStatus.
func (c *Conn) Collect() error {
	ctx, cancel := context.WithTimeout(context.Background(), Limit)
	defer cancel()
	var failure error
	var wcs [16]verbs.WC
	for len(c.pending) > 0 {
		n, err := c.CQ.Wait(ctx, wcs[:])
		if errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("%w: %d requests have no completion", ErrHang, len(c.pending))
		}
		if err != nil {
			return err
		}
		for i := range wcs[:n] {
			k := slices.Index(c.pending, wcs[i].ID)
			if k < 0 {
				return fmt.Errorf("%w: request %d completed twice, or was never posted", errTraffic, wcs[i].ID)
			}
			c.pending = slices.Delete(c.pending, k, k+1)
			if err := wcs[i].Err(); err != nil && failure == nil {
				failure = fmt.Errorf("request %d: %w", wcs[i].ID, err)
			}
		}
	}
	return failure
}

// errTraffic is an error that must not occur even on a disturbed connection.
var errTraffic = errors.New("wrong traffic")

// Wrong reports whether an error of a Conn must not occur even on a disturbed connection: wrong
// bytes, requests with no completion or two, or calls that do not return.
func Wrong(err error) bool { return errors.Is(err, errTraffic) || errors.Is(err, ErrHang) }

// WaitEnd waits until all requests have completed, then for the end of the connection. The order
// matters: on InfiniBand and RoCE, the failure of a QP by its own request is noticed only when the
// completion is polled.
func (c *Conn) WaitEnd() error {
	if err := c.Collect(); Wrong(err) {
		return err
	}
	timer := time.NewTimer(Limit)
	defer timer.Stop()
	select {
	case <-c.ID.Done():
	case <-timer.C:
		return fmt.Errorf("%w: waited for the end of a connection whose QP is in state %v", ErrHang, c.QP.State())
	}
	if c.ID.Err() == nil {
		return fmt.Errorf("%w: a connection that has ended has no reason for it", errTraffic)
	}
	return nil
}

// Close closes the connection and all its objects.
func (c *Conn) Close() error {
	var err error
	hang := within(func() {
		err = errors.Join(c.ID.Close(), c.QP.Close(), c.CQ.Close(), c.mem.Close(), c.pd.Close())
		if c.own {
			err = errors.Join(err, c.ctx.Close())
		}
	}, "a client's Close")
	if hang != nil {
		return hang
	}
	return err
}

// sge returns n bytes of the connection's memory.
func (c *Conn) sge(off, n int) []verbs.SGE {
	return []verbs.SGE{{Addr: c.mem.Addr() + uint64(off), Length: uint32(n), LKey: c.mem.LKey()}}
}
