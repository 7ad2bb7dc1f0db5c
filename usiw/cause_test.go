// SPDX-License-Identifier: BSD-3-Clause

package usiw_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/usiw/usiwtest"
	"github.com/goverbs/goverbs/verbs"
)

// awaitEnd waits until the connections of both ends have ended.
func awaitEnd(t *testing.T, p *usiwtest.Pair) {
	t.Helper()
	for _, e := range []*usiwtest.End{p.A, p.B} {
		select {
		case <-e.ID.Done():
		case <-time.After(30 * time.Second):
			require.FailNow(t, "the connection does not end")
		}
	}
}

// doFails executes requests until one fails, and returns its completion.
func doFails(t *testing.T, e *usiwtest.End, wrs ...verbs.SendWR) verbs.WC {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	wc, err := e.Do(ctx, wrs...)
	require.NoError(t, err)
	require.NotEqual(t, verbs.WCSuccess, wc.Status)
	return wc
}

// sgeOf returns an element that covers a separate region, which is closed when the test ends.
func sgeOf(t *testing.T, pd *verbs.PD, access verbs.AccessFlags) (verbs.SGE, *verbs.MR) {
	t.Helper()
	mr, err := pd.AllocMR(4096, access)
	require.NoError(t, err)
	sge, err := mr.SGE(16, 64)
	require.NoError(t, err)
	return sge, mr
}

// TestCauseLocal: if local memory does not permit a request, its cause names the element, key,
// address and right.
func TestCauseLocal(t *testing.T) {
	for _, c := range []struct {
		name   string
		make   func(t *testing.T, p *usiwtest.Pair) (verbs.SendWR, verbs.SGE)
		fault  verbs.AccessFault
		right  verbs.AccessFlags
		opcode verbs.WCOpcode
	}{
		{"unknown key", func(t *testing.T, p *usiwtest.Pair) (verbs.SendWR, verbs.SGE) {
			return verbs.SendWR{Opcode: verbs.WRSend}, verbs.SGE{Addr: 0x1000, Length: 8, LKey: 0x2a}
		}, verbs.AccessBadKey, 0, verbs.WCSend},
		{"closed region", func(t *testing.T, p *usiwtest.Pair) (verbs.SendWR, verbs.SGE) {
			sge, mr := sgeOf(t, p.A.PD, 0)
			require.NoError(t, mr.Close())
			return verbs.SendWR{Opcode: verbs.WRRDMAWrite}, sge
		}, verbs.AccessBadKey, 0, verbs.WCRDMAWrite},
		{"one byte past the end", func(t *testing.T, p *usiwtest.Pair) (verbs.SendWR, verbs.SGE) {
			sge, mr := sgeOf(t, p.A.PD, 0)
			sge.Addr = mr.Addr() + 4096 - 63
			return verbs.SendWR{Opcode: verbs.WRRDMAWriteWithImm}, sge
		}, verbs.AccessBounds, 0, verbs.WCRDMAWrite},
		{"beyond 64 bits", func(t *testing.T, p *usiwtest.Pair) (verbs.SendWR, verbs.SGE) {
			sge, _ := sgeOf(t, p.A.PD, 0)
			sge.Addr = 1<<64 - 8
			return verbs.SendWR{Opcode: verbs.WRSend}, sge
		}, verbs.AccessWraps, 0, verbs.WCSend},
		{"another domain", func(t *testing.T, p *usiwtest.Pair) (verbs.SendWR, verbs.SGE) {
			pd, err := p.A.Context.AllocPD()
			require.NoError(t, err)
			sge, _ := sgeOf(t, pd, 0)
			return verbs.SendWR{Opcode: verbs.WRSend}, sge
		}, verbs.AccessForeign, 0, verbs.WCSend},
		{"inline", func(t *testing.T, p *usiwtest.Pair) (verbs.SendWR, verbs.SGE) {
			return verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline},
				verbs.SGE{Addr: 0x1000, Length: 8, LKey: 0x2a}
		}, verbs.AccessBadKey, 0, verbs.WCSend},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := usiwtest.Connect(t, usiwtest.PairConfig{Cap: verbs.QPCap{MaxSendSGE: 2, MaxInlineData: 128}})
			wr, bad := c.make(t, p)
			good, err := p.A.MR.SGE(0, 4)
			require.NoError(t, err)
			wr.ID, wr.SGL = 7, []verbs.SGE{good, bad}
			requireCause(t, p, wr, c.opcode,
				&verbs.AccessError{Fault: c.fault, Key: bad.LKey, Addr: bad.Addr, Length: uint64(bad.Length),
					Right: c.right, Element: 1})
		})
	}
	t.Run("no right to write", func(t *testing.T) {
		p := usiwtest.Connect(t, usiwtest.PairConfig{})
		sge, _ := sgeOf(t, p.A.PD, 0)
		requireCause(t, p, verbs.SendWR{ID: 7, Opcode: verbs.WRRDMARead, SGL: []verbs.SGE{sge},
			RemoteAddr: p.B.MR.Addr(), RKey: p.B.MR.RKey()}, verbs.WCRDMARead,
			&verbs.AccessError{Fault: verbs.AccessMissingRight, Key: sge.LKey, Addr: sge.Addr, Length: 64,
				Right: verbs.AccessLocalWrite})
	})
	t.Run("window", func(t *testing.T) {
		p := usiwtest.Connect(t, usiwtest.PairConfig{})
		mw, err := p.A.PD.AllocMW(verbs.MWType2)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		wc, err := p.A.Do(ctx, verbs.SendWR{Opcode: verbs.WRBindMW, RKey: mw.NextRKey(),
			Bind: &verbs.MWBind{MW: mw, MR: p.A.MR, Addr: p.A.MR.Addr(), Length: 64}})
		require.NoError(t, err)
		require.NoError(t, p.A.QP.Cause(&wc), "a request that has succeeded has none")
		requireCause(t, p, verbs.SendWR{ID: 7, Opcode: verbs.WRSend,
			SGL: []verbs.SGE{{Addr: p.A.MR.Addr(), Length: 8, LKey: mw.RKey()}}}, verbs.WCSend,
			&verbs.AccessError{Fault: verbs.AccessOfWindow, Key: mw.RKey(), Addr: p.A.MR.Addr(), Length: 8})
	})
	t.Run("invalidate a region", func(t *testing.T) {
		p := usiwtest.Connect(t, usiwtest.PairConfig{})
		wc := doFails(t, p.A, verbs.SendWR{ID: 7, Opcode: verbs.WRLocalInv, InvalidateRKey: p.A.MR.RKey()})
		var access *verbs.AccessError
		require.ErrorAs(t, p.A.QP.Cause(&wc), &access)
		require.Equal(t, &verbs.AccessError{Fault: verbs.AccessNoInvalidate, Key: p.A.MR.RKey(), Element: -1}, access)
	})
	t.Run("no depth", func(t *testing.T) {
		p := usiwtest.Connect(t, usiwtest.PairConfig{AParam: cm.ConnParam{InitiatorDepth: cm.None}, B: usiw.Config{}})
		wc := doFails(t, p.A, verbs.SendWR{ID: 7, Opcode: verbs.WRRDMARead})
		err := p.A.QP.Cause(&wc)
		require.ErrorIs(t, err, verbs.WCLocQPOpErr)
		require.ErrorIs(t, err, verbs.ErrLimit)
		require.ErrorContains(t, err, "ORD")
	})
}

// requireCause posts a request that fails at once, and requires that its cause and QP.Err contain
// the access.
func requireCause(t *testing.T, p *usiwtest.Pair, wr verbs.SendWR, opcode verbs.WCOpcode, want *verbs.AccessError) {
	t.Helper()
	wc := doFails(t, p.A, wr)
	err := p.A.QP.Cause(&wc)
	var request *verbs.RequestError
	require.ErrorAs(t, err, &request)
	require.Equal(t, verbs.RequestError{QPNum: p.A.QP.Num(), ID: wr.ID, Status: verbs.WCLocProtErr, Opcode: opcode,
		Known: true, Reason: request.Reason}, *request)
	require.ErrorIs(t, err, verbs.WCLocProtErr)
	var access *verbs.AccessError
	require.ErrorAs(t, err, &access)
	require.Equal(t, want, access)
	require.ErrorContains(t, err, want.Error())
	require.ErrorContains(t, p.A.QP.Err(), want.Error())
	require.NoError(t, p.A.QP.Close())
	require.Equal(t, err, p.A.QP.Cause(&wc), "also when the QP is closed")
}

// TestCauseRemote: both sides report an access that the peer's memory does not permit: the cause of
// the request if it waits for a response, and the Terminate.
func TestCauseRemote(t *testing.T) {
	for _, op := range []struct {
		opcode verbs.WROpcode
		done   verbs.WCOpcode
		length uint32
		right  verbs.AccessFlags
	}{
		{verbs.WRRDMAWrite, verbs.WCRDMAWrite, 64, verbs.AccessRemoteWrite},
		{verbs.WRRDMARead, verbs.WCRDMARead, 64, verbs.AccessRemoteRead},
		{verbs.WRAtomicFetchAndAdd, verbs.WCFetchAdd, 8, verbs.AccessRemoteAtomic},
	} {
		for _, c := range []struct {
			name string
			make func(t *testing.T, p *usiwtest.Pair) (addr uint64, rkey uint32)
			here verbs.AccessFault // at B
			far  verbs.AccessFault // at A
		}{
			{"unknown key", func(t *testing.T, p *usiwtest.Pair) (uint64, uint32) { return 0x1000, 0x2a },
				verbs.AccessBadKey, verbs.AccessBadKey},
			{"past the end", func(t *testing.T, p *usiwtest.Pair) (uint64, uint32) {
				return p.B.MR.Addr() + uint64(p.B.MR.Len()), p.B.MR.RKey()
			}, verbs.AccessBounds, verbs.AccessBounds},
			{"no right", func(t *testing.T, p *usiwtest.Pair) (uint64, uint32) {
				mr, err := p.B.PD.AllocMR(4096, verbs.AccessLocalWrite)
				require.NoError(t, err)
				return mr.Addr(), mr.RKey()
			}, verbs.AccessMissingRight, verbs.AccessMissingRight},
			{"not by this QP", func(t *testing.T, p *usiwtest.Pair) (uint64, uint32) {
				require.NoError(t, p.B.QP.Modify(verbs.QPAttr{}, verbs.QPAttrAccessFlags))
				return p.B.MR.Addr(), p.B.MR.RKey()
			}, verbs.AccessQPRight, verbs.AccessMissingRight},
			{"another domain", func(t *testing.T, p *usiwtest.Pair) (uint64, uint32) {
				pd, err := p.B.Context.AllocPD()
				require.NoError(t, err)
				mr, err := pd.AllocMR(4096, usiwtest.AllAccess)
				require.NoError(t, err)
				return mr.Addr(), mr.RKey()
			}, verbs.AccessForeign, verbs.AccessForeign},
			{"misaligned", func(t *testing.T, p *usiwtest.Pair) (uint64, uint32) {
				return p.B.MR.Addr() + 4, p.B.MR.RKey()
			}, verbs.AccessMisaligned, verbs.AccessMisaligned},
		} {
			status := verbs.WCRemAccessErr
			if c.here == verbs.AccessMisaligned {
				if op.opcode != verbs.WRAtomicFetchAndAdd {
					continue
				}
				status = verbs.WCRemInvReqErr
			}
			t.Run(op.opcode.String()+"/"+c.name, func(t *testing.T) {
				p := usiwtest.Connect(t, usiwtest.PairConfig{})
				addr, rkey := c.make(t, p)
				sge, err := p.A.MR.SGE(0, int(op.length))
				require.NoError(t, err)
				wr := verbs.SendWR{ID: 7, Opcode: op.opcode, SGL: []verbs.SGE{sge}, RemoteAddr: addr, RKey: rkey}
				want := verbs.AccessError{Fault: c.here, Key: rkey, Addr: addr, Length: uint64(op.length), Element: -1}
				if c.far == verbs.AccessMissingRight {
					want.Right = op.right
				}
				far := want
				far.Fault = c.far
				if op.opcode == verbs.WRRDMAWrite { // succeeds once it has been sent
					_, err := p.A.QP.PostSend([]verbs.SendWR{wr})
					require.NoError(t, err)
				} else {
					wc := doFails(t, p.A, wr)
					cause := p.A.QP.Cause(&wc)
					require.ErrorIs(t, cause, status)
					var request *verbs.RequestError
					require.ErrorAs(t, cause, &request)
					require.True(t, request.Known)
					require.Equal(t, op.done, request.Opcode)
					requireAccess(t, far, true, cause)
				}
				awaitEnd(t, p)
				requireAccess(t, far, true, p.A.QP.Err())
				requireAccess(t, want, false, p.B.QP.Err())
				requireAccess(t, want, false, p.B.ID.Err())
			})
		}
	}
}

// requireAccess requires that an error contains a Terminate, sent by the given side, that names the
// access.
func requireAccess(t *testing.T, want verbs.AccessError, remote bool, err error) {
	t.Helper()
	var term *verbs.TerminateError
	require.ErrorAs(t, err, &term)
	require.Equal(t, remote, term.Remote)
	var access *verbs.AccessError
	require.ErrorAs(t, err, &access)
	require.Equal(t, &want, access)
	require.ErrorContains(t, err, want.Error())
}

// TestCauseReceive: a receive is too short, or its memory is gone.
func TestCauseReceive(t *testing.T) {
	for _, short := range []bool{true, false} {
		p := usiwtest.Connect(t, usiwtest.PairConfig{Cap: verbs.QPCap{MaxRecvSGE: 2}})
		first, err := p.B.MR.SGE(0, 8)
		require.NoError(t, err)
		second, mr := sgeOf(t, p.B.PD, verbs.AccessLocalWrite)
		if short {
			second.Length = 2
		}
		_, err = p.B.QP.PostRecv([]verbs.RecvWR{{ID: 9, SGL: []verbs.SGE{first, second}}})
		require.NoError(t, err)
		if !short {
			require.NoError(t, mr.Close())
		}
		src, err := p.A.MR.SGE(0, 32)
		require.NoError(t, err)
		_, err = p.A.QP.PostSend([]verbs.SendWR{{Opcode: verbs.WRSend, SGL: []verbs.SGE{src}}})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		wc, err := usiwtest.Next(ctx, p.B.RecvCQ)
		require.NoError(t, err)
		cause := p.B.QP.Cause(&wc)
		var request *verbs.RequestError
		require.ErrorAs(t, cause, &request)
		require.True(t, request.Known)
		require.Equal(t, verbs.WCRecv, request.Opcode)
		require.Equal(t, uint64(9), request.ID)
		if short {
			require.ErrorIs(t, cause, verbs.WCLocLenErr)
			var limit *verbs.LimitError
			require.ErrorAs(t, cause, &limit)
			require.Equal(t, &verbs.LimitError{Name: "bytes of the receive", Limit: 10, Value: 32}, limit)
			continue
		}
		var access *verbs.AccessError
		require.ErrorAs(t, cause, &access)
		require.Equal(t, &verbs.AccessError{Fault: verbs.AccessBadKey, Key: second.LKey, Addr: second.Addr, Length: 64,
			Element: 1}, access)
	}
}

// TestCauseFlushed: a flushed request has the reason why the connection ended, while a completion
// of another QP has none.
func TestCauseFlushed(t *testing.T) {
	p := usiwtest.Connect(t,
		usiwtest.PairConfig{Cap: verbs.QPCap{MaxInlineData: 8}, Before: func(p *usiwtest.Pair) error {
			_, err := p.A.QP.PostRecv([]verbs.RecvWR{{ID: 3}})
			return err
		}})
	wc := doFails(t, p.A, verbs.SendWR{ID: 7, Opcode: verbs.WRSend, SGL: []verbs.SGE{{Addr: 1, Length: 1, LKey: 0x2a}}})
	first := p.A.QP.Cause(&wc)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	wc, err := usiwtest.Next(ctx, p.A.RecvCQ)
	require.NoError(t, err)
	require.Equal(t, verbs.WCWRFlushErr, wc.Status)
	cause := p.A.QP.Cause(&wc)
	require.ErrorIs(t, cause, verbs.WCWRFlushErr)
	require.ErrorIs(t, cause, p.A.QP.Err())
	var access, same *verbs.AccessError
	require.ErrorAs(t, first, &access)
	require.ErrorAs(t, cause, &same, "what ended the QP")
	require.Equal(t, access, same)
	// A request posted now fails for a reason of its own.
	_, err = p.A.QP.PostSend(
		[]verbs.SendWR{{ID: 8, Opcode: verbs.WRSend, Flags: verbs.SendInline,
			SGL: []verbs.SGE{{Addr: 2, Length: 1, LKey: 0x2b}}}})
	require.NoError(t, err)
	inline, err := usiwtest.Next(ctx, p.A.SendCQ)
	require.NoError(t, err)
	require.Equal(t, verbs.WCLocProtErr, inline.Status)
	require.ErrorAs(t, p.A.QP.Cause(&inline), &same)
	require.Equal(t, uint32(0x2b), same.Key)
	require.ErrorIs(t, p.B.QP.Cause(&wc), verbs.ErrInvalid)
	require.NoError(t, p.A.QP.Cause(nil))

	require.NoError(t, p.A.QP.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPAttrState))
	wc.ID, wc.Status = 7, verbs.WCLocProtErr
	var request *verbs.RequestError
	require.ErrorAs(t, p.A.QP.Cause(&wc), &request)
	require.False(t, request.Known, "a reset QP remembers nothing")
}

// TestErrAfterDrain: QP.Err names what ended the QP, and a later Drain does not change it.
func TestErrAfterDrain(t *testing.T) {
	drain := func(t *testing.T, e *usiwtest.End) error {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		require.NoError(t, e.QP.Drain(ctx))
		return e.QP.Err()
	}
	t.Run("nothing else", func(t *testing.T) {
		p := usiwtest.Connect(t, usiwtest.PairConfig{})
		err := drain(t, p.A)
		require.Equal(t, verbs.EndModify, err)
		require.ErrorIs(t, err, verbs.ErrClosed)
		require.ErrorIs(t, err, net.ErrClosed)
		require.EqualError(t, err, "ended by this side: the QP was moved to ERR")
		require.NoError(t, p.A.QP.Close())
		require.Equal(t, verbs.EndModify, p.A.QP.Err())
		awaitEnd(t, p)
		require.Equal(t, io.EOF, drain(t, p.B), "the peer has ended it")
	})
	t.Run("disconnect", func(t *testing.T) {
		p := usiwtest.Connect(t, usiwtest.PairConfig{})
		require.NoError(t, p.A.ID.Disconnect())
		require.Equal(t, verbs.EndDisconnect, drain(t, p.A))
	})
	t.Run("close", func(t *testing.T) {
		p := usiwtest.Connect(t, usiwtest.PairConfig{})
		require.NoError(t, p.A.QP.Close())
		require.Equal(t, verbs.EndClose, p.A.QP.Err())
	})
	t.Run("NIC", func(t *testing.T) {
		p := usiwtest.Connect(t, usiwtest.PairConfig{})
		require.NoError(t, p.A.NIC.Close())
		require.ErrorIs(t, p.A.QP.Err(), verbs.ErrClosed)
		require.EqualError(t, p.A.QP.Err(), "ended by this side: the NIC was closed")
	})
	t.Run("fault", func(t *testing.T) {
		p := usiwtest.Connect(t, usiwtest.PairConfig{})
		doFails(t, p.A, verbs.SendWR{Opcode: verbs.WRSend, SGL: []verbs.SGE{{Addr: 1, Length: 1, LKey: 0x2a}}})
		var access *verbs.AccessError
		require.ErrorAs(t, drain(t, p.A), &access)
		awaitEnd(t, p)
		var term *verbs.TerminateError
		require.ErrorAs(t, drain(t, p.B), &term)
	})
	t.Run("cut", func(t *testing.T) {
		p := usiwtest.Connect(t, usiwtest.PairConfig{})
		p.Link.Cut()
		awaitEnd(t, p)
		require.False(t, errors.Is(drain(t, p.A), verbs.ErrClosed))
	})
}
