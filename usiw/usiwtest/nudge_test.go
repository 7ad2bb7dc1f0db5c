// SPDX-License-Identifier: BSD-3-Clause

package usiwtest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/usiw/usiwtest"
	"github.com/goverbs/goverbs/verbs"
)

// asKernel does not ask for CRC, like Linux siw.
var asKernel = usiw.Config{CRC: usiw.Off}

// emptyWrite is the length of a Write of 0 bytes on the wire: length, header, CRC.
const emptyWrite int64 = 2 + 14 + 4

// TestNudge: the active side of a peer-to-peer connection sends exactly three empty Writes to a
// passive side that may not have noticed the first message.
func TestNudge(t *testing.T) {
	t.Run("without CRC", func(t *testing.T) { nudged(t, usiwtest.PairConfig{B: asKernel}) })
	t.Run("CRC asked for", func(t *testing.T) {
		nudged(t,
			usiwtest.PairConfig{A: usiw.Config{CRC: usiw.On}, B: asKernel})
	})
}

func nudged(t *testing.T, cfg usiwtest.PairConfig) {
	bubble(t, func(t *testing.T) {
		p := usiwtest.Connect(t, cfg)
		began, sent := time.Now(), p.Link.ToListener.Written()
		for i, at := range []time.Duration{250 * time.Millisecond, 1250 * time.Millisecond, 5250 * time.Millisecond} {
			time.Sleep(at - time.Since(began) - 1)
			synctest.Wait()
			require.Equal(t, sent+int64(i)*emptyWrite, p.Link.ToListener.Written())
			time.Sleep(1)
			synctest.Wait()
			require.Equal(t, sent+int64(i+1)*emptyWrite, p.Link.ToListener.Written())
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, sent+3*emptyWrite, p.Link.ToListener.Written())
		wc, err := p.A.Do(t.Context(), put(t, p, 0))
		require.NoError(t, err)
		require.Equal(t, verbs.WCSuccess, wc.Status)
	})
}

// TestNoNudge: no nudges are sent once the peer has sent a message, if the peer asks for CRC, if
// the connection is not peer-to-peer, by the passive side, or after the connection has ended.
func TestNoNudge(t *testing.T) {
	for name, test := range map[string]struct {
		cfg    usiwtest.PairConfig
		before func(t *testing.T, p *usiwtest.Pair)
	}{
		"heard": {usiwtest.PairConfig{B: asKernel}, func(t *testing.T, p *usiwtest.Pair) {
			wc, err := p.B.Do(t.Context(), get(t, p, 0))
			require.NoError(t, err)
			require.Equal(t, verbs.WCSuccess, wc.Status)
		}},
		"with CRC":         {cfg: usiwtest.PairConfig{}},
		"CRC on one side":  {cfg: usiwtest.PairConfig{A: asKernel}},
		"not peer-to-peer": {cfg: usiwtest.PairConfig{A: usiw.Config{RTR: usiw.Off}, B: asKernel}},
		"ended": {usiwtest.PairConfig{B: asKernel}, func(t *testing.T, p *usiwtest.Pair) {
			require.NoError(t, p.A.ID.Disconnect())
			<-p.A.ID.Done()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := usiwtest.Connect(t, test.cfg)
				if test.before != nil {
					test.before(t, p)
				}
				synctest.Wait()
				toB, toA := p.Link.ToListener.Written(), p.Link.ToDialer.Written()
				time.Sleep(time.Minute)
				synctest.Wait()
				require.Equal(t, toB, p.Link.ToListener.Written())
				require.Equal(t, toA, p.Link.ToDialer.Written())
			})
		})
	}
}

// TestNudgeMarked: a nudge has markers if the other messages do.
func TestNudgeMarked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := usiwtest.Connect(t,
			usiwtest.PairConfig{A: usiw.Config{Markers: usiw.On}, B: usiw.Config{Markers: usiw.On, CRC: usiw.Off}})
		for range 40 {
			wc, err := p.A.Do(t.Context(), put(t, p, 100))
			require.NoError(t, err)
			require.Equal(t, verbs.WCSuccess, wc.Status)
			time.Sleep(50 * time.Millisecond)
		}
		wc, err := p.B.Do(t.Context(), get(t, p, 100))
		require.NoError(t, err)
		require.Equal(t, verbs.WCSuccess, wc.Status)
	})
}

// TestNudgeImmediate: Immediate Data after a nudge belong to the Write before the nudge, if there
// is one.
func TestNudgeImmediate(t *testing.T) {
	for name, want := range map[string]verbs.WCOpcode{"alone": verbs.WCRecvImmData,
		"behind a Write": verbs.WCRecvRDMAWithImm} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := usiwtest.Connect(t, usiwtest.PairConfig{B: asKernel})
				_, err := p.B.QP.PostRecv([]verbs.RecvWR{{ID: 7}})
				require.NoError(t, err)
				if want == verbs.WCRecvRDMAWithImm {
					wc, err := p.A.Do(t.Context(), put(t, p, 5))
					require.NoError(t, err)
					require.Equal(t, verbs.WCSuccess, wc.Status)
				}
				time.Sleep(time.Second)
				synctest.Wait()
				_, err = p.A.QP.PostSend([]verbs.SendWR{{ID: 1, Opcode: verbs.WRImmData, Imm64: 3}})
				require.NoError(t, err)
				wc, err := usiwtest.Next(t.Context(), p.B.RecvCQ)
				require.NoError(t, err)
				require.Equal(t, want, wc.Opcode)
			})
		})
	}
}
