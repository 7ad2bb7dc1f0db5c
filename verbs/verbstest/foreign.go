// SPDX-License-Identifier: BSD-3-Clause

package verbstest

import (
	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/verbs"
)

var foreignTests = []test{
	{"Channel", foreignChannel},
	{"CQ", foreignCQ},
	{"QP", foreignQP},
	{"Device", foreignDevice},
}

// other opens a second context on the active side's device.
func (w *world) other() *host {
	w.Helper()
	return openHost(w.T, w.f.Active)
}

func foreignChannel(w *world) {
	o := w.other()
	_, err := w.a.ctx.CreateCQ(verbs.CQConfig{Channel: o.createChannel()})
	requireErr(w.T, err, verbs.ErrForeign)
	w.a.createCQ(verbs.CQConfig{Channel: w.a.createChannel()})
}

func foreignCQ(w *world) {
	o := w.other()
	own, theirs := w.a.createCQ(verbs.CQConfig{}), o.createCQ(verbs.CQConfig{})
	for _, cfg := range []verbs.QPConfig{{SendCQ: theirs, RecvCQ: theirs}, {SendCQ: own, RecvCQ: theirs},
		{SendCQ: theirs, RecvCQ: own}} {
		_, err := w.a.pd.CreateQP(cfg)
		requireErr(w.T, err, verbs.ErrForeign)
	}
	w.a.createQP(w.a.pd, verbs.QPConfig{SendCQ: own, RecvCQ: own})
}

// foreignQP: a connection takes QPs of its own context. The refused ID and request can still be used.
func foreignQP(w *world) {
	theirs := w.other().side(pairConfig{}, nil, [2]*verbs.CompChannel{})
	id := w.resolve(w.ln)
	require.Same(w, w.a.ctx, id.Context())
	requireErr(w.T, id.BindQP(theirs.qp), verbs.ErrForeign)
	requireErr(w.T, id.Connect(within(w.T), theirs.qp, cm.ConnParam{}), verbs.ErrForeign)
	requireErr(w.T, id.BindQP(nil), verbs.ErrInvalid)
	requireErr(w.T, id.Connect(within(w.T), nil, cm.ConnParam{}), verbs.ErrInvalid)
	require.Equal(w, verbs.QPStateReset, theirs.qp.State())

	a, b := w.a.side(pairConfig{}, nil, [2]*verbs.CompChannel{}), w.b.side(pairConfig{}, nil, [2]*verbs.CompChannel{})
	connected := make(chan error, 1)
	ctx := within(w.T)
	go func() { connected <- id.Connect(ctx, a.qp, cm.ConnParam{}) }()
	req, err := w.ln.Accept(ctx)
	require.NoError(w, err)
	require.Same(w, w.b.ctx, req.Context())
	requireErr(w.T, req.BindQP(theirs.qp), verbs.ErrForeign)
	_, err = req.Accept(ctx, theirs.qp, cm.ConnParam{})
	requireErr(w.T, err, verbs.ErrForeign)
	_, err = req.Accept(ctx, nil, cm.ConnParam{})
	requireErr(w.T, err, verbs.ErrInvalid)
	b.id, err = req.Accept(ctx, b.qp, cm.ConnParam{})
	require.NoError(w, err)
	w.closeLater(b.id)
	require.NoError(w, closes(w.T, connected, "Connect"))
	require.Same(w, a.qp, id.QP())
}

// foreignDevice: a configuration that names a device and a context of another one.
func foreignDevice(w *world) {
	if w.f.Active == w.f.Passive {
		id, err := cm.Resolve(within(w.T), w.ln.Addr().String(), cm.Config{Device: w.f.Active, Context: w.b.ctx})
		require.NoError(w, err, "one device")
		w.closeLater(id)
		return
	}
	cfg := cm.Config{Device: w.f.Active, Context: w.b.ctx}
	_, err := cm.Resolve(within(w.T), w.ln.Addr().String(), cfg)
	requireErr(w.T, err, verbs.ErrForeign)
	_, err = cm.Listen(within(w.T), w.f.Listen, cfg)
	requireErr(w.T, err, verbs.ErrForeign)
}
