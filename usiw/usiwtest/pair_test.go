// SPDX-License-Identifier: BSD-3-Clause

package usiwtest_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/lifetime"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/usiw/usiwtest"
	"github.com/goverbs/goverbs/verbs"
)

func TestPair(t *testing.T) {
	bubble(t, func(t *testing.T) {
		wire := usiwtest.NewWire()
		var p [2]*usiwtest.Pair
		for i := range p {
			p[i] = usiwtest.Connect(t, usiwtest.PairConfig{
				Wire: wire, Mem: 8192, CQE: 20, Cap: verbs.QPCap{MaxSendWR: 7}, A: usiw.Config{MaxIRD: 3},
				AParam: cm.ConnParam{PrivateData: []byte{byte(i)}}, BParam: cm.ConnParam{InitiatorDepth: 2},
				Before: func(p *usiwtest.Pair) error {
					for _, e := range []*usiwtest.End{p.A, p.B} {
						if s := e.QP.State(); s != verbs.QPStateInit {
							return fmt.Errorf("state %v", s)
						}
					}
					_, err := p.B.QP.PostRecv([]verbs.RecvWR{{ID: 5}})
					return err
				}})
		}
		for i, p := range p {
			require.Same(t, wire, p.Wire)
			require.Same(t, wire.Links()[i], p.Link)
			require.Equal(t, []byte{byte(i)}, p.B.ID.PrivateData())
			ord, ird := p.B.ID.Depths()
			require.Equal(t, []int{2, 3}, []int{ord, ird})
			require.Equal(t, 8192, p.A.MR.Len())
			require.Equal(t, 20, p.B.RecvCQ.CQE())
			require.Equal(t, 7, p.B.QP.Cap().MaxSendWR)
			wc, err := p.A.Do(t.Context(), verbs.SendWR{ID: 1, Opcode: verbs.WRRDMAWrite},
				verbs.SendWR{ID: 2, Opcode: verbs.WRSend})
			require.NoError(t, err)
			require.Equal(t, verbs.WC{ID: 2, QPNum: p.A.QP.Num()}, wc)
			wc, err = usiwtest.Next(t.Context(), p.B.RecvCQ)
			require.NoError(t, err)
			require.EqualValues(t, 5, wc.ID)
			require.NoError(t, p.Close())
			require.NoError(t, p.Close())
			_, err = p.A.Do(t.Context(), verbs.SendWR{Opcode: verbs.WRSend})
			require.ErrorIs(t, err, verbs.ErrClosed)
			_, err = p.A.Do(t.Context())
			require.ErrorIs(t, err, verbs.ErrInvalid)
		}
	})
}

// TestPairShapes: the ends of a pair follow the configuration.
func TestPairShapes(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  usiwtest.PairConfig
	}{
		{"default", usiwtest.PairConfig{}},
		{"one NIC", usiwtest.PairConfig{OneNIC: true}},
		{"one CQ", usiwtest.PairConfig{OneCQ: true}},
		{"one completion channel", usiwtest.PairConfig{SharedChannel: true}},
		{"TCP", usiwtest.PairConfig{TCP: "127.0.0.1:0"}},
		{"TCP, one NIC", usiwtest.PairConfig{TCP: "127.0.0.1:0", OneNIC: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := usiwtest.Connect(t, c.cfg)
			require.Equal(t, c.cfg.OneNIC, p.A.NIC == p.B.NIC)
			for _, e := range []*usiwtest.End{p.A, p.B} {
				require.Equal(t, c.cfg.OneCQ, e.SendCQ == e.RecvCQ)
				require.Equal(t, c.cfg.SharedChannel, e.Channel != nil)
			}
			require.Equal(t, c.cfg.TCP == "", p.Wire != nil && p.Link != nil)
			if c.cfg.TCP != "" {
				require.IsType(t, (*net.TCPAddr)(nil), p.A.ID.LocalAddr())
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			wr := verbs.SendWR{Opcode: verbs.WRRDMAWrite, RemoteAddr: p.B.MR.Addr(), RKey: p.B.MR.RKey()}
			wc, err := p.A.Do(ctx, wr)
			if c.cfg.SharedChannel {
				require.ErrorIs(t, err, verbs.ErrSharedChannel)
				return
			}
			require.NoError(t, err)
			require.NoError(t, wc.Err())
		})
	}
}

// TestPairFails: if part of a pair cannot be created, the error says which, and nothing is left
// behind.
func TestPairFails(t *testing.T) {
	refused := errors.New("refused")
	for _, c := range []struct {
		name string
		cfg  usiwtest.PairConfig
		want error
	}{
		{"NIC", usiwtest.PairConfig{B: usiw.Config{MTU: 1}}, verbs.ErrInvalid},
		{"CQ", usiwtest.PairConfig{CQE: -1}, verbs.ErrInvalid},
		{"QP", usiwtest.PairConfig{Cap: verbs.QPCap{MaxSendSGE: 1000}}, verbs.ErrLimit},
		{"MR", usiwtest.PairConfig{Mem: -1}, verbs.ErrInvalid},
		{"before", usiwtest.PairConfig{Before: func(*usiwtest.Pair) error { return refused }}, refused},
		{"A", usiwtest.PairConfig{AParam: cm.ConnParam{InitiatorDepth: -2}}, verbs.ErrInvalid},
		{"B", usiwtest.PairConfig{BParam: cm.ConnParam{InitiatorDepth: -2}}, verbs.ErrInvalid},
		{"QP of A", usiwtest.PairConfig{Before: func(p *usiwtest.Pair) error { return p.A.QP.Close() }},
			verbs.ErrClosed},
		{"QP of B", usiwtest.PairConfig{Before: func(p *usiwtest.Pair) error { return p.B.QP.Close() }},
			verbs.ErrClosed},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				before := len(lifetime.Live())
				began := time.Now()
				_, err := usiwtest.NewPair(t.Context(), c.cfg)
				require.ErrorIs(t, err, c.want)
				require.Less(t, time.Since(began), 5*time.Second)
				require.Len(t, lifetime.Live(), before)
			})
		})
	}
	bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		w := usiwtest.NewWire()
		w.OnDial = func(l *usiwtest.Link) { l.ToListener.Stall() }
		began := time.Now()
		_, err := usiwtest.NewPair(ctx, usiwtest.PairConfig{Wire: w})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(began))
	})
}

// failing is a testing.TB that records what the helper does with it.
type failing struct {
	testing.TB
	fatal    string
	cleanups []func()
}

func (f *failing) Helper() {}

func (f *failing) Fatalf(format string, args ...any) {
	f.fatal = fmt.Sprintf(format, args...)
	panic(f)
}

func (f *failing) Cleanup(c func()) { f.cleanups = append(f.cleanups, c) }

func TestConnectFails(t *testing.T) {
	f := &failing{TB: t}
	require.PanicsWithValue(t, f, func() { usiwtest.Connect(f, usiwtest.PairConfig{CQE: -1}) })
	require.Contains(t, f.fatal, "CQE -1")
	require.Empty(t, f.cleanups)

	before := len(lifetime.Live())
	usiwtest.Connect(f, usiwtest.PairConfig{})
	require.Greater(t, len(lifetime.Live()), before)
	require.Len(t, f.cleanups, 1)
	f.cleanups[0]()
	require.Len(t, lifetime.Live(), before)
}
