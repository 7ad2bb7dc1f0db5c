// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package forward_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/cmprovider"
	"github.com/goverbs/goverbs/verbs"
)

// rig is one of each object on a device.
type rig struct {
	name, listen string
	ctx          *verbs.Context
	pd           *verbs.PD
	ch           *verbs.CompChannel
	cq           *verbs.CQ
	srq          *verbs.SRQ
	mr           *verbs.MR
	mw, mw1      *verbs.MW // of both types
	qp           *verbs.QP
	ah           *verbs.AH // nil = the device has none
}

func newRig(t *testing.T, dev *verbs.Device, listen string) *rig {
	t.Helper()
	r := &rig{name: dev.Name(), listen: listen}
	var err error
	r.ctx, err = dev.Open()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.ctx.CloseAll()) })
	r.pd, err = r.ctx.AllocPD()
	require.NoError(t, err)
	r.ch, err = r.ctx.CreateCompChannel()
	require.NoError(t, err)
	r.cq, err = r.ctx.CreateCQ(verbs.CQConfig{})
	require.NoError(t, err)
	r.srq, err = r.pd.CreateSRQ(verbs.SRQAttr{})
	require.NoError(t, err)
	r.mr, err = r.pd.AllocMR(4096, verbs.AccessLocalWrite|verbs.AccessMWBind)
	require.NoError(t, err)
	r.mw, err = r.pd.AllocMW(verbs.MWType2)
	require.NoError(t, err)
	r.mw1, err = r.pd.AllocMW(verbs.MWType1)
	require.NoError(t, err)
	r.qp = r.newQP(t, verbs.QPTypeRC)
	if r.ah, err = r.pd.CreateAH(
		verbs.AHAttr{PortNum: 1, IsGlobal: true, GRH: verbs.GlobalRoute{HopLimit: 1}}); err != nil {
		require.ErrorIs(t, err, verbs.ErrNotSupported)
	}
	return r
}

func (r *rig) newQP(t *testing.T, typ verbs.QPType) *verbs.QP {
	t.Helper()
	qp, err := r.pd.CreateQP(verbs.QPConfig{SendCQ: r.cq, RecvCQ: r.cq, Type: typ})
	require.NoError(t, err)
	return qp
}

// TestForeignObjects: a provider that is given another one's object, as a device between could do
// by mistake, refuses it by a typed error that names both. The handles would not let a program come
// so far.
func TestForeignObjects(t *testing.T) {
	wrappedFake, fake0 := fake(t, "fake0", 1)
	nic := newNIC(t)
	rigs := []*rig{newRig(t, fake0, "192.0.2.1:0"), newRig(t, wrappedFake, "192.0.2.1:0"),
		newRig(t, nic, "127.0.0.1:0"), newRig(t, wrap(t, nic), "127.0.0.1:0")}
	wraps := map[*rig]*rig{rigs[1]: rigs[0], rigs[3]: rigs[2]}
	for _, own := range rigs {
		for _, other := range rigs {
			if own == other || wraps[other] == own {
				continue // what wraps its own objects is as good as they are
			}
			t.Run(other.name+" to "+own.name, func(t *testing.T) {
				// Between two of one type it is the handles below that find out.
				typed := wraps[own] == nil || wraps[other] == nil
				giveForeign(t, own, other, func(err error, what string) {
					t.Helper()
					require.ErrorIs(t, err, verbs.ErrForeign, what)
					var foreign *verbs.ForeignError
					if typed {
						require.ErrorAs(t, err, &foreign, what)
						require.NotEqual(t, foreign.Want, foreign.Got)
					}
				})
			})
		}
	}
}

func giveForeign(t *testing.T, own, other *rig, requireForeign func(err error, what string)) {
	_, err := own.ctx.Provider().CreateCQ(nil, 1, other.ch.Provider(), 0)
	requireForeign(err, "channel")

	good := verbs.ProviderQPConfig{SendCQ: own.cq.Provider(), RecvCQ: own.cq.Provider(), Type: verbs.QPTypeRC,
		Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}
	for what, change := range map[string]func(*verbs.ProviderQPConfig){
		"send CQ":    func(c *verbs.ProviderQPConfig) { c.SendCQ = other.cq.Provider() },
		"receive CQ": func(c *verbs.ProviderQPConfig) { c.RecvCQ = other.cq.Provider() },
		"SRQ":        func(c *verbs.ProviderQPConfig) { c.SRQ = other.srq.Provider() },
	} {
		cfg := good
		change(&cfg)
		_, _, err := own.pd.Provider().CreateQP(nil, cfg)
		requireForeign(err, what)
	}

	if m, ok := own.mr.Provider().(verbs.ProviderMRReregisterer); ok {
		if err := m.Rereg(verbs.ReregPD, other.pd.Provider(), nil, 0, 0); !errors.Is(err, verbs.ErrNotSupported) {
			requireForeign(err, "PD")
		}
	}

	qp := own.newQP(t, verbs.QPTypeRC)
	require.NoError(t, qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState))
	for what, b := range map[string]*verbs.MWBind{"window": {MW: other.mw, MR: own.mr},
		"region": {MW: own.mw, MR: other.mr}} {
		b.Addr, b.Length = b.MR.Addr(), 8
		n, err := qp.Provider().PostSend([]verbs.SendWR{{Opcode: verbs.WRBindMW, RKey: 1, Bind: b}})
		requireForeign(err, what)
		require.Zero(t, n)
		if own.ah == nil { // a QP that has never been connected takes requests in ERR
			n, err = qp.Provider().PostSend(
				[]verbs.SendWR{{Opcode: verbs.WRSend}, {Opcode: verbs.WRBindMW, RKey: 1, Bind: b}})
			requireForeign(err, what)
			require.Equal(t, 1, n, "what stands before it is posted")
		}
		binder, ok := qp.Provider().(verbs.ProviderMWBinder)
		require.True(t, ok)
		if b.MW = own.mw1; what == "window" {
			b.MW = other.mw1
		}
		_, err = binder.BindMW(3, 0, b)
		requireForeign(err, what)
	}

	if own.ah != nil && other.ah != nil {
		qp := own.newQP(t, verbs.QPTypeUD)
		n, err := qp.Provider().PostSend([]verbs.SendWR{{Opcode: verbs.WRSend, UD: &verbs.UDDest{AH: other.ah}}})
		requireForeign(err, "AH")
		require.Zero(t, n)
	}
	connectForeign(t, own, other, requireForeign)
}

// connectForeign offers a QP of another device to a route and to a request, if the device has a
// connection manager of its own.
func connectForeign(t *testing.T, own, other *rig, requireForeign func(err error, what string)) {
	p, ok := own.ctx.Device().Provider().(cm.Provider)
	if !ok {
		return // the kernel's takes what the handles say
	}
	cfg := cm.Config{Device: own.ctx.Device(), Context: own.ctx, PortSpace: cm.PortSpaceTCP, Backlog: 1}
	ln, err := p.Listen(soon(t), own.listen, cfg)
	require.NoError(t, err)
	defer func() { require.NoError(t, ln.Close()) }()
	foreign := other.newQP(t, verbs.QPTypeRC)
	require.NoError(t, cmprovider.InitQP(foreign))
	r, err := p.Resolve(soon(t), ln.Addr().String(), cfg)
	require.NoError(t, err)
	_, err = r.Connect(soon(t), foreign, cm.ConnParam{})
	requireForeign(err, "Connect")
	require.NoError(t, r.Close())

	id, err := cm.Resolve(soon(t), ln.Addr().String(), cm.Config{Context: own.ctx})
	require.NoError(t, err)
	defer func() { require.NoError(t, id.Close()) }()
	connected := make(chan error, 1)
	qp, ctx := own.newQP(t, verbs.QPTypeRC), soon(t)
	go func() { connected <- id.Connect(ctx, qp, cm.ConnParam{}) }()
	req, err := ln.Accept(ctx)
	require.NoError(t, err)
	_, err = req.Accept(ctx, foreign, cm.ConnParam{})
	requireForeign(err, "Accept")
	_ = req.Reject(nil) // where the request has not ended yet
	require.Error(t, <-connected)
	require.Equal(t, verbs.QPStateInit, foreign.State())
}
