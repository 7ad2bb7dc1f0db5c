// SPDX-License-Identifier: BSD-3-Clause

package verbstest

import (
	"slices"

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

func foreignChannel(w *world) outcome {
	o := w.other()
	_, err := w.a.ctx.CreateCQ(verbs.CQConfig{Channel: o.createChannel()})
	requireErr(w.T, err, verbs.ErrForeign)
	w.a.createCQ(verbs.CQConfig{Channel: w.a.createChannel()})
	return tested
}

func foreignCQ(w *world) outcome {
	o := w.other()
	own, theirs := w.a.createCQ(verbs.CQConfig{}), o.createCQ(verbs.CQConfig{})
	for _, cfg := range []verbs.QPConfig{{SendCQ: theirs, RecvCQ: theirs}, {SendCQ: own, RecvCQ: theirs},
		{SendCQ: theirs, RecvCQ: own}} {
		_, err := w.a.pd.CreateQP(cfg)
		requireErr(w.T, err, verbs.ErrForeign)
	}
	w.a.createQP(w.a.pd, verbs.QPConfig{SendCQ: own, RecvCQ: own})
	return tested
}

// foreignQP: a connection accepts only QPs of its own context. After the refusal, the ID and the
// request can still be used.
func foreignQP(w *world) outcome {
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
	return tested
}

// foreignDevice: objects of another device are refused, whatever its kind.
func foreignDevice(w *world) outcome {
	others := w.f.Others
	if w.f.Passive != w.f.Active {
		others = append(slices.Clone(others), w.f.Passive)
	}
	if len(others) == 0 {
		w.without("other-device")
		return noted
	}
	p := w.pair(pairConfig{})
	own := w.a.side(pairConfig{}, nil, [2]*verbs.CompChannel{})
	for _, dev := range others {
		w.foreign(openHost(w.T, dev), own)
	}
	id, err := cm.Resolve(within(w.T), w.ln.Addr().String(), cm.Config{Device: w.f.Active, Context: w.a.ctx})
	require.NoError(w, err, "a device and a context of its own")
	w.closeLater(id)
	require.Equal(w, verbs.QPStateReset, own.qp.State())
	p.works()
	return tested
}

// foreign passes objects of another device to objects of the active side, and vice versa.
func (w *world) foreign(o *host, own *side) {
	w.Helper()
	require.NotSame(w, w.f.Active, o.ctx.Device())
	address := w.ln.Addr().String()
	for _, cfg := range []cm.Config{{Device: w.f.Active, Context: o.ctx}, {Device: o.ctx.Device(), Context: w.a.ctx}} {
		_, err := cm.Resolve(within(w.T), address, cfg)
		requireErr(w.T, err, verbs.ErrForeign)
		_, err = cm.Listen(within(w.T), w.f.Listen, cfg)
		requireErr(w.T, err, verbs.ErrForeign)
	}
	theirs := o.side(pairConfig{}, nil, [2]*verbs.CompChannel{})
	id := w.resolve(w.ln)
	requireErr(w.T, id.BindQP(theirs.qp), verbs.ErrForeign)
	requireErr(w.T, id.Connect(within(w.T), theirs.qp, cm.ConnParam{}), verbs.ErrForeign)
	require.Equal(w, verbs.QPStateReset, theirs.qp.State())
	for _, s := range [][2]*side{{own, theirs}, {theirs, own}} {
		_, err := s[0].ctx.CreateCQ(verbs.CQConfig{Channel: s[1].createChannel()})
		requireErr(w.T, err, verbs.ErrForeign)
		for _, cfg := range []verbs.QPConfig{{SendCQ: s[0].scq, RecvCQ: s[1].rcq},
			{SendCQ: s[1].scq, RecvCQ: s[0].rcq}} {
			_, err = s[0].pd.CreateQP(cfg)
			requireErr(w.T, err, verbs.ErrForeign)
		}
	}
}
