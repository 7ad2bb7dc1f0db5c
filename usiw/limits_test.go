// SPDX-License-Identifier: BSD-3-Clause

package usiw_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// limitedNIC allows two objects of each kind.
var limitedNIC = usiw.Config{MaxQP: 2, MaxCQ: 2, MaxCQE: 10, MaxMR: 2, MaxPD: 2, MaxMW: 2, MaxSRQ: 2, MaxIRD: 3}

// requireLimit requires that err names the limit and the value that exceeds it.
func requireLimit(t *testing.T, err error, name string, limit, value uint64) {
	t.Helper()
	require.ErrorIs(t, err, verbs.ErrLimit)
	var le *verbs.LimitError
	require.ErrorAs(t, err, &le)
	require.Equal(t, verbs.LimitError{Name: name, Limit: limit, Value: value}, *le)
}

// open opens the device of a NIC.
func open(t *testing.T, nic *usiw.NIC) *verbs.Context {
	t.Helper()
	c, err := nic.Device().Open()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.CloseAll()) })
	return c
}

func TestLimitsAreReported(t *testing.T) {
	attr, err := open(t, newNIC(t, limitedNIC)).QueryDevice()
	require.NoError(t, err)
	require.Equal(t, []int{2, 2, 10, 2, 2, 2, 2, 3, 3, 6},
		[]int{attr.MaxQP, attr.MaxCQ, attr.MaxCQE, attr.MaxMR, attr.MaxPD, attr.MaxMW, attr.MaxSRQ, attr.MaxQPRdAtom,
			attr.MaxQPInitRdAtom, attr.MaxResRdAtom})
}

// TestObjectLimits creates as many objects of each kind as are allowed, spread over two contexts of
// the NIC. One more is refused on either context until one of them is closed.
func TestObjectLimits(t *testing.T) {
	for _, c := range []struct {
		name string
		// maker returns a function that creates an object on a context and returns its Close.
		maker func(t *testing.T, c *verbs.Context) func() (func() error, error)
	}{
		{"max_pd", func(_ *testing.T, c *verbs.Context) func() (func() error, error) {
			return func() (func() error, error) { pd, err := c.AllocPD(); return pd.Close, err }
		}},
		{"max_cq", func(_ *testing.T, c *verbs.Context) func() (func() error, error) {
			return func() (func() error, error) { cq, err := c.CreateCQ(verbs.CQConfig{CQE: 1}); return cq.Close, err }
		}},
		{"max_mr", func(t *testing.T, c *verbs.Context) func() (func() error, error) {
			pd, err := c.AllocPD()
			require.NoError(t, err)
			return func() (func() error, error) { mr, err := pd.AllocMR(8, 0); return mr.Close, err }
		}},
		{"max_mr", func(t *testing.T, c *verbs.Context) func() (func() error, error) {
			pd, err := c.AllocPD()
			require.NoError(t, err)
			return func() (func() error, error) { mr, err := pd.RegMR(make([]byte, 8), 0); return mr.Close, err }
		}},
		{"max_mw", func(t *testing.T, c *verbs.Context) func() (func() error, error) {
			pd, err := c.AllocPD()
			require.NoError(t, err)
			return func() (func() error, error) { mw, err := pd.AllocMW(verbs.MWType2); return mw.Close, err }
		}},
		{"max_mw", func(t *testing.T, c *verbs.Context) func() (func() error, error) {
			pd, err := c.AllocPD()
			require.NoError(t, err)
			return func() (func() error, error) { mw, err := pd.AllocMW(verbs.MWType1); return mw.Close, err }
		}},
		{"max_srq", func(t *testing.T, c *verbs.Context) func() (func() error, error) {
			pd, err := c.AllocPD()
			require.NoError(t, err)
			return func() (func() error, error) { s, err := pd.CreateSRQ(verbs.SRQAttr{}); return s.Close, err }
		}},
		{"max_qp", func(t *testing.T, c *verbs.Context) func() (func() error, error) {
			pd, err := c.AllocPD()
			require.NoError(t, err)
			cq, err := c.CreateCQ(verbs.CQConfig{CQE: 1})
			require.NoError(t, err)
			return func() (func() error, error) {
				qp, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq})
				return qp.Close, err
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			nic := newNIC(t, limitedNIC)
			one, two := c.maker(t, open(t, nic)), c.maker(t, open(t, nic))
			closeOne, err := one()
			require.NoError(t, err)
			_, err = two()
			require.NoError(t, err)
			for range 2 {
				for _, more := range []func() (func() error, error){one, two} {
					_, err = more()
					requireLimit(t, err, c.name, 2, 3)
				}
			}
			require.NoError(t, closeOne())
			_, err = two()
			require.NoError(t, err, "a place is free again")
			_, err = one()
			requireLimit(t, err, c.name, 2, 3)

			// Another NIC has limits of its own.
			other := c.maker(t, open(t, newNIC(t, limitedNIC)))
			_, err = other()
			require.NoError(t, err)
		})
	}
}

// TestRefusedObjectsTakeNoPlace: a failed creation does not count against the limits.
func TestRefusedObjectsTakeNoPlace(t *testing.T) {
	c := open(t, newNIC(t, limitedNIC))
	pd, err := c.AllocPD()
	require.NoError(t, err)
	cq, err := c.CreateCQ(verbs.CQConfig{CQE: 10})
	require.NoError(t, err)
	for range 10 {
		_, err = c.CreateCQ(verbs.CQConfig{CQE: 11})
		requireLimit(t, err, "max_cqe", 10, 11)
		_, err = pd.RegMR(make([]byte, 8), verbs.AccessRemoteWrite)
		require.ErrorIs(t, err, verbs.ErrInvalid)
		_, err = pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq, Cap: verbs.QPCap{MaxSendSGE: 1000}})
		require.ErrorIs(t, err, verbs.ErrLimit)
	}
	for range 2 {
		_, err = pd.RegMR(make([]byte, 8), 0)
		require.NoError(t, err)
		_, err = pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq})
		require.NoError(t, err)
	}
	_, err = c.CreateCQ(verbs.CQConfig{CQE: 10})
	require.NoError(t, err)
}

// TestDepthLimit: the default depth is the NIC's limit, announced to the peer as a power of two,
// and a larger depth is rejected by name.
func TestDepthLimit(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	nic := newNIC(t, limitedNIC)
	c := open(t, nic)
	pd, err := c.AllocPD()
	require.NoError(t, err)
	cq, err := c.CreateCQ(verbs.CQConfig{CQE: 10})
	require.NoError(t, err)
	qps := make([]*verbs.QP, 2)
	for i := range qps {
		qps[i], err = pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq})
		require.NoError(t, err)
	}
	ln, err := cm.Listen(ctx, "127.0.0.1:0", cm.Config{Context: c})
	require.NoError(t, err)
	defer ln.Close()

	for _, param := range []struct {
		field string
		p     cm.ConnParam
	}{
		{"InitiatorDepth", cm.ConnParam{InitiatorDepth: 4}},
		{"ResponderResources", cm.ConnParam{ResponderResources: 4}},
	} {
		id, err := cm.Resolve(ctx, ln.Addr().String(), cm.Config{Context: c})
		require.NoError(t, err)
		requireLimit(t, id.Connect(ctx, qps[0], param.p), param.field, 3, 4)
		require.NoError(t, id.Close())
	}
	accepted := make(chan error, 1)
	go func() {
		req, err := ln.Accept(ctx)
		if err == nil {
			var id *cm.ID
			if id, err = req.Accept(ctx, qps[1], cm.ConnParam{}); err == nil {
				<-id.Done()
				err = id.Close()
			}
		}
		accepted <- err
	}()
	id, err := cm.Resolve(ctx, ln.Addr().String(), cm.Config{Context: c})
	require.NoError(t, err)
	require.NoError(t, id.Connect(ctx, qps[0], cm.ConnParam{}))
	ord, ird := id.Depths()
	require.Equal(t, []int{2, 2}, []int{ord, ird})
	ord, ird = id.PeerDepths()
	require.Equal(t, []int{2, 2}, []int{ord, ird})
	require.NoError(t, id.Close())
	require.NoError(t, <-accepted)
}
