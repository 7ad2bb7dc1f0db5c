// SPDX-License-Identifier: BSD-3-Clause

package ext_test

import (
	"context"
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/usiw/usiwtest"
	"github.com/goverbs/goverbs/verbs"
)

// side is one end of a connection. Its memory is an array of words, used as local sinks and sources
// and as targets for the peer.
type side struct{ *usiwtest.End }

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// connect returns two connected ends.
func connect(t *testing.T, cfg usiwtest.PairConfig) (a, b side, link *usiwtest.Link) {
	t.Helper()
	cfg.Mem = regionSize
	p := usiwtest.Connect(t, cfg)
	return side{p.A}, side{p.B}, p.Link
}

// regionSize is the size in bytes of an end's memory.
const regionSize = 4096

// pair returns two connected ends on NICs with these configurations.
func pair(t *testing.T, acfg, bcfg usiw.Config) (a, b side) {
	t.Helper()
	a, b, _ = connect(t, usiwtest.PairConfig{A: acfg, B: bcfg})
	return a, b
}

// newContext opens a separate NIC.
func newContext(t *testing.T, cfg usiw.Config) *verbs.Context {
	t.Helper()
	nic, err := usiw.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, nic.Close()) })
	ctx, err := nic.Device().Open()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ctx.CloseAll()) })
	return ctx
}

// newQP creates an unconnected QP.
func newQP(t *testing.T) *verbs.QP {
	t.Helper()
	ctx := newContext(t, usiw.Config{})
	pd, err := ctx.AllocPD()
	require.NoError(t, err)
	cq, err := ctx.CreateCQ(verbs.CQConfig{})
	require.NoError(t, err)
	qp, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq})
	require.NoError(t, err)
	return qp
}

// sink returns the i-th word of the side as an SGL.
func (s side) sink(t *testing.T, i int) []verbs.SGE {
	sge, err := s.MR.SGE(8*i, 8)
	require.NoError(t, err)
	return []verbs.SGE{sge}
}

func (s side) word(i int) uint64       { return binary.NativeEndian.Uint64(s.MR.Bytes()[8*i:]) }
func (s side) setWord(i int, v uint64) { binary.NativeEndian.PutUint64(s.MR.Bytes()[8*i:], v) }
func (s side) addr(i int) uint64       { return s.MR.Addr() + 8*uint64(i) }

// there returns the i-th word of the side as a Remote for its peer.
func (s side) there(i int) verbs.Remote {
	return verbs.Remote{Addr: s.addr(i), Length: 8, RKey: s.MR.RKey()}
}

// do posts wrs, of which the last is signalled, and returns its completion.
func (s side) do(t *testing.T, wrs ...verbs.SendWR) verbs.WC {
	t.Helper()
	wc, err := s.Do(testContext(t), wrs...)
	require.NoError(t, err)
	return wc
}

// one waits for one completion.
func one(t *testing.T, cq *verbs.CQ) verbs.WC {
	t.Helper()
	wc, err := usiwtest.Next(testContext(t), cq)
	require.NoError(t, err)
	return wc
}
