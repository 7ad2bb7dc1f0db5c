// SPDX-License-Identifier: BSD-3-Clause

package ibcompat_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/compat/ibcompat"
	"github.com/goverbs/goverbs/compat/ibcompat/internal/wire"
	"github.com/goverbs/goverbs/verbs"
)

// An attempt to connect a QP that was brought up manually may damage its inner QP, which is then
// replaced while the program uses the QP.

// answersWrongly accepts all calls at a port, but not as an engine. It counts them.
func answersWrongly(t *testing.T, below *verbs.Context, port int) *atomic.Int32 {
	t.Helper()
	ln, err := cm.Listen(soon(t), net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), cm.Config{Context: below})
	require.NoError(t, err)
	answered := new(atomic.Int32)
	done := make(chan struct{})
	t.Cleanup(func() { require.NoError(t, ln.Close()); <-done })
	go func() {
		defer close(done)
		pd, err := below.AllocPD()
		if err != nil {
			return
		}
		defer pd.Close()
		cq, err := below.CreateCQ(verbs.CQConfig{})
		if err != nil {
			return
		}
		defer cq.Close()
		for {
			req, err := ln.Accept(context.Background())
			if err != nil {
				return // closed
			}
			qp, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq})
			if err != nil {
				return
			}
			if id, err := req.Accept(context.Background(), qp, cm.ConnParam{}); err == nil {
				answered.Add(1)
				_ = id.Close()
			}
			_ = qp.Close()
		}
	}()
	return answered
}

// callsAndGoes repeatedly calls a waiting QP in the name of the peer that it waits for, and
// disconnects in the middle.
func callsAndGoes(t *testing.T, below *verbs.Context, call wire.Call, stop <-chan struct{}) {
	private := (&wire.Greeting{Flags: wire.FlagHand, Private: call.Append(nil)}).Append(nil)
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(ibcompat.DefaultRendezvous+int(call.To.QPN>>17)))
	for {
		select {
		case <-stop:
			return
		default:
		}
		e := newEnd(t, below, verbs.QPConfig{})
		if id, err := cm.Resolve(context.Background(), address, cm.Config{Context: below}); err == nil {
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(2000))*time.Microsecond)
			_ = id.Connect(ctx, e.qp, cm.ConnParam{PrivateData: private})
			cancel()
			_ = id.Close()
		}
		_ = e.qp.Close()
	}
}

// TestHandAsked checks that a QP can be queried and modified at any time while it looks for its
// peer, even while an inner QP damaged by a wrong answer is being replaced.
func TestHandAsked(t *testing.T) {
	const place = ibcompat.RendezvousPorts - 1
	base := taken(t, 0, 1)
	in, dev := newIWARP(t, 0, ibcompat.Config{Rendezvous: base})
	answered := answersWrongly(t, open(t, in), int(base)+place)
	a := newEnd(t, open(t, dev), verbs.QPConfig{})
	a.toINIT()
	a.toRTS(place<<17 | 5)
	attr := verbs.QPAttr{AccessFlags: verbs.AccessRemoteRead | verbs.AccessRemoteWrite}
	for limit := soon(t); answered.Load() < 5; {
		require.NoError(t, limit.Err())
		got, err := a.qp.Query()
		require.NoError(t, err)
		require.EqualValues(t, place<<17|5, got.DestQPNum)
		require.EqualValues(t, 1, got.PortNum)
		require.NoError(t, a.qp.Modify(attr, verbs.QPAttrAccessFlags))
	}
}

// TestHandRenewed checks that a QP can be reset and closed at any time while it looks for its peer,
// even while its inner QP is being replaced because the QP it called answered wrongly, or a caller
// disconnected. Nothing leaks (TestMain).
func TestHandRenewed(t *testing.T) {
	t.Run("calls", func(t *testing.T) {
		const place = ibcompat.RendezvousPorts - 1
		base := taken(t, 0, 1)
		in, dev := newIWARP(t, 0, ibcompat.Config{Rendezvous: base})
		answersWrongly(t, open(t, in), int(base)+place)
		ctx := open(t, dev)
		for range 60 {
			a := newEnd(t, ctx, verbs.QPConfig{})
			a.toINIT()
			a.toRTS(place<<17 | 5)
			a.leaves(place<<17 | 5)
		}
	})
	t.Run("waits", func(t *testing.T) {
		in, dev := newIWARP(t, 0, ibcompat.Config{})
		below, ctx := open(t, in), open(t, dev)
		for range 60 {
			b := newEnd(t, ctx, verbs.QPConfig{})
			b.toINIT()
			b.toRTS(2)
			stop := make(chan struct{})
			var callers sync.WaitGroup
			for range 2 {
				callers.Go(func() {
					callsAndGoes(t, below, callOf(2, b.qp.Num()), stop)
				})
			}
			b.leaves(2)
			close(stop)
			callers.Wait()
		}
	})
}

// leaves queries and modifies an end that looks for its peer for a moment, and resets or closes it
// meanwhile.
func (e *end) leaves(number uint32) {
	e.Helper()
	var leaving atomic.Bool
	left := make(chan struct{})
	var asking sync.WaitGroup
	for _, ask := range []func() error{
		func() error {
			got, err := e.qp.Query()
			if err == nil && got.DestQPNum != number {
				err = fmt.Errorf("dest_qp_num %d", got.DestQPNum)
			}
			return err
		},
		func() error {
			return e.qp.Modify(verbs.QPAttr{AccessFlags: verbs.AccessRemoteRead}, verbs.QPAttrAccessFlags)
		},
	} {
		asking.Go(func() {
			for {
				if err := ask(); err != nil && !leaving.Load() {
					e.Error(err)
					return
				}
				select {
				case <-left:
					return
				case <-time.After(50 * time.Microsecond):
				}
			}
		})
	}
	time.Sleep(time.Duration(rand.IntN(5000)) * time.Microsecond)
	leaving.Store(true)
	var err error
	if rand.IntN(2) == 0 {
		err = e.qp.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPAttrState)
	} else {
		err = e.qp.Close()
	}
	close(left)
	asking.Wait()
	require.NoError(e, err)
}
