// SPDX-License-Identifier: BSD-3-Clause

package verbstest

import (
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

var deviceTests = []test{
	{"Info", deviceInfo},
	{"Registry", deviceRegistry},
	{"None", deviceNone},
	{"Query", deviceQuery},
	{"Port", devicePort},
	{"Ops", deviceOps},
	{"OpenTwice", deviceOpenTwice},
	{"Shared", deviceShared},
}

func deviceInfo(w *world) outcome {
	for _, d := range []*verbs.Device{w.f.Active, w.f.Passive} {
		info := d.Info()
		require.NotEmpty(w, info.Name)
		require.NotEmpty(w, info.Provider)
		require.Equal(w, info.Name, d.Name())
		require.Equal(w, info.Name+" ("+info.Provider+")", d.String())
		require.NotNil(w, d.Provider())
		require.Same(w, w.a.ctx.Device(), w.f.Active)
		if info.Transport == verbs.TransportIWARP {
			require.Equal(w, verbs.NodeRNIC, info.NodeType)
		} else {
			require.Equal(w, verbs.NodeCA, info.NodeType)
		}
	}
	return tested
}

// listed reports whether verbs.Devices includes the active side's device.
func (w *world) listed() bool {
	w.Helper()
	devices, err := verbs.Devices()
	require.NoError(w, err)
	return slices.ContainsFunc(devices, func(d *verbs.Device) bool { return d.Name() == w.f.Active.Name() })
}

// register registers the active side's device for the duration of the test. Kernel devices are
// always listed.
func (w *world) register() {
	w.Helper()
	if w.listed() {
		return
	}
	d, err := verbs.Register(w.f.Active.Provider())
	require.NoError(w, err)
	w.Cleanup(func() {
		verbs.Unregister(d)
		require.NoError(w, d.CloseShared())
		require.False(w, w.listed(), "an unregistered device is not listed")
	})
}

func deviceRegistry(w *world) outcome {
	name := w.f.Active.Name()
	if !w.listed() {
		_, err := verbs.DeviceByName(name)
		requireErr(w.T, err, verbs.ErrNoDevice)
	}
	w.register()
	require.True(w, w.listed())
	d, err := verbs.DeviceByName(name)
	require.NoError(w, err)
	require.Equal(w, name, d.Name())

	_, err = verbs.Register(w.f.Active.Provider())
	requireErr(w.T, err, verbs.ErrInvalid)
	_, err = verbs.DeviceByName("absent0")
	requireErr(w.T, err, verbs.ErrNoDevice)
	require.ErrorContains(w, err, `"absent0"`)
	require.ErrorContains(w, err, name, "the text lists the devices that are present")
	return tested
}

func deviceNone(w *world) outcome {
	var d *verbs.Device
	_, err := d.Open()
	requireErr(w.T, err, verbs.ErrNoDevice)
	_, err = d.SharedContext()
	requireErr(w.T, err, verbs.ErrNoDevice)
	require.Empty(w, d.Name())
	require.Nil(w, d.Provider())
	_, err = new(verbs.Device).Open()
	requireErr(w.T, err, verbs.ErrNoDevice)
	return tested
}

func deviceQuery(w *world) outcome {
	attr, err := w.a.ctx.QueryDevice()
	require.NoError(w, err)
	require.Equal(w, w.f.Active.Info().NodeGUID, attr.NodeGUID)
	for name, v := range map[string]int{"MaxQP": attr.MaxQP, "MaxQPWR": attr.MaxQPWR, "MaxSGE": attr.MaxSGE,
		"MaxSGERd": attr.MaxSGERd, "MaxCQ": attr.MaxCQ, "MaxCQE": attr.MaxCQE, "MaxMR": attr.MaxMR, "MaxPD": attr.MaxPD,
		"MaxQPRdAtom": attr.MaxQPRdAtom, "MaxResRdAtom": attr.MaxResRdAtom, "MaxQPInitRdAtom": attr.MaxQPInitRdAtom,
		"PhysPortCnt": attr.PhysPortCnt} {
		require.Positive(w, v, name)
	}
	require.Positive(w, attr.MaxMRSize)
	require.NotZero(w, attr.PageSizeCap)
	require.GreaterOrEqual(w, attr.MaxResRdAtom, attr.MaxQPRdAtom)
	require.Equal(w, w.a.ctx.Supports(verbs.OpFetchAdd), attr.AtomicCap != verbs.AtomicNone)
	if w.a.ctx.Supports(verbs.OpBindMW) {
		require.Positive(w, attr.MaxMW)
		require.NotZero(w, attr.DeviceCapFlags&(verbs.DeviceMemWindowType2A|verbs.DeviceMemWindowType2B))
	} else {
		require.Zero(w, attr.DeviceCapFlags&(verbs.DeviceMemWindowType2A|verbs.DeviceMemWindowType2B))
	}
	again, err := w.a.ctx.QueryDevice()
	require.NoError(w, err)
	require.Equal(w, attr, again)
	return tested
}

func devicePort(w *world) outcome {
	attr, err := w.a.ctx.QueryPort(1)
	require.NoError(w, err)
	require.Equal(w, verbs.PortActive.String(), attr.State.String())
	require.NotZero(w, attr.ActiveMTU.Bytes())
	require.GreaterOrEqual(w, attr.MaxMTU, attr.ActiveMTU)
	require.Positive(w, attr.MaxMsgSz)
	for _, port := range []int{0, -1, w.a.attr.PhysPortCnt + 1} {
		_, err := w.a.ctx.QueryPort(port)
		requireErr(w.T, err, verbs.ErrInvalid)
		require.ErrorContains(w, err, "port")
	}
	return tested
}

// deviceOps posts one request of every kind. Those that the device lacks must be refused before
// anything else is checked, in every state of the QP; for the others the state decides.
func deviceOps(w *world) outcome {
	qp := w.a.side(pairConfig{}, nil, [2]*verbs.CompChannel{}).qp
	for op, wr := range map[verbs.Op]verbs.SendWR{
		verbs.OpSend:           {Opcode: verbs.WRSend},
		verbs.OpSendInv:        {Opcode: verbs.WRSendWithInv},
		verbs.OpSendImm:        {Opcode: verbs.WRSendWithImm},
		verbs.OpWrite:          {Opcode: verbs.WRRDMAWrite},
		verbs.OpWriteImm:       {Opcode: verbs.WRRDMAWriteWithImm},
		verbs.OpRead:           {Opcode: verbs.WRRDMARead},
		verbs.OpFetchAdd:       {Opcode: verbs.WRAtomicFetchAndAdd, SGL: make([]verbs.SGE, 1)},
		verbs.OpCmpSwap:        {Opcode: verbs.WRAtomicCmpAndSwp, SGL: make([]verbs.SGE, 1)},
		verbs.OpMaskedFetchAdd: {Opcode: verbs.WRMaskedAtomicFetchAndAdd, SGL: make([]verbs.SGE, 1)},
		verbs.OpMaskedCmpSwap:  {Opcode: verbs.WRMaskedAtomicCmpAndSwp, SGL: make([]verbs.SGE, 1)},
		verbs.OpImm64:          {Opcode: verbs.WRImmData},
		verbs.OpLocalInv:       {Opcode: verbs.WRLocalInv},
		verbs.OpBindMW:         {Opcode: verbs.WRBindMW},
		verbs.OpAtomicWrite:    {Opcode: verbs.WRAtomicWrite},
	} {
		for i := range wr.SGL {
			wr.SGL[i].Length = 8
		}
		require.Equal(w, w.a.ctx.Ops().Has(op), w.a.ctx.Supports(op), op.String())
		n, err := qp.PostSend([]verbs.SendWR{wr})
		require.Zero(w, n)
		switch {
		case !w.a.ctx.Supports(op):
			w.lacking(op.String(), err)
			require.ErrorContains(w, err, wr.Opcode.String())
		case op == verbs.OpAtomicWrite:
			requireErr(w.T, err, verbs.ErrNotSupported)
			require.ErrorContains(w, err, "SendOps") // the QP was created without them
		case op == verbs.OpBindMW:
			requireErr(w.T, err, verbs.ErrInvalid) // no window is given
		default:
			requireErr(w.T, err, verbs.ErrState)
		}
	}
	for _, op := range []verbs.Op{verbs.OpSend, verbs.OpWrite, verbs.OpRead} {
		require.True(w, w.a.ctx.Supports(op), "every device has %v", op)
	}
	for _, opcode := range []verbs.WROpcode{10, 11, 14, 63, 65, 255} {
		n, err := qp.PostSend([]verbs.SendWR{{Opcode: opcode}})
		require.Zero(w, n)
		requireErr(w.T, err, verbs.ErrInvalid)
	}
	return tested
}

func deviceOpenTwice(w *world) outcome {
	c, err := w.f.Active.Open()
	require.NoError(w, err)
	pd, err := c.AllocPD()
	require.NoError(w, err)
	require.NoError(w, pd.Close())
	require.NoError(w, c.Close())
	_, err = c.QueryDevice()
	requireClosed(w.T, err)
	_, err = w.a.ctx.QueryDevice()
	require.NoError(w, err, "the other context goes on")
	w.pair(pairConfig{}).works()
	return tested
}

func deviceShared(w *world) outcome {
	c, err := w.f.Active.SharedContext()
	require.NoError(w, err)
	again, err := w.f.Active.SharedContext()
	require.NoError(w, err)
	require.Same(w, c, again)
	require.NotSame(w, c, w.a.ctx)
	requireErr(w.T, c.Close(), verbs.ErrBusy)
	_, err = c.QueryDevice()
	require.NoError(w, err, "a refused Close leaves it open")
	require.NoError(w, c.CloseAll(), "nothing lives on it")
	_, err = c.QueryDevice()
	require.NoError(w, err, "and CloseAll leaves the context itself")
	return tested
}
