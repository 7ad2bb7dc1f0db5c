// SPDX-License-Identifier: BSD-3-Clause

package dat_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/compat/dat"
	"github.com/goverbs/goverbs/verbs"
)

// A suppressed DTO that succeeds generates no event; one that fails does.
func TestSuppress(t *testing.T) {
	everywhere(t, func(t *testing.T, dev *verbs.Device, addr netip.Addr) {
		const queue = 8
		a, b := pair(t, dev, addr, options{attr: dat.EPAttr{MaxRequestDTOs: queue}})
		for round := range uint64(3) { // a later completion frees the places
			for i := range uint64(queue - 1) {
				require.NoError(t, a.ep.PostRDMAWrite(a.segment(0, 8), i, b.remote(int(i)*8, 8),
					dat.CompletionSuppress))
			}
			require.NoError(t, a.ep.PostRDMARead(a.segment(0, 8), 100+round, b.remote(0, 8), 0))
			require.ErrorIs(t, a.ep.PostRDMAWrite(nil, 1, b.remote(0, 0), 0), dat.InsufficientResources)
			require.ErrorIs(t, a.ep.PostRDMAWrite(nil, 1, b.remote(0, 0), 0), dat.ResourceTEP)
			require.Equal(t, dat.DTOSuccess, dto(t, a.requests, 100+round).Status)
			empty(t, a.requests)
			_, _, idle, err := a.ep.Status()
			require.NoError(t, err)
			require.True(t, idle)
		}
		bad := b.remote(0, 8)
		bad.RMRContext ^= 0x5555 << 8
		require.NoError(t, a.ep.PostRDMARead(a.segment(0, 8), 200, bad, dat.CompletionSuppress))
		require.Equal(t, dat.DTOErrRemoteAccess, dto(t, a.requests, 200).Status)
	})
}

// A solicited EVD wakes its waiter only for messages whose sender requests it.
func TestSolicited(t *testing.T) {
	everywhere(t, func(t *testing.T, dev *verbs.Device, addr netip.Addr) {
		a, b := pair(t, dev, addr, options{attr: dat.EPAttr{RecvCompletionFlags: dat.CompletionSolicitedWait}})
		for i := range uint64(4) {
			require.NoError(t, b.ep.PostRecv(b.segment(0, 8), i, 0))
		}
		ch := waiter(t, t.Context(), b.recv, dat.Infinite, 1)
		require.NoError(t, a.ep.PostSend(a.segment(0, 8), 10, 0))
		dto(t, a.requests, 10)
		require.Empty(t, ch)
		require.NoError(t, a.ep.PostSendImmed(a.segment(0, 8), 11, 7, dat.DTOImmedFlag, dat.CompletionSolicitedWait))
		o := result(t, ch)
		require.NoError(t, o.err)
		require.Equal(t, uint64(0), o.ev.DTO.Cookie)
		require.Equal(t, 1, o.more, "both have come")
		require.Equal(t, uint64(1), dto(t, b.recv, 1).Cookie)
		_, _, err := b.recv.Wait(t.Context(), 0, 2)
		require.ErrorIs(t, err, dat.InvalidStateEVDConfigSolicited)

		// Events that Free of another EP moves to the EVD also wake the waiter: their sender may
		// have requested it.
		ch = waiter(t, t.Context(), b.recv, dat.Infinite, 1)
		require.NoError(t, a.ep.PostSend(a.segment(0, 8), 12, 0))
		dto(t, a.requests, 11)
		dto(t, a.requests, 12)
		other, err := b.ia.CreateEP(b.pz, b.recv, b.requests, b.conn, dat.EPAttr{})
		require.NoError(t, err)
		require.NoError(t, other.Free())
		o = result(t, ch)
		require.NoError(t, o.err)
		require.Equal(t, uint64(2), o.ev.DTO.Cookie)

		// Without the EP, the EVD behaves like others.
		require.NoError(t, b.ep.PostRecv(nil, 4, 0))
		require.NoError(t, b.ep.Free())
		_, more, err := b.recv.Wait(t.Context(), patience, 2)
		require.NoError(t, err)
		require.Equal(t, 1, more, "two receives were outstanding")
	})
}

// An unsignalled DTO generates an event that wakes no waiter; the next event that does finds it
// there.
func TestUnsignalled(t *testing.T) {
	everywhere(t, func(t *testing.T, dev *verbs.Device, addr netip.Addr) {
		a, b := pair(t, dev, addr, options{attr: dat.EPAttr{RequestCompletionFlags: dat.CompletionUnsignalled,
			RecvCompletionFlags: dat.CompletionUnsignalled}})
		ch := waiter(t, t.Context(), a.requests, dat.Infinite, 1)
		require.NoError(t, b.ep.PostRecv(nil, 1, dat.CompletionUnsignalled))
		require.NoError(t, b.ep.PostRecv(nil, 2, 0))
		peer := waiter(t, t.Context(), b.recv, dat.Infinite, 1, ch)
		require.NoError(t, a.ep.PostRDMAWrite(a.segment(0, 8), 10, b.remote(0, 8), dat.CompletionUnsignalled))
		require.NoError(t, a.ep.PostSend(nil, 11, dat.CompletionUnsignalled))
		require.NoError(t, a.ep.PostSend(nil, 12, 0))
		for _, o := range []outcome{result(t, ch), result(t, peer)} {
			require.NoError(t, o.err)
			require.Contains(t, []uint64{10, 1}, o.ev.DTO.Cookie, "the oldest")
			require.Positive(t, o.more)
		}
		dto(t, a.requests, 11)
		dto(t, a.requests, 12)
		dto(t, b.recv, 2)

		require.NoError(t, a.ep.PostRDMAWrite(nil, 13, b.remote(0, 0), dat.CompletionUnsignalled))
		_, more, err := a.requests.Wait(t.Context(), patience/100, 1)
		if err == nil { // it completed before Wait checked
			require.Zero(t, more)
		} else {
			require.ErrorIs(t, err, dat.TimeoutExpired)
			require.Equal(t, 1, more)
			dto(t, a.requests, 13)
		}
		// A failed one wakes the waiter.
		ch = waiter(t, t.Context(), a.requests, dat.Infinite, 1)
		bad := b.remote(0, 8)
		bad.RMRContext ^= 0x5555 << 8
		require.NoError(t, a.ep.PostRDMARead(a.segment(0, 8), 14, bad, dat.CompletionUnsignalled))
		o := result(t, ch)
		require.NoError(t, o.err)
		require.Equal(t, dat.DTOErrRemoteAccess, o.ev.DTO.Status)
	})
}

// How each completion flag maps to the underlying request. PostSend and PostRDMAWrite always
// confirm.
func TestFlagsBelow(t *testing.T) {
	everywhere(t, func(t *testing.T, dev *verbs.Device, addr netip.Addr) {
		a, b := pair(t, dev, addr, options{attr: dat.EPAttr{RequestCompletionFlags: dat.CompletionUnsignalled}})
		for i, c := range []struct {
			flags dat.CompletionFlags
			below verbs.SendFlags
		}{
			{dat.CompletionDefault, verbs.SendSignaled},
			{dat.CompletionUnsignalled, verbs.SendSignaled},
			{dat.CompletionSuppress, 0},
			{dat.CompletionSolicitedWait, verbs.SendSignaled | verbs.SendSolicited},
			{dat.CompletionBarrierFence | dat.CompletionSuppress, verbs.SendFence},
		} {
			require.NoError(t, b.ep.PostRecv(nil, uint64(i), 0))
			require.NoError(t, a.ep.PostSend(nil, uint64(i), c.flags))
			require.Equal(t, c.below, dat.LastFlags(a.ep), "%v", c.flags)
			dto(t, b.recv, uint64(i))
		}
		require.NoError(t, a.ep.PostRDMAWrite(a.segment(0, 8), 9, b.remote(0, 8), 0))
		require.Equal(t, verbs.SendSignaled, dat.LastFlags(a.ep))
	})
}

// Flags that are not allowed for a DTO or an EP.
func TestFlagsRefused(t *testing.T) {
	everywhere(t, func(t *testing.T, dev *verbs.Device, addr netip.Addr) {
		a, b := pair(t, dev, addr, options{})
		to := b.remote(0, 8)
		for _, flags := range []dat.CompletionFlags{dat.CompletionUnsignalled,
			dat.CompletionSuppress | dat.CompletionUnsignalled, dat.CompletionEVDThreshold, 0x20} {
			require.ErrorIs(t, a.ep.PostSend(nil, 1, flags), dat.InvalidArg5, "%v", flags)
			require.ErrorIs(t, a.ep.PostRecv(nil, 1, flags), dat.InvalidArg5, "%v", flags)
		}
		require.ErrorIs(t, a.ep.PostRDMAWrite(nil, 1, to, dat.CompletionSolicitedWait), dat.InvalidArg6)
		require.ErrorIs(t, a.ep.PostRDMARead(a.segment(0, 8), 1, to, dat.CompletionSolicitedWait), dat.InvalidArg6)
		require.ErrorIs(t, a.ep.PostRDMARead(a.segment(0, 7), 1, to, 0), dat.LengthError)
		require.ErrorIs(t, a.ep.PostRDMAWrite(a.segment(0, 9), 1, to, 0), dat.LengthError)
		two := append(a.segment(0, 8), a.segment(8, 8)...)
		require.ErrorIs(t, a.ep.PostSend(two, 1, 0), dat.InvalidArg2)
		require.ErrorIs(t, a.ep.PostRecv(two, 1, 0), dat.InvalidArg2)
		empty(t, a.requests)
		require.Equal(t, dat.EPConnected, a.ep.State())

		// Even if the EP's attributes allow unsignalled DTOs, they cannot be suppressed too.
		a, b = pair(t, dev, addr, options{attr: dat.EPAttr{RequestCompletionFlags: dat.CompletionUnsignalled}})
		const neither = dat.CompletionSuppress | dat.CompletionUnsignalled
		require.ErrorIs(t, a.ep.PostSend(nil, 1, neither), dat.InvalidArg5)
		require.ErrorIs(t, a.ep.PostRDMAWrite(a.segment(0, 8), 1, b.remote(0, 8), neither), dat.InvalidArg6)
		empty(t, a.requests)
	})
}

// A Read has the length of the peer's memory; the other fields of empty segments are ignored; a
// fence delays a Write.
func TestSegments(t *testing.T) {
	everywhere(t, func(t *testing.T, dev *verbs.Device, addr netip.Addr) {
		a, b := pair(t, dev, addr, options{attr: dat.EPAttr{MaxRequestIOV: 3, MaxRecvIOV: 3}})
		copy(b.bytes(0, 10), "0123456789")
		nothing := dat.LMRTriplet{VirtualAddress: 1, LMRContext: 2}
		iov := append(append(a.segment(100, 4), nothing), a.segment(200, 100)...)
		require.NoError(t, a.ep.PostRDMARead(iov, 1, b.remote(0, 10), 0))
		require.NoError(t, a.ep.PostRDMAWrite(a.segment(200, 6), 2, b.remote(50, 6), dat.CompletionBarrierFence))
		read := dto(t, a.requests, 1)
		equal(t, dat.DTOCompletion{EP: a.ep, Cookie: 1, Operation: dat.DTORDMARead, TransferredLength: 10}, read)
		require.Equal(t, dat.DTOSuccess, dto(t, a.requests, 2).Status)
		require.Equal(t, "0123", string(a.bytes(100, 4)))
		require.Equal(t, "456789", string(b.bytes(50, 6)))

		require.NoError(t, b.ep.PostRecv([]dat.LMRTriplet{nothing, b.segment(300, 2)[0], nothing, b.segment(310, 8)[0]},
			3, 0))
		require.NoError(t, a.ep.PostSend([]dat.LMRTriplet{a.segment(100, 3)[0], nothing, a.segment(200, 2)[0]}, 4, 0))
		require.Equal(t, uint32(5), dto(t, b.recv, 3).TransferredLength)
		require.Equal(t, "01", string(b.bytes(300, 2)))
		require.Equal(t, "245", string(b.bytes(310, 3)))
		require.Equal(t, uint32(5), dto(t, a.requests, 4).TransferredLength)

		// Together they may not exceed the largest message. Only their lengths are checked.
		long := []dat.LMRTriplet{{SegmentLength: 1 << 31}, {SegmentLength: 1}}
		require.ErrorIs(t, a.ep.PostSend(long, 5, 0), dat.LengthError)
		require.ErrorIs(t, b.ep.PostRecv(long, 6, 0), dat.LengthError)
	})
}
