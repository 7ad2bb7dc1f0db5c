// SPDX-License-Identifier: BSD-3-Clause

package verbstest

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/verbs"
)

// requireErr requires that err has the given cause and is wrapped in the error type of package
// verbs or cm, which names the call.
func requireErr(t *testing.T, err, cause error) {
	t.Helper()
	require.ErrorIs(t, err, cause)
	require.False(t, err == cause, "the cause is not wrapped: %v", err)
	var ve *verbs.OpError
	if errors.As(err, &ve) {
		require.NotEmpty(t, ve.Op)
		return
	}
	var ce *cm.OpError
	require.ErrorAs(t, err, &ce, "neither a verbs.OpError nor a cm.OpError: %v", err)
	require.NotEmpty(t, ce.Op)
}

// requireClosed requires that err reports a closed handle.
func requireClosed(t *testing.T, err error) {
	t.Helper()
	requireErr(t, err, verbs.ErrClosed)
}

// requireLimit requires that err names the limit and the value that exceeds it.
func requireLimit(t *testing.T, err error, name string, limit, value uint64) {
	t.Helper()
	requireErr(t, err, verbs.ErrLimit)
	var le *verbs.LimitError
	require.ErrorAs(t, err, &le)
	require.Equal(t, verbs.LimitError{Name: name, Limit: limit, Value: value}, *le)
	require.ErrorContains(t, err, name)
}

// fault describes how the peer refuses a request.
type fault struct {
	layer, etype, code uint8          // iWARP: the Terminate message
	status             verbs.WCStatus // of the request, on fabrics that report which request failed
}

// refusal checks the completion of a refused request. oneWay marks requests without a response: on
// iWARP they have often completed before the peer checks them. One that kernel siw is still sending
// may complete with any status.
func (p *pair) refusal(wc verbs.WC, f fault, oneWay bool) {
	p.Helper()
	if oneWay && p.iwarp() && (wc.Status == verbs.WCSuccess || p.kernelIWARP()) {
		return
	}
	p.tells(wc, f.status)
	require.ErrorIs(p, wc.Err(), wc.Status)
}

// tells requires the status of a failed request. A kernel driver may report a status in others
// instead. Kernel siw may report any error, because it does not say which request failed, or
// flushes that one too. Such deviations are recorded.
func (w *world) tells(wc verbs.WC, status verbs.WCStatus, others ...verbs.WCStatus) {
	w.Helper()
	switch {
	case w.kernelIWARP():
		require.NotEqual(w, verbs.WCSuccess.String(), wc.Status.String(), "status of request %#x", wc.ID)
		w.without("fault-status")
	case !w.f.userSpace() && slices.Contains(others, wc.Status):
		w.without("fault-status")
	default:
		require.Equal(w, status.String(), wc.Status.String(), "status of request %#x", wc.ID)
	}
}

// badSource requires the completion of a request with invalid local memory. Recent rxe flushes it
// like those after it.
func (w *world) badSource(wc verbs.WC) {
	w.Helper()
	w.tells(wc, verbs.WCLocProtErr, verbs.WCWRFlushErr)
}

// badBuffer requires the completion of a receive with invalid memory.
func (w *world) badBuffer(wc verbs.WC) {
	w.Helper()
	w.tells(wc, verbs.WCLocProtErr)
}

// peersBadBuffer requires the completion of a Send whose receive at the peer has invalid memory. An
// rxe requester cannot distinguish that from a message that is too long.
func (w *world) peersBadBuffer(wc verbs.WC) {
	w.Helper()
	switch {
	case w.iwarp() && w.f.userSpace():
		require.Contains(w, []verbs.WCStatus{verbs.WCSuccess, verbs.WCRemInvReqErr, verbs.WCRemAccessErr}, wc.Status)
	case w.iwarp(): // kernel siw often completes the Send before the peer terminates the stream
		require.Contains(w, []verbs.WCStatus{verbs.WCSuccess, verbs.WCLocQPOpErr, verbs.WCWRFlushErr}, wc.Status)
	default:
		w.tells(wc, verbs.WCRemOpErr, verbs.WCRemInvReqErr)
	}
}

// badBind requires the completion of an impossible bind or invalidation. Recent rxe flushes both.
func (w *world) badBind(wc verbs.WC) {
	w.Helper()
	w.tells(wc, verbs.WCMWBindErr, verbs.WCWRFlushErr)
}

// broken requires that the connection has ended because to refused a request of from, and that both
// sides report it: in the state and error of the QP, in the ID, and with an event.
func (p *pair) broken(from, to *side, f fault) {
	p.Helper()
	p.disconnected()
	for _, s := range []*side{from, to} {
		require.Equal(p, verbs.QPStateErr.String(), s.qp.State().String())
		require.Error(p, s.qp.Err())
		require.Error(p, s.id.Err())
	}
	if !p.iwarp() {
		return // the reason is not reported; Events/NamesTheQP checks whether there is an event
	}
	if p.kernelIWARP() {
		p.without("terminate-reason") // the driver does not report the contents of the message
		return
	}
	for _, s := range []*side{from, to} {
		want := &verbs.TerminateError{Layer: f.layer, Type: f.etype, Code: f.code, Remote: s == from}
		require.ErrorIs(p, s.qp.Err(), want)
		require.ErrorIs(p, s.id.Err(), want)
		require.ErrorIs(p, s.qpEvent().Err, want)
		var te *verbs.TerminateError
		require.ErrorAs(p, s.qp.Err(), &te)
		require.NotEmpty(p, te.Text)
	}
}

// qpEvent waits for the event that reports the failure of this side's QP.
func (s *side) qpEvent() verbs.AsyncEvent {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), waitLimit)
	defer cancel()
	for {
		ev, err := s.ctx.WaitEvent(ctx)
		require.NoError(s, err)
		require.NotEmpty(s, ev.String())
		switch ev.Type {
		case verbs.EventQPFatal, verbs.EventQPReqErr, verbs.EventQPAccessErr:
			if ev.QP == s.qp {
				return ev
			}
		}
	}
}

// flushed requires that the next completions of cq belong to the requests ids and have the status
// of a flush.
func (h *host) flushed(cq *verbs.CQ, ids ...uint64) {
	h.Helper()
	for _, id := range ids {
		wc := h.next(cq)
		require.Equal(h, id, wc.ID)
		require.Equal(h, verbs.WCWRFlushErr.String(), wc.Status.String(), "status of request %#x", id)
	}
}
