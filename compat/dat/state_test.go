// SPDX-License-Identifier: BSD-3-Clause

package dat_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/compat/dat"
	"github.com/goverbs/goverbs/verbs"
)

// The table in the package comment: the result of each call in each state.
func TestStates(t *testing.T) {
	everywhere(t, func(t *testing.T, dev *verbs.Device, addr netip.Addr) {
		a, b := newSide(t, dev, addr, options{}), newSide(t, dev, addr, options{})
		requests := func(want error) {
			t.Helper()
			to, one := a.remote(0, 8), a.segment(0, 8)
			for name, err := range map[string]error{
				"send": a.ep.PostSend(nil, 1, 0), "write": a.ep.PostRDMAWrite(one, 1, to, 0),
				"read":        a.ep.PostRDMARead(one, 1, to, 0),
				"send immed":  a.ep.PostSendImmed(nil, 1, 1, 1, 0),
				"write immed": a.ep.PostWriteImmed(one, 1, to, 1, 1, 0),
				"add":         a.ep.PostFetchAndAdd(1, one[0], 1, to, 0),
				"masked add":  a.ep.PostMaskedFetchAndAdd(1, 1, one[0], 1, to, 0),
				"swap":        a.ep.PostCmpAndSwap(1, 1, one[0], 1, to, 0),
				"masked swap": a.ep.PostMaskedCmpAndSwap(1, 1, 1, 1, one[0], 1, to, 0),
			} {
				require.ErrorIs(t, err, dat.InvalidState, name)
				require.ErrorIs(t, err, want, name)
			}
		}
		// UNCONNECTED
		requests(dat.InvalidStateEPUnconnected)
		require.NoError(t, a.ep.PostRecv(nil, 1, 0))
		require.NoError(t, a.ep.Reset(), "nothing happens")
		require.ErrorIs(t, a.ep.Disconnect(0), dat.InvalidStateEPUnconnected)
		require.ErrorIs(t, a.ep.Disconnect(2), dat.InvalidArg2)
		state, recvIdle, requestIdle, err := a.ep.Status()
		require.NoError(t, err)
		require.Equal(t, []any{dat.EPUnconnected, false, true}, []any{state, recvIdle, requestIdle})

		// ACTIVE_CONNECTION_PENDING
		psp, qual := b.listen()
		require.NoError(t, a.ep.Connect(addr, qual, patience, nil))
		requests(dat.InvalidStateEPActConnPending)
		require.NoError(t, a.ep.PostRecv(nil, 2, 0))
		require.ErrorIs(t, a.ep.Reset(), dat.InvalidStateEPActConnPending)
		require.ErrorIs(t, a.ep.Connect(addr, qual, patience, nil), dat.InvalidStateEPActConnPending)
		cr := wait(t, b.conn, dat.ConnectionRequestEvent).CR.CR
		require.NoError(t, cr.Accept(b.ep, nil))
		wait(t, a.conn, dat.ConnectionEstablished)
		wait(t, b.conn, dat.ConnectionEstablished)

		// CONNECTED
		require.ErrorIs(t, a.ep.Reset(), dat.InvalidStateEPConnected)
		require.ErrorIs(t, a.ep.Connect(addr, qual, patience, nil), dat.InvalidStateEPConnected)
		require.NoError(t, b.ep.PostSend(nil, 3, 0))
		dto(t, a.recv, 1)
		dto(t, b.requests, 3)
		require.NoError(t, a.ep.Disconnect(0))
		wait(t, a.conn, dat.ConnectionDisconnected)
		wait(t, b.conn, dat.ConnectionDisconnected)

		// DISCONNECTED
		require.ErrorIs(t, a.ep.Connect(addr, qual, patience, nil), dat.InvalidStateEPDisconnected)
		require.Equal(t, dat.DTOErrFlushed, dto(t, a.recv, 2).Status)
		state, recvIdle, requestIdle, err = a.ep.Status()
		require.NoError(t, err)
		require.Equal(t, []any{dat.EPDisconnected, true, true}, []any{state, recvIdle, requestIdle})
		require.NoError(t, psp.Free())

		// Freed: every call reports it, and the events of outstanding DTOs are there.
		require.NoError(t, a.ep.Reset())
		require.NoError(t, a.ep.PostRecv(nil, 4, 0))
		require.NoError(t, a.ep.Free())
		require.NoError(t, a.ep.Free())
		require.Equal(t, dat.DTOErrFlushed, dto(t, a.recv, 4).Status)
		empty(t, a.conn)
		for _, err := range []error{a.ep.PostSend(nil, 1, 0), a.ep.PostRecv(nil, 1, 0), a.ep.Disconnect(0),
			a.ep.Reset(), a.ep.Connect(addr, 1, patience, nil)} {
			require.ErrorIs(t, err, dat.InvalidHandle)
		}
		_, err = a.ep.Query()
		require.ErrorIs(t, err, dat.InvalidHandle)
	})
}

// Parents cannot be freed before their children. IA.Close closes everything, if allowed.
func TestLifetimes(t *testing.T) {
	everywhere(t, func(t *testing.T, dev *verbs.Device, addr netip.Addr) {
		a, _ := pair(t, dev, addr, options{})
		require.ErrorIs(t, a.pz.Free(), dat.InvalidStatePZInUse)
		require.ErrorIs(t, a.recv.Free(), dat.InvalidStateEVDInUse)
		require.ErrorIs(t, a.requests.Free(), dat.InvalidStateEVDInUse)
		require.ErrorIs(t, a.conn.Free(), dat.InvalidStateEVDInUse)
		require.ErrorIs(t, a.ia.Close(dat.CloseGraceful), dat.InvalidStateIAInUse)
		require.ErrorIs(t, a.ia.Close(2), dat.InvalidArg2)
		for _, free := range []func() error{a.ep.Free, a.lmr.Free, a.pz.Free, a.recv.Free, a.requests.Free,
			a.conn.Free} {
			require.NoError(t, free())
			require.NoError(t, free(), "it is idempotent")
		}
		require.NoError(t, a.ia.Close(dat.CloseGraceful))
		_, err := a.ia.CreatePZ()
		require.ErrorIs(t, err, dat.InvalidHandleIA)
		_, err = a.pz.AllocLMR(8, 0)
		require.ErrorIs(t, err, dat.InvalidHandlePZ)
		_, err = a.recv.Dequeue()
		require.ErrorIs(t, err, dat.InvalidHandle)
		_, err = a.lmr.Query()
		require.ErrorIs(t, err, dat.InvalidHandleLMR)

		// Abruptly, with a connection, a listener and an unanswered request.
		c, d := pair(t, dev, addr, options{})
		_, qual := c.listen()
		other, err := d.ia.CreateEP(d.pz, d.recv, d.requests, d.conn, dat.EPAttr{})
		require.NoError(t, err)
		require.NoError(t, other.Connect(addr, qual, patience, nil))
		wait(t, c.conn, dat.ConnectionRequestEvent)
		require.NoError(t, c.ia.Close(dat.CloseAbrupt))
		seen := map[dat.EventNumber]int{}
		for range 2 {
			ev, _, err := d.conn.Wait(t.Context(), patience, 1)
			require.NoError(t, err)
			seen[ev.Number]++
		}
		require.Equal(t, 1, seen[dat.ConnectionPeerRejected], "%v", seen)
	})
}

// Arguments that CreateEP and the LMRs refuse.
func TestCreateRefused(t *testing.T) {
	everywhere(t, func(t *testing.T, dev *verbs.Device, addr netip.Addr) {
		a, b := newSide(t, dev, addr, options{}), newSide(t, dev, addr, options{})
		ep := func(pz *dat.PZ, recv, request, conn *dat.EVD, attr dat.EPAttr) error {
			_, err := a.ia.CreateEP(pz, recv, request, conn, attr)
			return err
		}
		require.ErrorIs(t, ep(nil, a.recv, a.requests, a.conn, dat.EPAttr{}), dat.InvalidHandlePZ)
		require.ErrorIs(t, ep(b.pz, a.recv, a.requests, a.conn, dat.EPAttr{}), dat.InvalidHandlePZ)
		require.ErrorIs(t, ep(a.pz, a.conn, a.requests, a.conn, dat.EPAttr{}), dat.InvalidHandleEVDRecv)
		require.ErrorIs(t, ep(a.pz, a.recv, b.requests, a.conn, dat.EPAttr{}), dat.InvalidHandleEVDRequest)
		require.ErrorIs(t, ep(a.pz, a.recv, a.requests, a.recv, dat.EPAttr{}), dat.InvalidHandleEVDConn)
		for _, attr := range []dat.EPAttr{{MaxRecvDTOs: -1}, {MaxRequestIOV: -1}, {MaxRDMAReadIn: -2},
			{RecvCompletionFlags: dat.CompletionSuppress},
			{RecvCompletionFlags: dat.CompletionEVDThreshold | dat.CompletionSolicitedWait},
			{RequestCompletionFlags: dat.CompletionSolicitedWait}} {
			require.ErrorIs(t, ep(a.pz, a.recv, a.requests, a.conn, attr), dat.InvalidArg6, "%+v", attr)
		}
		require.ErrorIs(t, ep(a.pz, a.recv, a.requests, a.conn, dat.EPAttr{MaxRequestDTOs: 1 << 30}),
			dat.InsufficientResources)

		for _, flags := range []dat.EVDFlags{0, dat.EVDAsync, 1} {
			_, err := a.ia.CreateEVD(4, flags)
			require.ErrorIs(t, err, dat.InvalidArg4, "%v", flags)
		}
		_, err := a.ia.CreateEVD(0, dat.EVDDTO)
		require.ErrorIs(t, err, dat.InvalidArg2)
		_, err = a.ia.CreateEVD(1<<30, dat.EVDDTO)
		require.ErrorIs(t, err, dat.InsufficientResources)
		require.ErrorIs(t, err, dat.ResourceTEVD)

		for _, priv := range []dat.MemPriv{dat.MemPrivRemoteWrite, dat.MemPrivRemoteAtomic, 0x80} {
			_, err := a.pz.AllocLMR(8, priv)
			require.ErrorIs(t, err, dat.InvalidArg6, "%v", priv)
		}
		_, err = a.pz.CreateLMR(make([]byte, 8), 0, 2)
		require.ErrorIs(t, err, dat.InvalidArg7)
		_, err = a.lmr.Segment(memory, 1)
		require.ErrorIs(t, err, dat.InvalidParameter)
	})
}

// Memory of the program, addressed by offsets; the sync calls.
func TestLMR(t *testing.T) {
	everywhere(t, func(t *testing.T, dev *verbs.Device, addr netip.Addr) {
		a, b := pair(t, dev, addr, options{})
		mem, va := a.bytes(0, 64), dat.VATypeZB // at the start of a page
		_, attr, _, err := a.ia.Query()
		require.NoError(t, err)
		if !attr.ZeroBasedSupported {
			_, err := a.pz.CreateLMR(mem, dat.MemPrivAll, va)
			require.ErrorIs(t, err, dat.ModelNotSupported)
			va = dat.VATypeVA
		}
		require.Equal(t, dev.Name() != "ib:siw0", attr.ZeroBasedSupported)
		l, err := a.pz.CreateLMR(mem, dat.MemPrivAll, va)
		require.NoError(t, err)
		q, err := l.Query()
		require.NoError(t, err)
		require.Equal(t, uint64(64), q.RegisteredSize)
		require.Equal(t, va, q.VAType)
		require.Equal(t, va == dat.VATypeZB, q.RegisteredAddress == 0)
		require.Equal(t, dat.MemPrivAll, q.Privileges)
		copy(b.bytes(0, 5), "hello")
		to, err := l.Remote(8, 5)
		require.NoError(t, err)
		require.Equal(t, q.RegisteredAddress+8, to.VirtualAddress)
		require.NoError(t, b.ep.PostRDMAWrite(b.segment(0, 5), 1, to, 0))
		require.Equal(t, dat.DTOSuccess, dto(t, b.requests, 1).Status)
		seg, err := l.Segment(8, 5)
		require.NoError(t, err)
		require.NoError(t, a.ia.SyncRDMAWrite([]dat.LMRTriplet{seg, {}}))
		require.Equal(t, "hello", string(mem[8:13]))
		require.NoError(t, a.ia.SyncRDMARead([]dat.LMRTriplet{seg}))
		seg.SegmentLength = 57
		require.ErrorIs(t, a.ia.SyncRDMARead([]dat.LMRTriplet{seg}), dat.InvalidParameter)
		require.NoError(t, l.Free())
		seg.SegmentLength = 5
		require.ErrorIs(t, a.ia.SyncRDMARead([]dat.LMRTriplet{seg}), dat.InvalidParameter)
	})
}
