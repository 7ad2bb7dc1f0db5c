// SPDX-License-Identifier: BSD-3-Clause

package verbstest

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/verbs"
)

// requireErr requires that err has the cause and is wrapped in the error type of package verbs or cm, which names the
// call.
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

// requireClosed requires that err says, to whoever asks, that a handle is closed.
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

// fault is how fabrics refuse a request of the peer's.
type fault struct {
	layer, etype, code uint8          // iWARP: the Terminate message
	status             verbs.WCStatus // of the request where the fabric tells which one it was
}

// refusal requires what the completion of a refused request must be. oneWay is for requests without an answer: on
// iWARP they have often completed before the peer looked at them.
func (p *pair) refusal(wc verbs.WC, f fault, oneWay bool) {
	p.Helper()
	if oneWay && p.iwarp() && wc.Status == verbs.WCSuccess {
		return
	}
	if p.kernelIWARP() {
		// The kernel's siw does not tell which request it was, or flushes that one too.
		require.NotEqual(p, verbs.WCSuccess.String(), wc.Status.String(), "status of request %#x", wc.ID)
		return
	}
	require.Equal(p, f.status.String(), wc.Status.String(), "status of request %#x", wc.ID)
	require.ErrorIs(p, wc.Err(), f.status)
}

// badSource requires the completion of a request whose memory is wrong on its own side. rxe tells a key that it does not know as a
// failed operation.
func (w *world) badSource(wc verbs.WC) {
	w.Helper()
	if w.kernelIWARP() {
		require.NotEqual(w, verbs.WCSuccess.String(), wc.Status.String(), "status of request %#x", wc.ID)
		return
	}
	if !w.f.userSpace() && wc.Status == verbs.WCLocQPOpErr {
		return
	}
	require.Equal(w, verbs.WCLocProtErr.String(), wc.Status.String(), "status of request %#x", wc.ID)
}

// badBind requires the completion of a bind or invalidation that cannot be. rxe tells it as a failed operation.
func (w *world) badBind(wc verbs.WC) {
	w.Helper()
	if !w.f.userSpace() && wc.Status == verbs.WCLocQPOpErr {
		return
	}
	require.Equal(w, verbs.WCMWBindErr.String(), wc.Status.String(), "status of request %#x", wc.ID)
}

// broken requires that the connection has ended because to found fault with a request of from's, and that both sides
// know: by the QP's state and error, the ID, and an event.
func (p *pair) broken(from, to *side, f fault) {
	p.Helper()
	closes(p.T, from.id.Done(), "the end of the requester's connection")
	closes(p.T, to.id.Done(), "the end of the responder's connection")
	for _, s := range []*side{from, to} {
		require.Equal(p, verbs.QPStateErr.String(), s.qp.State().String())
		require.Error(p, s.qp.Err())
		require.Error(p, s.id.Err())
	}
	if !p.iwarp() || p.kernelIWARP() {
		return // whether there is an event is what Events/NamesTheQP looks at; no driver tells what was in a Terminate message
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

// qpEvent waits for the event that says that this side's QP has failed.
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

// flushed requires that the next completions of cq are those of the requests ids, flushed.
func (h *host) flushed(cq *verbs.CQ, ids ...uint64) {
	h.Helper()
	for _, id := range ids {
		wc := h.next(cq)
		require.Equal(h, id, wc.ID)
		require.Equal(h, verbs.WCWRFlushErr.String(), wc.Status.String(), "status of request %#x", id)
	}
}
