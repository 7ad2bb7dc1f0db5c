// SPDX-License-Identifier: BSD-3-Clause

package usiw_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/asleep"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// TestWaitSolicited: a message without SendSolicited does not wake the goroutine; one with it does,
// and the goroutine then receives both. Existing completions are returned at once, and a failed
// receive wakes the goroutine.
func TestWaitSolicited(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  usiw.Config
	}{{"Sockets", usiw.Config{}}, {"Spin", usiw.Config{Spin: 50 * time.Microsecond}}} {
		t.Run(c.name, func(t *testing.T) {
			a, p := connectEnds(t, c.cfg)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			type result struct {
				n   int
				err error
			}
			got := make(chan result, 1)
			wcs := make([]verbs.WC, 16)
			wait := func() {
				go func() {
					n, err := p.rcq.WaitSolicited(ctx, wcs)
					got <- result{n, err}
				}()
			}
			send := func(flags verbs.SendFlags) {
				_, err := a.qp.PostSend([]verbs.SendWR{{Opcode: verbs.WRSend, Flags: flags | verbs.SendSignaled}})
				require.NoError(t, err)
				_, err = a.wait(a.scq, 1)
				require.NoError(t, err)
			}
			wait()
			asleep.Until(t, 1, "verbs.(*CQ).WaitSolicited", "usiw.(*channel).wait")
			send(0)
			send(0)
			// A Read is answered after the messages before it have completed.
			sge, err := a.mr.SGE(0, 8)
			require.NoError(t, err)
			_, err = a.qp.PostSend([]verbs.SendWR{{Opcode: verbs.WRRDMARead, Flags: verbs.SendSignaled,
				SGL: []verbs.SGE{sge}, RemoteAddr: p.mr.Addr(), RKey: p.mr.RKey()}})
			require.NoError(t, err)
			_, err = a.wait(a.scq, 1)
			require.NoError(t, err)
			select {
			case r := <-got:
				t.Fatalf("woken by a message that is not solicited: %+v", r)
			case <-time.After(20 * time.Millisecond):
			}
			send(verbs.SendSolicited)
			r := <-got
			require.NoError(t, r.err)
			require.Equal(t, 3, r.n)

			send(0)
			for r.n = 0; r.n == 0; { // until the message has arrived
				r.n, r.err = p.rcq.Poll(wcs)
				require.NoError(t, r.err)
			}
			require.Equal(t, 1, r.n)

			wait()
			asleep.Until(t, 1, "verbs.(*CQ).WaitSolicited", "usiw.(*channel).wait")
			require.NoError(t, p.id.Disconnect())
			r = <-got
			require.NoError(t, r.err)
			require.Positive(t, r.n)
			require.ErrorIs(t, wcs[0].Err(), verbs.WCWRFlushErr)
		})
	}
}

// TestWaitBesideSolicited: unsolicited messages wake a Wait even if it begins while another
// goroutine is in WaitSolicited, or vice versa.
func TestWaitBesideSolicited(t *testing.T) {
	for _, first := range []string{"WaitSolicited", "Wait"} {
		t.Run(first+" first", func(t *testing.T) {
			a, p := connectEnds(t, usiw.Config{})
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			got := make(chan error, 2)
			waits := map[string]func(context.Context, []verbs.WC) (int, error){"Wait": p.rcq.Wait,
				"WaitSolicited": p.rcq.WaitSolicited}
			for _, name := range []string{first,
				map[string]string{"Wait": "WaitSolicited", "WaitSolicited": "Wait"}[first]} {
				wait := waits[name]
				go func() {
					_, err := wait(ctx, make([]verbs.WC, 1))
					got <- err
				}()
				asleep.Until(t, 1, "verbs.(*CQ)."+name+"(", "TestWaitBesideSolicited")
			}
			for i := range 2 {
				flags := verbs.SendSignaled
				if i == 1 && first == "Wait" { // the goroutine in Wait has been woken
					flags |= verbs.SendSolicited
				}
				_, err := a.qp.PostSend([]verbs.SendWR{{Opcode: verbs.WRSend, Flags: flags}})
				require.NoError(t, err)
				require.NoError(t, <-got)
			}
		})
	}
}

// TestWaitSolicitedEnds: the wait ends when its context is done or the CQ is closed; a CQ on a
// shared channel cannot be waited for.
func TestWaitSolicitedEnds(t *testing.T) {
	c := open(t, newNIC(t, usiw.Config{}))
	cq, err := c.CreateCQ(verbs.CQConfig{})
	require.NoError(t, err)
	wcs := make([]verbs.WC, 1)
	_, err = cq.WaitSolicited(t.Context(), nil)
	require.ErrorIs(t, err, verbs.ErrInvalid)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	_, err = cq.WaitSolicited(ctx, wcs)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "CQ.WaitSolicited")
	ended := make(chan error)
	go func() {
		_, err := cq.WaitSolicited(t.Context(), wcs)
		ended <- err
	}()
	asleep.Until(t, 1, "verbs.(*CQ).WaitSolicited", "usiw.(*channel).wait")
	require.NoError(t, cq.Close())
	require.ErrorIs(t, <-ended, verbs.ErrClosed)

	ch, err := c.CreateCompChannel()
	require.NoError(t, err)
	shared, err := c.CreateCQ(verbs.CQConfig{Channel: ch})
	require.NoError(t, err)
	_, err = shared.WaitSolicited(t.Context(), wcs)
	require.ErrorIs(t, err, verbs.ErrSharedChannel)
}
