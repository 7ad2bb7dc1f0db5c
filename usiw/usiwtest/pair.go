// SPDX-License-Identifier: BSD-3-Clause

package usiwtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// DefaultMem is the default of PairConfig.Mem: the size in bytes of an End's memory region.
const DefaultMem = 64 << 10

// connectLimit bounds Connect, and closing its pair.
const connectLimit = 30 * time.Second

// AllAccess contains all access rights that a peer can have.
const AllAccess = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic |
	verbs.AccessMWBind

// PairConfig configures a pair. The zero value selects two NICs and QPs with all defaults.
type PairConfig struct {
	Wire   *Wire        // the network of the NICs (nil = a new one)
	TCP    string       // address at which B listens, to connect over TCP ("" = over Wire)
	OneNIC bool         // both ends share one NIC, with A's configuration
	A, B   usiw.Config  // the NICs' configurations; Network is set to Wire
	AParam cm.ConnParam // for the dialling side
	BParam cm.ConnParam // for the listening side
	Cap    verbs.QPCap  // capacities of both QPs
	CQE    int          // size of the CQs (0 = verbs.DefaultCQE)
	OneCQ  bool         // both queues of an end share one CQ
	// SharedChannel makes the CQs of an end notify End.Channel. Do and Next then return
	// verbs.ErrSharedChannel.
	SharedChannel bool
	Mem           int               // bytes of the memory regions (0 = DefaultMem)
	Access        verbs.AccessFlags // of the memory regions (0 = AllAccess)
	// Before is called while the QPs are in INIT, to post receives (nil = not called).
	Before func(p *Pair) error
}

// Pair is two connected QPs, each on its own NIC unless OneNIC is set. A dialled and B listened.
type Pair struct {
	Wire *Wire // nil over TCP
	Link *Link // the connection; nil over TCP
	A, B *End
}

// End is one side of a pair. Its memory region is mapped memory, not Go memory, so the race
// detector ignores the peer's accesses.
type End struct {
	NIC            *usiw.NIC
	Context        *verbs.Context
	PD             *verbs.PD
	Channel        *verbs.CompChannel // nil without PairConfig.SharedChannel
	SendCQ, RecvCQ *verbs.CQ
	QP             *verbs.QP
	MR             *verbs.MR
	ID             *cm.ID
}

// NewPair creates a pair. The caller must close it. ctx bounds connection set-up.
func NewPair(ctx context.Context, cfg PairConfig) (*Pair, error) {
	p := &Pair{Wire: cfg.Wire, A: &End{}, B: &End{}}
	if p.Wire == nil && cfg.TCP == "" {
		p.Wire = NewWire()
	}
	if err := p.open(ctx, &cfg); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// Connect creates a pair for a test, and closes it when the test ends. The test fails if the pair
// cannot be created.
func Connect(tb testing.TB, cfg PairConfig) *Pair {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), connectLimit)
	defer cancel()
	p, err := NewPair(ctx, cfg)
	if err != nil {
		tb.Fatalf("usiwtest: %v", err)
	}
	tb.Cleanup(func() {
		if err := p.Close(); err != nil {
			tb.Errorf("usiwtest: %v", err)
		}
	})
	return p
}

func (p *Pair) open(ctx context.Context, cfg *PairConfig) error {
	if p.Wire != nil {
		cfg.A.Network, cfg.B.Network = p.Wire, p.Wire
	}
	var err error
	if p.A.NIC, err = usiw.New(cfg.A); err != nil {
		return err
	}
	if p.B.NIC = p.A.NIC; !cfg.OneNIC {
		if p.B.NIC, err = usiw.New(cfg.B); err != nil {
			return err
		}
	}
	for _, e := range []*End{p.A, p.B} {
		if err := e.open(cfg); err != nil {
			return err
		}
	}
	if cfg.Before != nil {
		if err := errors.Join(p.A.bind(), p.B.bind()); err != nil {
			return err
		}
		if err := cfg.Before(p); err != nil {
			return err
		}
	}
	ln, err := cm.Listen(ctx, cmp.Or(cfg.TCP, "listener:0"), cm.Config{Context: p.B.Context})
	if err != nil {
		return err
	}
	defer ln.Close()
	if p.A.ID, err = cm.Resolve(ctx, ln.Addr().String(), cm.Config{Context: p.A.Context}); err != nil {
		return err
	}
	// If one side fails, cancel the wait of the other, which may not learn of the failure from its
	// peer.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	accepted := make(chan error, 1)
	go func() {
		err := p.B.accept(ctx, ln, cfg.BParam)
		if err != nil {
			cancel()
		}
		accepted <- err
	}()
	if err = p.A.ID.Connect(ctx, p.A.QP, cfg.AParam); err != nil {
		ln.Close()
	}
	if err := errors.Join(err, <-accepted); err != nil {
		return err
	}
	if p.Wire != nil {
		p.Link = p.Wire.link(p.A.ID.LocalAddr())
	}
	return nil
}

// Close closes all objects of the pair. It is idempotent.
func (p *Pair) Close() error {
	return errors.Join(p.A.ID.Close(), p.B.ID.Close(), p.A.Context.CloseAll(), p.B.Context.CloseAll(), p.A.NIC.Close(),
		p.B.NIC.Close())
}

func (e *End) open(cfg *PairConfig) (err error) {
	if e.Context, err = e.NIC.Device().Open(); err != nil {
		return err
	}
	if e.PD, err = e.Context.AllocPD(); err != nil {
		return err
	}
	cq := verbs.CQConfig{CQE: cfg.CQE}
	if cfg.SharedChannel {
		if e.Channel, err = e.Context.CreateCompChannel(); err != nil {
			return err
		}
		cq.Channel = e.Channel
	}
	if e.SendCQ, err = e.Context.CreateCQ(cq); err != nil {
		return err
	}
	if e.RecvCQ = e.SendCQ; !cfg.OneCQ {
		if e.RecvCQ, err = e.Context.CreateCQ(cq); err != nil {
			return err
		}
	}
	if e.QP, err = e.PD.CreateQP(verbs.QPConfig{SendCQ: e.SendCQ, RecvCQ: e.RecvCQ, Cap: cfg.Cap}); err != nil {
		return err
	}
	e.MR, err = e.PD.AllocMR(cmp.Or(cfg.Mem, DefaultMem), cmp.Or(cfg.Access, AllAccess))
	return err
}

// bind moves the QP to INIT, as ID.BindQP does.
func (e *End) bind() error {
	return e.QP.Modify(verbs.QPAttr{State: verbs.QPStateInit, PortNum: 1,
		AccessFlags: verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic},
		verbs.QPAttrState|verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrAccessFlags)
}

func (e *End) accept(ctx context.Context, ln *cm.Listener, param cm.ConnParam) error {
	req, err := ln.Accept(ctx)
	if err != nil {
		return err
	}
	e.ID, err = req.Accept(ctx, e.QP, param)
	return err
}

// Do posts send requests, the last of them signalled, and returns the next completion of the send
// queue. If all requests succeed and no other is signalled, this is the completion of the last.
func (e *End) Do(ctx context.Context, wrs ...verbs.SendWR) (verbs.WC, error) {
	if len(wrs) == 0 {
		return verbs.WC{}, fmt.Errorf("usiwtest: %w: no request", verbs.ErrInvalid)
	}
	wrs = slices.Clone(wrs)
	wrs[len(wrs)-1].Flags |= verbs.SendSignaled
	if _, err := e.QP.PostSend(wrs); err != nil {
		return verbs.WC{}, err
	}
	return Next(ctx, e.SendCQ)
}

// Next waits for the next completion of a CQ.
func Next(ctx context.Context, cq *verbs.CQ) (verbs.WC, error) {
	var wcs [1]verbs.WC
	_, err := cq.Wait(ctx, wcs[:])
	return wcs[0], err
}
