// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package cm_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/verbs"
)

// TestDepths: the negotiated depths are the smaller ones of both sides.
func TestDepths(t *testing.T) {
	eachFake(t, func(b *bench) {
		for _, c := range []struct{ active, passive, want cm.ConnParam }{
			{cm.ConnParam{InitiatorDepth: 8, ResponderResources: 7},
				cm.ConnParam{InitiatorDepth: 2, ResponderResources: 3},
				cm.ConnParam{InitiatorDepth: 3, ResponderResources: 2}},
			{cm.ConnParam{InitiatorDepth: 2, ResponderResources: 3},
				cm.ConnParam{InitiatorDepth: 8, ResponderResources: 7},
				cm.ConnParam{InitiatorDepth: 2, ResponderResources: 3}},
		} {
			if b.iwarp() { // kernel siw serves as many as the peer requests
				c.want.InitiatorDepth = c.active.InitiatorDepth
			}
			active, passive := b.join(b.qp(0), b.qp(0), c.active, c.passive)
			ord, ird := active.Depths()
			require.Equal(b, []int{c.want.InitiatorDepth, c.want.ResponderResources}, []int{ord, ird})
			ord, ird = passive.Depths()
			require.Equal(b, []int{c.want.ResponderResources, c.want.InitiatorDepth}, []int{ord, ird})
			for _, id := range []*cm.ID{active, passive} {
				ord, ird := id.Depths()
				attr, err := id.QP().Query()
				require.NoError(b, err)
				require.Equal(b, verbs.QPStateRTS, attr.State)
				require.Equal(b, []int{ord, ird}, []int{attr.MaxRdAtomic, attr.MaxDestRdAtomic})
			}
		}
	})
}

// TestDepthsOfTheEvent: kernel siw reports the depths of its own side. If they exceed what this
// side requested, the requested depths are used.
func TestDepthsOfTheEvent(t *testing.T) {
	b := newBench(t, "fake1", "198.51.100.1", cm.Config{})
	for _, c := range []struct{ own, told, ord int }{{2, 9, 2}, {9, 4, 4}} {
		established := fakeverbs.CMEvent{Event: int(cm.EventEstablished), ResponderResources: uint8(c.told),
			InitiatorDepth: 3}
		param := cm.ConnParam{InitiatorDepth: c.own, ResponderResources: 6}
		// ended injects the event for the end of the connection, because the fake has no connection
		// here.
		ended := func(id *cm.ID, data string) {
			ord, ird := id.Depths()
			require.Equal(t, []int{c.ord, 3}, []int{ord, ird}, data)
			for _, other := range fakeverbs.CMIDs() {
				if string(other.Param.PrivateData) == data {
					fakeverbs.InjectCM(other.ID, fakeverbs.CMEvent{Event: int(cm.EventDisconnected)})
				}
			}
			wait(t, id.Done(), "the end")
			require.NoError(t, id.Close())
		}
		fakeverbs.CMNext("rdma_connect", established)
		id := b.resolve(cm.Config{})
		param.PrivateData = []byte("active")
		require.NoError(t, id.Connect(soon(t), b.qp(0), param))
		ended(id, "active")

		asking, qp, other := b.resolve(cm.Config{}), b.qp(0), b.qp(0)
		connected := make(chan error, 1)
		go func() { connected <- asking.Connect(soon(t), qp, cm.ConnParam{}) }()
		req, err := b.ln.Accept(soon(t))
		require.NoError(t, err)
		fakeverbs.CMNext("rdma_accept", established)
		param.PrivateData = []byte("passive")
		id, err = req.Accept(soon(t), other, param)
		require.NoError(t, err)
		ended(id, "passive")
		require.NoError(t, asking.Close())
		require.Error(t, b.outcome(connected))
	}
}

// TestSilentDepths: on iWARP a peer with MPA revision 1 sends no depths, and the kernel reports 0
// in both directions. On InfiniBand 0 means 0.
func TestSilentDepths(t *testing.T) {
	eachFake(t, func(b *bench) {
		id, qp, other := b.resolve(cm.Config{}), b.qp(0), b.qp(0)
		connected := make(chan error, 1)
		go func() {
			connected <- id.Connect(soon(b.T), qp, cm.ConnParam{InitiatorDepth: cm.None, ResponderResources: cm.None})
		}()
		req, err := b.ln.Accept(soon(b.T))
		require.NoError(b, err)
		ord, ird := req.Depths()
		want := map[bool]int{true: -1, false: 0}[b.iwarp()]
		require.Equal(b, []int{want, want}, []int{ord, ird})
		passive, err := req.Accept(soon(b.T), other, cm.ConnParam{InitiatorDepth: 5, ResponderResources: 4})
		require.NoError(b, err)
		require.NoError(b, b.outcome(connected))
		told := b.idOf(other).Param
		if b.iwarp() {
			require.EqualValues(b, 4, told.ResponderResources)
		} else {
			require.Zero(b, told.ResponderResources)
			require.Zero(b, told.InitiatorDepth)
		}
		require.NoError(b, passive.Close())
	})
}

// TestHalfSilentDepths: if either depth is not 0, the peer has sent both.
func TestHalfSilentDepths(t *testing.T) {
	eachFake(t, func(b *bench) {
		for _, param := range []cm.ConnParam{{InitiatorDepth: cm.None, ResponderResources: 5},
			{InitiatorDepth: 5, ResponderResources: cm.None}} {
			id, qp := b.resolve(cm.Config{}), b.qp(0)
			connected := make(chan error, 1)
			go func() { connected <- id.Connect(soon(b.T), qp, param) }()
			req, err := b.ln.Accept(soon(b.T))
			require.NoError(b, err)
			ord, ird := req.Depths()
			require.Equal(b, []int{max(param.InitiatorDepth, 0), max(param.ResponderResources, 0)}, []int{ord, ird})
			require.NoError(b, req.Reject(nil))
			require.ErrorIs(b, <-connected, cm.ErrRejected)
		}
	})
}

// TestDepthsAreKept: kernel siw, which moves the QP itself, accepts as many Reads as the peer
// serves. The provider keeps only as many outstanding as this side requested.
func TestDepthsAreKept(t *testing.T) {
	b := newBench(t, "fake1", "198.51.100.1", cm.Config{})
	pd, err := b.vctx.AllocPD()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pd.Close()) })
	mr, err := pd.AllocMR(64, verbs.AccessLocalWrite)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, mr.Close()) })
	sge, err := mr.SGE(0, 64)
	require.NoError(t, err)
	cq, err := b.vctx.CreateCQ(verbs.CQConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cq.Close()) })
	qp, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, qp.Close()) })
	id := b.resolve(cm.Config{})
	require.NoError(t, id.BindQP(qp))
	require.True(t, fakeverbs.SetDepths(qp.Num(), 9, 9))
	fakeverbs.CMNext("rdma_connect",
		fakeverbs.CMEvent{Event: int(cm.EventEstablished), ResponderResources: 9, InitiatorDepth: 9})
	require.NoError(t, id.Connect(soon(t), qp, cm.ConnParam{PrivateData: []byte("me"), InitiatorDepth: 2}))
	require.True(t, fakeverbs.MoveQP(qp.Num(), int(verbs.QPStateRTS)))
	for range 3 {
		_, err := qp.PostSend([]verbs.SendWR{{Opcode: verbs.WRRDMARead, SGL: []verbs.SGE{sge}, RKey: 7}})
		require.NoError(t, err)
	}
	reads := 0
	for _, wr := range fakeverbs.Posted() {
		if verbs.WROpcode(wr.Opcode) == verbs.WRRDMARead {
			reads++
		}
	}
	require.Equal(t, 2, reads)
	for _, other := range fakeverbs.CMIDs() {
		if string(other.Param.PrivateData) == "me" {
			fakeverbs.InjectCM(other.ID, fakeverbs.CMEvent{Event: int(cm.EventDisconnected)})
		}
	}
	wait(t, id.Done(), "the end")
}

// TestDepthsOfTheDevice: a depth of librdmacm has 8 bits, and one value has a special meaning.
func TestDepthsOfTheDevice(t *testing.T) {
	fakeverbs.Start(t)
	attr := fakeverbs.DeviceAttr(fakeverbs.Fake0)
	attr.MaxQPInitRdAtom, attr.MaxQPRdAtom = 1000, 256
	fakeverbs.SetDeviceAttr(fakeverbs.Fake0, attr)
	vctx, err := device(t, "fake0").Open()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, vctx.Close()) })
	id, err := cm.Resolve(soon(t), "192.0.2.1:7306", cm.Config{Context: vctx})
	require.NoError(t, err)
	fakeverbs.CMNext("rdma_connect", fakeverbs.CMEvent{Event: int(cm.EventRejected), Status: 28})
	qp := newQP(t, vctx, 0)
	require.NoError(t, id.BindQP(qp))
	bound, ok := fakeverbs.QPByNum(qp.Num())
	require.True(t, ok)
	const remote = verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic
	require.EqualValues(t, remote, bound.Access&uint32(remote), "the peer may do what the memory allows")
	require.EqualValues(t, 1, bound.Port)
	fakeverbs.Hold("rdma_destroy_id")
	t.Cleanup(fakeverbs.Release)
	connected := make(chan error, 1)
	go func() { connected <- id.Connect(soon(t), qp, cm.ConnParam{}) }()
	require.Eventually(t, fakeverbs.Holding, 20*time.Second, time.Millisecond)
	told := last(t, fakeverbs.CMConnecting).Param
	require.Equal(t, []uint8{254, 254}, []uint8{told.InitiatorDepth, told.ResponderResources})
	fakeverbs.Release()
	require.ErrorIs(t, <-connected, cm.ErrRejected)
	require.NoError(t, id.Close())
}
