// SPDX-License-Identifier: BSD-3-Clause

package forward_test

import (
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/forward"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbstest"
)

// TestVerbsTwice runs what depends on how handles find each other on a device that wraps a device
// that wraps a device; one side is wrapped once, so that the two differ.
func TestVerbsTwice(t *testing.T) {
	verbstest.RunSubjects(t, func(t *testing.T) verbstest.Fabric {
		nic := newNIC(t)
		once := wrap(t, nic)
		return verbstest.Fabric{Active: wrap(t, once), Passive: once, Listen: "127.0.0.1:0",
			Others: []*verbs.Device{nic}}
	}, "Device", "MW", "MW1", "CQ", "CQResize", "Channel", "SRQ", "Lifetime", "Foreign", "Events", "Connect",
		"Disconnect")
}

// TestErrorsNameOneCall: whatever number of devices an error has come through, it names the call
// and the device of the program.
func TestErrorsNameOneCall(t *testing.T) {
	once := wrap(t, newNIC(t))
	for _, dev := range []*verbs.Device{once, wrap(t, once)} {
		ctx, err := dev.Open()
		require.NoError(t, err)
		defer func() { require.NoError(t, ctx.CloseAll()) }()
		pd, err := ctx.AllocPD()
		require.NoError(t, err)
		cq, err := ctx.CreateCQ(verbs.CQConfig{})
		require.NoError(t, err)
		qp, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq})
		require.NoError(t, err)
		_, err = qp.PostSend([]verbs.SendWR{{Opcode: verbs.WRSend}})
		require.EqualError(t, err,
			"verbs: PostSend on "+dev.Name()+": request 0: QP is in state RESET: sends can be posted from RTS on")
		_, err = qp.PostRecv([]verbs.RecvWR{{}})
		require.EqualError(t, err,
			"verbs: PostRecv on "+dev.Name()+": request 0: QP is in state RESET: receives can be posted from INIT on")
		_, err = pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq, Type: verbs.QPTypeUC})
		require.ErrorIs(t, err, verbs.ErrNotSupported)
		onceNamed(t, err, "verbs: CreateQP on "+dev.Name()+": ")

		// Nobody listens any more.
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		address := ln.Addr().String()
		require.NoError(t, ln.Close())
		id, err := cm.Resolve(soon(t), address, cm.Config{Context: ctx})
		require.NoError(t, err)
		err = id.Connect(soon(t), qp, cm.ConnParam{})
		onceNamed(t, err, "cm: Connect "+address+": ")
		var op *cm.OpError
		require.ErrorAs(t, err, &op)
		require.False(t, errors.As(op.Err, &op), "and there is one in the chain")
		require.NoError(t, id.Close())
		_, err = cm.Resolve(soon(t), "127.0.0.1:0", cm.Config{Context: ctx})
		onceNamed(t, err, "cm: Resolve 127.0.0.1:0: ")
		_, err = cm.Listen(soon(t), "no.such.host.invalid:1", cm.Config{Context: ctx, TOS: 1})
		onceNamed(t, err, "cm: Listen no.such.host.invalid:1: ")
	}
}

func onceNamed(t *testing.T, err error, start string) {
	t.Helper()
	require.Error(t, err)
	require.True(t, strings.HasPrefix(err.Error(), start), "%v", err)
	require.Equal(t, 1, strings.Count(err.Error(), "cm: ")+strings.Count(err.Error(), "verbs: "), "%v", err)
}

// TestManager: a device that has neither a connection manager nor one below is refused by name.
func TestManager(t *testing.T) {
	bare := verbs.NewDevice(unconnected{newNIC(t).Provider()})
	ctx, err := bare.Open()
	require.NoError(t, err)
	defer func() { require.NoError(t, ctx.CloseAll()) }()
	_, err = cm.Resolve(soon(t), "127.0.0.1:1", cm.Config{Context: ctx})
	require.ErrorIs(t, err, verbs.ErrNotSupported)
	require.ErrorContains(t, err, "no connection manager")
	_, err = cm.Listen(soon(t), "127.0.0.1:0", cm.Config{Context: ctx})
	require.ErrorIs(t, err, verbs.ErrNotSupported)
}

// unconnected hides what a device can do besides being opened.
type unconnected struct{ verbs.ProviderDevice }

// renamed wraps at the level of providers: what it does not do itself is the device's below,
// connections too.
type renamed struct{ verbs.ProviderDevice }

func (d renamed) Unwrap() verbs.ProviderDevice { return d.ProviderDevice }

func (d renamed) Info() verbs.DeviceInfo {
	info := d.ProviderDevice.Info()
	info.Name, info.Provider = "renamed:"+info.Name, "renamed"
	return info
}

// unmanaged forwards everything but connections, which it leaves to the device below: that gets QPs
// which wrap its own.
type unmanaged struct{ verbs.ProviderDevice }

func (d unmanaged) Unwrap() verbs.ProviderDevice {
	forwarding, _ := d.ProviderDevice.(interface{ Unwrap() verbs.ProviderDevice })
	return forwarding.Unwrap()
}

func newUnmanaged(t *testing.T, below *verbs.Device) *verbs.Device {
	t.Helper()
	dev := verbs.NewDevice(unmanaged{forward.Wrap(below).Provider()})
	t.Cleanup(func() { require.NoError(t, dev.CloseShared()) })
	return dev
}

// TestConnectedBelow: the connection manager of the device below takes QPs that wrap its own.
func TestConnectedBelow(t *testing.T) {
	verbstest.RunSubjects(t, func(t *testing.T) verbstest.Fabric {
		dev := newUnmanaged(t, wrap(t, newNIC(t)))
		return verbstest.Fabric{Active: dev, Passive: newUnmanaged(t, newNIC(t)), Listen: "127.0.0.1:0"}
	}, "Order", "Connect", "Disconnect")
}

// TestUnwrapIsEnough: a device that only has Unwrap is connected by the connection manager of the
// device below.
func TestUnwrapIsEnough(t *testing.T) {
	verbstest.RunSubjects(t, func(t *testing.T) verbstest.Fabric {
		nic := newNIC(t)
		dev := verbs.NewDevice(renamed{nic.Provider()})
		t.Cleanup(func() { require.NoError(t, dev.CloseShared()) })
		return verbstest.Fabric{Active: dev, Passive: wrap(t, dev), Listen: "127.0.0.1:0"}
	}, "Order", "Connect", "Disconnect", "Channel")
}
