// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package cm_test

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/verbs"
)

var silence = fakeverbs.CMEvent{Event: fakeverbs.NoEvent}

// TestOneQPInTwoAttempts: the second attempt is refused, and the first continues.
func TestOneQPInTwoAttempts(t *testing.T) {
	eachFake(t, func(b *bench) {
		first, second, qp, other := b.resolve(cm.Config{}), b.resolve(cm.Config{}), b.qp(0), b.qp(0)
		require.NoError(b, first.BindQP(qp))
		connected := make(chan error, 1)
		go func() { connected <- first.Connect(soon(b.T), qp, cm.ConnParam{}) }()
		req, err := b.ln.Accept(soon(b.T))
		require.NoError(b, err)
		err = second.Connect(soon(b.T), qp, cm.ConnParam{})
		require.ErrorIs(b, err, verbs.ErrState)
		require.ErrorContains(b, err, "another connection is being made")
		var state *verbs.StateError
		require.ErrorAs(b, err, &state)
		require.Equal(b, verbs.QPStateInit, state.State)
		require.Equal(b, 1, fakeverbs.Calls("rdma_connect"))
		passive, err := req.Accept(soon(b.T), other, cm.ConnParam{})
		require.NoError(b, err)
		require.NoError(b, <-connected)
		require.NoError(b, passive.Close())
	})
}

// TestConnectBlocks: kernel siw connects its stream within rdma_connect; whatever cancels a Connect
// cancels it during this call too.
func TestConnectBlocks(t *testing.T) {
	for name, end := range map[string]struct {
		do func(b *bench, id *cm.ID, qp *verbs.QP, cancel func())
		is error
	}{
		"context": {func(_ *bench, _ *cm.ID, _ *verbs.QP, cancel func()) { cancel() }, context.Canceled},
		"Close": {func(b *bench, id *cm.ID, _ *verbs.QP, _ func()) { require.NoError(b, id.Close()) },
			verbs.ErrClosed},
		"QP fails": {func(b *bench, _ *cm.ID, qp *verbs.QP, _ func()) {
			require.NoError(b, qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState))
		}, verbs.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			eachFake(t, func(b *bench) {
				b.Cleanup(fakeverbs.Release)
				id, qp := b.resolve(cm.Config{}), b.qp(0)
				ctx, cancel := context.WithCancel(soon(b.T))
				fakeverbs.Hold("rdma_connect")
				connected := make(chan error, 1)
				go func() { connected <- id.Connect(ctx, qp, cm.ConnParam{}) }()
				b.until("rdma_connect waits", fakeverbs.Holding)
				end.do(b, id, qp, cancel)
				err := b.outcome(connected)
				require.True(b, fakeverbs.Holding(), "the call has not returned")
				require.ErrorIs(b, err, end.is)
				destroyed := fakeverbs.Calls("rdma_destroy_id")
				fakeverbs.Release()
				b.until("the ID is destroyed", func() bool { return fakeverbs.Calls("rdma_destroy_id") > destroyed })
			})
		})
	}
}

// heldSignals reports whether a thread of this process blocks the signals of Go's runtime, but not
// those that report the thread's own faults.
func heldSignals(t *testing.T) bool {
	t.Helper()
	threads, err := filepath.Glob("/proc/self/task/*/status")
	require.NoError(t, err)
	for _, path := range threads {
		status, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has exited
		}
		_, rest, found := strings.Cut(string(status), "SigBlk:\t")
		require.True(t, found)
		text, _, _ := strings.Cut(rest, "\n")
		mask, err := strconv.ParseUint(text, 16, 64)
		require.NoError(t, err)
		holds := func(s syscall.Signal) bool { return mask>>(s-1)&1 == 1 }
		if holds(syscall.SIGURG) && holds(syscall.SIGPROF) && holds(syscall.SIGTERM) && !holds(syscall.SIGSEGV) &&
			!holds(syscall.SIGABRT) {
			return true
		}
	}
	return false
}

// TestConnectSignals: no signal reaches the thread while it is in rdma_connect; afterwards all do.
func TestConnectSignals(t *testing.T) {
	eachFake(t, func(b *bench) {
		b.Cleanup(fakeverbs.Release)
		fakeverbs.Hold("rdma_connect")
		fakeverbs.CMNext("rdma_connect", silence)
		ctx, cancel := context.WithCancel(soon(b.T))
		connected := make(chan error, 1)
		go func() { connected <- b.resolve(cm.Config{}).Connect(ctx, b.qp(0), cm.ConnParam{}) }()
		b.until("rdma_connect waits", fakeverbs.Holding)
		b.until("its thread holds signals", func() bool { return heldSignals(b.T) })
		fakeverbs.Release()
		b.until("no thread does", func() bool { return !heldSignals(b.T) })
		cancel()
		require.ErrorIs(b, b.outcome(connected), context.Canceled)
	})
}

// TestConnectTooLate: if the context is already done, Connect contacts no peer and does not change
// the QP.
func TestConnectTooLate(t *testing.T) {
	eachFake(t, func(b *bench) {
		done, cancel := context.WithCancel(b.Context())
		cancel()
		qp := b.qp(0)
		require.ErrorIs(b, b.resolve(cm.Config{}).Connect(done, qp, cm.ConnParam{}), context.Canceled)
		require.Zero(b, fakeverbs.Calls("rdma_connect"))
		require.Equal(b, verbs.QPStateInit, qp.State())

		id, other := b.resolve(cm.Config{}), b.qp(0)
		connected := make(chan error, 1)
		go func() { connected <- id.Connect(soon(b.T), qp, cm.ConnParam{}) }()
		req, err := b.ln.Accept(soon(b.T))
		require.NoError(b, err)
		_, err = req.Accept(done, other, cm.ConnParam{})
		require.ErrorIs(b, err, context.Canceled)
		require.Zero(b, fakeverbs.Calls("rdma_accept"))
		require.Equal(b, verbs.QPStateInit, other.State())
		require.ErrorIs(b, <-connected, cm.ErrRejected, "the peer is told")
	})
}

// TestCloseWaitsForConnect: after Close has returned, nothing touches the QP.
func TestCloseWaitsForConnect(t *testing.T) {
	b := newBench(t, "fake1", "198.51.100.1", cm.Config{})
	t.Cleanup(fakeverbs.Release)
	id, qp := b.resolve(cm.Config{}), b.qp(0)
	require.NoError(t, id.BindQP(qp))
	fakeverbs.CMNext("rdma_connect", silence)
	called := b.untilCalled("rdma_connect")
	connected := make(chan error, 1)
	go func() { connected <- id.Connect(soon(t), qp, cm.ConnParam{}) }()
	wait(t, called.Done(), "the call")
	fakeverbs.Hold("ibv_modify_qp") // by which the attempt moves the QP to ERR
	closed := make(chan error, 1)
	go func() { closed <- id.Close() }()
	b.until("the attempt ends", fakeverbs.Holding)
	select {
	case <-closed:
		require.Fail(t, "Close has returned during the attempt")
	case <-id.Done():
		require.Fail(t, "Done is closed during the attempt")
	default:
	}
	fakeverbs.Release()
	require.NoError(t, <-closed)
	require.ErrorIs(t, <-connected, verbs.ErrClosed)
}

// TestTellsTheSRQ: both sides advertise whether their QP has a shared receive queue.
func TestTellsTheSRQ(t *testing.T) {
	eachFake(t, func(b *bench) {
		pd, err := b.vctx.AllocPD()
		require.NoError(b, err)
		b.Cleanup(func() { require.NoError(b, pd.Close()) })
		srq, err := pd.CreateSRQ(verbs.SRQAttr{MaxWR: 8, MaxSGE: 1})
		require.NoError(b, err)
		b.Cleanup(func() { require.NoError(b, srq.Close()) })
		cq, err := b.vctx.CreateCQ(verbs.CQConfig{})
		require.NoError(b, err)
		b.Cleanup(func() { require.NoError(b, cq.Close()) })
		shared := func() *verbs.QP {
			qp, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq, SRQ: srq})
			require.NoError(b, err)
			b.Cleanup(func() { require.NoError(b, qp.Close()) })
			return qp
		}
		for _, qps := range [][2]*verbs.QP{{shared(), b.qp(0)}, {b.qp(0), shared()}} {
			active, passive := b.join(qps[0], qps[1], cm.ConnParam{}, cm.ConnParam{})
			for i, id := range []*cm.ID{active, passive} {
				told := b.idOf(id.QP()).Param.SRQ != 0
				require.Equal(b, qps[i].SRQ() != nil, told)
			}
		}
	})
}

// TestQPFailsWhileConnecting: an attempt ends when its QP fails or is closed, and its error says
// so.
func TestQPFailsWhileConnecting(t *testing.T) {
	eachFake(t, func(b *bench) {
		id, qp := b.resolve(cm.Config{}), b.qp(0)
		fakeverbs.CMNext("rdma_connect", silence)
		called := b.untilCalled("rdma_connect")
		connected := make(chan error, 1)
		go func() { connected <- id.Connect(context.Background(), qp, cm.ConnParam{}) }()
		wait(b.T, called.Done(), "the call")
		require.NoError(b, qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState))
		err := b.outcome(connected)
		require.ErrorIs(b, err, verbs.ErrClosed)
		require.ErrorContains(b, err, "the QP failed or was closed during connection set-up")
	})
}

// TestRefusalBehindFailure: librdmacm moves the QP of a refused attempt to ERR before the refusal
// is visible. Connect still returns the refusal, if it arrives soon after that, which a busy
// machine does not always allow.
func TestRefusalBehindFailure(t *testing.T) {
	eachFake(t, func(b *bench) {
		attempt := func() error {
			id, qp := b.resolve(cm.Config{}), b.qp(0)
			fakeverbs.CMNext("rdma_connect", silence)
			called := b.untilCalled("rdma_connect")
			connected := make(chan error, 1)
			go func() { connected <- id.Connect(context.Background(), qp, cm.ConnParam{}) }()
			wait(b.T, called.Done(), "the call")
			require.NoError(b, qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState))
			refusal := fakeverbs.CMEvent{Event: int(cm.EventRejected), Status: -int(syscall.ECONNREFUSED)}
			require.True(b, fakeverbs.InjectCM(last(b.T, fakeverbs.CMConnecting).ID, refusal))
			return b.outcome(connected)
		}
		for range 20 {
			if rejected := new(cm.RejectedError); errors.As(attempt(), &rejected) {
				return
			}
		}
		require.Fail(b, "no refusal was seen")
	})
}

// TestRefusalDuringCall: like TestRefusalBehindFailure, while rdma_connect has not returned, or its
// return has not been noticed.
func TestRefusalDuringCall(t *testing.T) {
	eachFake(t, func(b *bench) {
		b.Cleanup(fakeverbs.Release)
		attempt := func() error {
			id, qp := b.resolve(cm.Config{}), b.qp(0)
			ids := fakeverbs.CMIDs()
			fakeverbs.Hold("rdma_connect")
			connected := make(chan error, 1)
			go func() { connected <- id.Connect(context.Background(), qp, cm.ConnParam{}) }()
			b.until("rdma_connect waits", fakeverbs.Holding)
			require.NoError(b, qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState))
			refusal := fakeverbs.CMEvent{Event: int(cm.EventRejected), Status: -int(syscall.ECONNREFUSED)}
			require.True(b, fakeverbs.InjectCM(ids[len(ids)-1].ID, refusal))
			err := b.outcome(connected)
			require.True(b, fakeverbs.Holding(), "the call has not returned")
			destroyed := fakeverbs.Calls("rdma_destroy_id")
			fakeverbs.Release()
			b.until("the ID is destroyed", func() bool { return fakeverbs.Calls("rdma_destroy_id") > destroyed })
			return err
		}
		for range 20 {
			if rejected := new(cm.RejectedError); errors.As(attempt(), &rejected) {
				return
			}
		}
		require.Fail(b, "no refusal was seen")
	})
}

// TestAddrChangeWhileConnecting: the event for a changed network interface does not end an attempt.
func TestAddrChangeWhileConnecting(t *testing.T) {
	eachFake(t, func(b *bench) {
		id, qp, other := b.resolve(cm.Config{}), b.qp(0), b.qp(0)
		connected := make(chan error, 1)
		go func() { connected <- id.Connect(soon(b.T), qp, cm.ConnParam{}) }()
		req, err := b.ln.Accept(soon(b.T))
		require.NoError(b, err)
		for _, event := range []int{int(cm.EventAddrChange), 77} { // 77 = an event of a newer kernel
			change := fakeverbs.CMEvent{Event: event}
			require.True(b, fakeverbs.InjectCM(last(b.T, fakeverbs.CMConnecting).ID, change))
			require.True(b, fakeverbs.InjectCM(last(b.T, fakeverbs.CMRequested).ID, change))
		}
		passive, err := req.Accept(soon(b.T), other, cm.ConnParam{})
		require.NoError(b, err)
		require.NoError(b, b.outcome(connected))
		require.NoError(b, passive.Close())
	})
}

// TestWrongTypeOfQP: connections need RC QPs and datagrams UD QPs, in any state.
func TestWrongTypeOfQP(t *testing.T) {
	b := newBench(t, "fake0", "192.0.2.1", cm.Config{})
	init := func(typ verbs.QPType) *verbs.QP {
		qp := b.qp(typ)
		attr := verbs.QPAttr{State: verbs.QPStateInit, PortNum: 1}
		mask := verbs.QPAttrState | verbs.QPAttrPKeyIndex | verbs.QPAttrPort
		if typ == verbs.QPTypeUD {
			mask |= verbs.QPAttrQKey
		} else {
			mask |= verbs.QPAttrAccessFlags
		}
		require.NoError(t, qp.Modify(attr, mask))
		return qp
	}
	for _, c := range []struct {
		space cm.PortSpace
		typ   verbs.QPType
		text  string
	}{
		{cm.PortSpaceTCP, verbs.QPTypeUD, "UD in port space tcp"},
		{cm.PortSpaceTCP, verbs.QPTypeUC, "UC in port space tcp"},
		{cm.PortSpaceUDP, verbs.QPTypeRC, "RC in port space udp"},
	} {
		err := b.resolve(cm.Config{PortSpace: c.space}).Connect(soon(t), init(c.typ), cm.ConnParam{})
		require.ErrorIs(t, err, verbs.ErrInvalid, c.text)
		require.ErrorContains(t, err, c.text)
	}
	group := netip.MustParseAddr("239.1.2.3")
	for space, typ := range map[cm.PortSpace]verbs.QPType{cm.PortSpaceTCP: verbs.QPTypeUD,
		cm.PortSpaceUDP: verbs.QPTypeRC} {
		_, err := b.resolve(cm.Config{PortSpace: space}).JoinMulticast(soon(t), init(typ), group)
		require.ErrorIs(t, err, verbs.ErrInvalid)
		require.ErrorContains(t, err, "multicast takes a UD QP and port space udp")
	}
}
