// SPDX-License-Identifier: BSD-3-Clause

package ext_test

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/internal/iwarp/ddp"
	"github.com/goverbs/goverbs/internal/iwarp/mpa"
	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/usiw/usiwtest"
	"github.com/goverbs/goverbs/verbs"
)

// usable asserts that the connection still works.
func usable(t *testing.T, a, b side) {
	require.Equal(t, verbs.QPStateRTS, a.QP.State())
	before := b.word(9)
	wc := a.do(t, ext.FetchAddWR(b.there(9), 1, a.sink(t, 0)...))
	require.NoError(t, wc.Err())
	require.Equal(t, before+1, b.word(9))
}

func TestProbeSupported(t *testing.T) {
	for _, c := range []struct {
		name                 string
		oneCQ, sharedChannel bool
	}{{"two CQs", false, false}, {"one CQ", true, false}, {"shared channel", false, true}} {
		t.Run(c.name, func(t *testing.T) {
			a, b, _ := connect(t, usiwtest.PairConfig{OneCQ: c.oneCQ, SharedChannel: c.sharedChannel})
			b.setWord(0, 0x123456789abcdef0)
			for range 2 {
				res, err := ext.Probe(testContext(t), a.QP, b.addr(0), b.MR.RKey())
				require.NoError(t, err)
				require.Equal(t, ext.ProbeResult{Outcome: ext.Supported, Value: 0x123456789abcdef0}, res)
			}
			require.EqualValues(t, 0x123456789abcdef0, b.word(0))
			if !c.sharedChannel {
				usable(t, a, b)
			}
		})
	}
}

func TestProbeNotSupported(t *testing.T) {
	a, b := pair(t, usiw.Config{}, usiw.Config{Without: ext.Atomics})
	res, err := ext.Probe(testContext(t), a.QP, b.addr(0), b.MR.RKey())
	require.NoError(t, err)
	require.Equal(t, ext.NotSupported, res.Outcome)
	require.ErrorIs(t, res.Reason, verbs.WCRemInvReqErr)
	require.ErrorIs(t, res.Reason, &verbs.TerminateError{Layer: 0, Type: 2, Code: 6, Remote: true})
	require.Equal(t, verbs.QPStateErr, a.QP.State(), "a refusal costs the connection")
}

func TestProbeUndecided(t *testing.T) {
	for _, c := range []struct {
		name   string
		offset uint64
		key    uint32
		typ    uint8
		code   uint8
		status verbs.WCStatus
	}{
		{"unknown key", 0, 0x100, 1, 0, verbs.WCRemAccessErr},
		{"one byte past the region", regionSize - 7, 0, 1, 1, verbs.WCRemAccessErr},
		{"misaligned", 4, 0, 2, 7, verbs.WCRemInvReqErr},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := pair(t, usiw.Config{}, usiw.Config{})
			res, err := ext.Probe(testContext(t), a.QP, b.addr(0)+c.offset, b.MR.RKey()^c.key)
			require.NoError(t, err)
			require.Equal(t, ext.Undecided, res.Outcome)
			require.ErrorIs(t, res.Reason, c.status)
			require.ErrorIs(t, res.Reason, &verbs.TerminateError{Layer: 0, Type: c.typ, Code: c.code, Remote: true})
		})
	}
}

// A region without the access right reveals nothing about the peer either.
func TestProbeWithoutTheRight(t *testing.T) {
	a, b := pair(t, usiw.Config{}, usiw.Config{})
	mr, err := b.PD.AllocMR(8, verbs.AccessLocalWrite|verbs.AccessRemoteRead|verbs.AccessRemoteWrite)
	require.NoError(t, err)
	res, err := ext.Probe(testContext(t), a.QP, mr.Addr(), mr.RKey())
	require.NoError(t, err)
	require.Equal(t, ext.Undecided, res.Outcome)
	require.ErrorIs(t, res.Reason, &verbs.TerminateError{Layer: 0, Type: 1, Code: 2, Remote: true})
}

// Receives flushed into the same CQ are not lost.
func TestProbeReturnsOtherCompletions(t *testing.T) {
	a, b, _ := connect(t, usiwtest.PairConfig{OneCQ: true})
	_, err := a.QP.PostRecv([]verbs.RecvWR{{ID: 77}, {ID: 78}})
	require.NoError(t, err)
	sent := b.do(t, ext.ImmDataWR(5))
	require.NoError(t, sent.Err())
	// The immediate precedes the probe's response on the stream, and therefore in the CQ.
	res, err := ext.Probe(testContext(t), a.QP, b.addr(0), b.MR.RKey())
	require.NoError(t, err)
	require.Equal(t, ext.Supported, res.Outcome)
	require.Len(t, res.Others, 1)
	require.EqualValues(t, 77, res.Others[0].ID)
	require.EqualValues(t, 5, res.Others[0].Imm64)
}

// Receives flushed by the refusal are not lost either.
func TestProbeLosesNoCompletion(t *testing.T) {
	a, b, _ := connect(t, usiwtest.PairConfig{OneCQ: true, B: usiw.Config{Without: ext.Atomics}})
	recvs := make([]verbs.RecvWR, 20)
	n, err := a.QP.PostRecv(recvs)
	require.NoError(t, err)
	require.Equal(t, len(recvs), n)
	res, err := ext.Probe(testContext(t), a.QP, b.addr(0), b.MR.RKey())
	require.NoError(t, err)
	require.Equal(t, ext.NotSupported, res.Outcome)
	for range len(recvs) - len(res.Others) {
		wc := one(t, a.SendCQ)
		require.ErrorIs(t, wc.Err(), verbs.WCWRFlushErr)
	}
	n, err = a.SendCQ.Poll(make([]verbs.WC, 1))
	require.NoError(t, err)
	require.Zero(t, n)
}

func TestProbeRefusedLocally(t *testing.T) {
	t.Run("device without FetchAdd", func(t *testing.T) {
		a, b := pair(t, usiw.Config{Without: ext.Atomics}, usiw.Config{})
		res, err := ext.Probe(testContext(t), a.QP, b.addr(0), b.MR.RKey())
		require.ErrorIs(t, err, verbs.ErrNotSupported)
		require.Equal(t, ext.ProbeResult{}, res)
		require.Equal(t, verbs.QPStateRTS, a.QP.State())
	})
	t.Run("not connected", func(t *testing.T) {
		_, err := ext.Probe(testContext(t), newQP(t), 0, 0)
		require.ErrorIs(t, err, verbs.ErrState)
		require.ErrorContains(t, err, "RESET")
	})
	t.Run("disconnected", func(t *testing.T) {
		a, b := pair(t, usiw.Config{}, usiw.Config{})
		require.NoError(t, a.ID.Disconnect())
		_, err := ext.Probe(testContext(t), a.QP, b.addr(0), b.MR.RKey())
		require.ErrorIs(t, err, verbs.ErrState)
	})
	t.Run("closed", func(t *testing.T) {
		qp := newQP(t)
		require.NoError(t, qp.Close())
		_, err := ext.Probe(testContext(t), qp, 0, 0)
		require.ErrorIs(t, err, verbs.ErrClosed)
	})
	t.Run("no QP", func(t *testing.T) {
		_, err := ext.Probe(testContext(t), nil, 0, 0)
		require.ErrorIs(t, err, verbs.ErrInvalid)
	})
	t.Run("context done before", func(t *testing.T) {
		a, b := pair(t, usiw.Config{}, usiw.Config{})
		ctx, cancel := context.WithCancel(testContext(t))
		cancel()
		_, err := ext.Probe(ctx, a.QP, b.addr(0), b.MR.RKey())
		require.ErrorIs(t, err, context.Canceled)
		usable(t, a, b)
	})
}

// The connection allows no Reads or atomics in progress.
func TestProbeWithoutDepth(t *testing.T) {
	a, b, _ := connect(t, usiwtest.PairConfig{AParam: cm.ConnParam{InitiatorDepth: cm.None},
		BParam: cm.ConnParam{ResponderResources: cm.None}})
	_, err := ext.Probe(testContext(t), a.QP, b.addr(0), b.MR.RKey())
	require.ErrorIs(t, err, verbs.ErrLimit)
	require.Equal(t, verbs.QPStateRTS, a.QP.State())
}

// The wire stops delivering to the peer: ctx ends the probe and the connection, and nothing stays
// registered.
func TestProbeGivenUp(t *testing.T) {
	for _, c := range []struct {
		name                 string
		oneCQ, sharedChannel bool
	}{{"own channel", false, false}, {"shared channel", true, true}} {
		t.Run(c.name, func(t *testing.T) {
			nic := usiw.Config{CloseTimeout: 100 * time.Millisecond}
			a, b, link := connect(t,
				usiwtest.PairConfig{A: nic, B: nic, OneCQ: c.oneCQ, SharedChannel: c.sharedChannel})
			link.ToListener.Stall()
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			defer cancel()
			start := time.Now()
			_, err := ext.Probe(ctx, a.QP, b.addr(0), b.MR.RKey())
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Less(t, time.Since(start), 5*time.Second)
			require.Equal(t, verbs.QPStateErr, a.QP.State())
			n, err := a.SendCQ.Poll(make([]verbs.WC, 1))
			require.NoError(t, err)
			require.Zero(t, n, "the probe's completion has been taken")
			require.NoError(t, a.MR.Close())
			require.NoError(t, a.QP.Close())
			require.NoError(t, a.PD.Close(), "no region is left")
		})
	}
}

// Other implementations refuse without quoting a header, and kernel siw swaps layer and type.
func TestProbeRefusedByOthers(t *testing.T) {
	for _, c := range []struct {
		name string
		term []byte
		want ext.Outcome
	}{
		{"as the RFC has it", []byte{0x02, 0x06, 0, 0}, ext.NotSupported},
		{"siw of Linux", []byte{0x20, 0x06, 0, 0}, ext.NotSupported},
		{"another operation error", []byte{0x02, 0xff, 0, 0}, ext.Undecided},
		{"code 6 of another layer", []byte{0x12, 0x06, 0, 0}, ext.Undecided},
		{"connection closed", nil, ext.Undecided},
	} {
		t.Run(c.name, func(t *testing.T) {
			nic := usiw.Config{CloseTimeout: 100 * time.Millisecond}
			a, b, link := connect(t, usiwtest.PairConfig{A: nic, B: nic})
			// b does not see the probe; a substitute responds in its place.
			link.ToListener.Stall()
			answers := replyOnce(t, link, c.term)
			res, err := ext.Probe(testContext(t), a.QP, b.addr(0), b.MR.RKey())
			require.NoError(t, err)
			require.Equal(t, c.want, res.Outcome)
			require.Error(t, res.Reason)
			if c.term == nil {
				require.ErrorIs(t, res.Reason, io.EOF)
			}
			<-answers
		})
	}
}

// replyOnce waits until the dialling side sends something, responds with a Terminate message that
// has the given header (no message if header is nil), and ends the stream. It then closes the
// channel.
func replyOnce(t *testing.T, link *usiwtest.Link, header []byte) <-chan struct{} {
	before := link.ToListener.Written()
	ctx := testContext(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for link.ToListener.Written() == before && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		end := link.ToDialer.Written()
		if header != nil {
			link.ToDialer.Insert(end, terminateFPDU(header))
		}
		link.ToDialer.EndAt(end)
	}()
	return done
}

// terminateFPDU returns the FPDU of a Terminate message with the given header, as the first message
// of its stream.
func terminateFPDU(header []byte) []byte {
	b := make([]byte, mpa.LengthLen+ddp.UntaggedLen, 64)
	b[1] = byte(ddp.UntaggedLen + len(header))
	ddp.Untagged{Last: true, ULP: rdmap.Control(rdmap.OpTerminate), QN: 2, MSN: 1}.Put(b[mpa.LengthLen:])
	b = append(b, header...)
	crc := mpa.CRC(0, b)
	b = append(b, 0, 0, 0, 0)
	mpa.PutCRC(b[len(b)-mpa.CRCLen:], crc)
	return b
}

func TestOutcomeText(t *testing.T) {
	require.Equal(t, "undecided", ext.Undecided.String())
	require.Equal(t, "supported", ext.Supported.String())
	require.Equal(t, "not supported", ext.NotSupported.String())
	require.Equal(t, "Outcome(7)", ext.Outcome(7).String())
}
