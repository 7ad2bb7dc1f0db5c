// SPDX-License-Identifier: BSD-3-Clause

package usiwtest_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/usiw/usiwtest"
	"github.com/goverbs/goverbs/verbs"
)

func TestFailBuildCounts(t *testing.T) {
	h := usiwtest.FailBuild(rdmap.OpSend, 2)
	require.NoError(t, h.Build(rdmap.OpSend))
	require.NoError(t, h.Build(rdmap.OpWrite))
	err := h.Build(rdmap.OpSend)
	require.ErrorContains(t, err, "Send number 2")
	require.NoError(t, h.Build(rdmap.OpSend))
}

// TestBuildFails: the first and the third message of every kind cannot be built. The peer receives
// Terminate 0/0/00 instead. Earlier messages have been sent, the failed request has an error, and
// the rest is flushed.
func TestBuildFails(t *testing.T) {
	for i := range operations {
		o := &operations[i]
		for _, nth := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s %d", o.name, nth), func(t *testing.T) {
				bubble(t, func(t *testing.T) { buildFails(t, o, nth, true) })
			})
			if o.back != rdmap.OpTerminate {
				t.Run(fmt.Sprintf("%s of %s %d", o.back, o.name, nth), func(t *testing.T) {
					bubble(t, func(t *testing.T) { buildFails(t, o, nth, false) })
				})
			}
		}
	}
}

// buildFails posts four requests in one list, of which the nth fails at the requester, or its
// response at the responder.
func buildFails(t *testing.T, o *operation, nth int, atRequester bool) {
	const n, posted = 100, 4
	var cfg usiwtest.PairConfig
	list := [posted]*operation{o, o, o, o}
	switch {
	case !atRequester:
		cfg.B.Hooks = usiwtest.FailBuild(o.back, nth)
	case o.out[0] == rdmap.OpWrite:
		cfg.A.Hooks = usiwtest.FailBuild(rdmap.OpWrite, nth+1) // newStage sends one
	case o.wr.Opcode == verbs.WRSendWithInv:
		// There is only one window to invalidate, by the request that fails.
		cfg.A.Hooks = usiwtest.FailBuild(o.out[0], 1)
		for i := range list {
			if i != nth-1 {
				list[i] = &operations[0]
			}
		}
	default:
		cfg.A.Hooks = usiwtest.FailBuild(o.out[0], nth)
	}
	s := newStage(t, cfg)
	var wrs []verbs.SendWR
	var want []verbs.WCStatus
	for i, o := range list {
		s.expectReceive(o, n)
		wrs = append(wrs, s.request(o, uint64(i+1), n))
		switch {
		case i+1 < nth:
			want = append(want, verbs.WCSuccess)
			s.apply(&wrs[i], n)
		case i+1 == nth && atRequester:
			want = append(want, verbs.WCLocQPOpErr)
		default:
			want = append(want, verbs.WCWRFlushErr)
		}
	}
	_, err := s.A.QP.PostSend(wrs)
	require.NoError(t, err)
	finder := s.A
	if !atRequester {
		finder = s.B
	}
	s.ended(finder, rdmap.LayerRDMAP, rdmap.ErrTypeLocal, 0)
	require.Equal(t, want, statuses(t, drain(t, s.A.SendCQ)))
	if !atRequester && o.back == rdmap.OpAtomicResponse {
		copy(s.b[word:word+8], s.B.MR.Bytes()[word:]) // later requests may have been performed
	}
	s.intact(o.name)
	received := drain(t, s.B.RecvCQ)
	for i, wc := range received {
		if i+1 < nth {
			require.Equal(t, verbs.WCSuccess, wc.Status)
		} else {
			require.Equal(t, verbs.WCWRFlushErr, wc.Status)
		}
	}
	if o.recv != 0 {
		require.Len(t, received, posted)
	}
}

// TestBuildFailsImmediate: the second message of a Write with immediate cannot be built. The Write
// has been sent, and the request fails.
func TestBuildFailsImmediate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStage(t, usiwtest.PairConfig{A: usiw.Config{Hooks: usiwtest.FailBuild(rdmap.OpImmediate, 2)}})
		o := &operations[5]
		require.Equal(t, verbs.WRRDMAWriteWithImm, o.wr.Opcode)
		var wrs []verbs.SendWR
		for id := range uint64(3) {
			s.expectReceive(o, 0)
			wrs = append(wrs, s.request(o, id+1, 100))
		}
		s.apply(&wrs[0], 100)
		_, err := s.A.QP.PostSend(wrs)
		require.NoError(t, err)
		s.ended(s.A, rdmap.LayerRDMAP, rdmap.ErrTypeLocal, 0)
		want := []verbs.WCStatus{verbs.WCSuccess, verbs.WCLocQPOpErr, verbs.WCWRFlushErr}
		require.Equal(t, want, statuses(t, drain(t, s.A.SendCQ)))
		s.intact("the Write of the second is that of the first")
		received := drain(t, s.B.RecvCQ)
		require.Len(t, received, 3)
		for i, want := range []verbs.WCStatus{verbs.WCSuccess, verbs.WCWRFlushErr, verbs.WCWRFlushErr} {
			require.Equal(t, want, received[i].Status)
		}
	})
}
