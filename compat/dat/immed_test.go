// SPDX-License-Identifier: BSD-3-Clause

package dat_test

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/compat/dat"
	"github.com/goverbs/goverbs/verbs"
)

// The event tables of the immediate data proposal: how each call completes here and at the peer,
// for each kind of receive, with an empty, a short and a long message.
func TestEventTables(t *testing.T) {
	const both = dat.DTOImmedFlag | dat.DTOImmedConfirmFlag
	rows := []struct {
		name       string
		write      bool // PostWriteImmed, otherwise PostSendImmed
		flags      dat.DTOFlags
		here, peer dat.DTO // DTOInvalid: the peer has no event
		immed      uint32
	}{
		{"3.1.1 send", false, dat.DTOImmedFlag, dat.DTOSendImmed, dat.DTOReceiveImmed, 7306},
		{"3.1.1 send, confirmed", false, both, dat.DTOSendImmed, dat.DTOReceiveImmed, 0xFFFFFFFF},
		{"3.1.1 send of immediate 0", false, both, dat.DTOSendImmed, dat.DTOReceiveImmed, 0},
		{"3.1.1 send without immediate", false, 0, dat.DTOSend, dat.DTOReceive, 7306},
		{"3.1.1 send without immediate, confirmed", false, dat.DTOImmedConfirmFlag, dat.DTOSend, dat.DTOReceive, 7306},
		{"3.1.2 write", true, dat.DTOImmedFlag, dat.DTORDMAWriteImmed, dat.DTOReceiveRDMAImmed, 7306},
		{"3.1.2 write, confirmed", true, both, dat.DTORDMAWriteImmed, dat.DTOReceiveRDMAImmed, 0xFFFFFFFF},
		{"3.1.2 write of immediate 0", true, both, dat.DTORDMAWriteImmed, dat.DTOReceiveRDMAImmed, 0},
		{"3.1.2 write without immediate", true, 0, dat.DTORDMAWrite, dat.DTOInvalid, 7306},
		{"3.1.2 write without immediate, confirmed", true, dat.DTOImmedConfirmFlag, dat.DTORDMAWrite, dat.DTOInvalid,
			7306},
	}
	receives := []struct { // 3.1.3, and a plain receive, which gets the same
		name string
		room int
		post func(s *side, iov []dat.LMRTriplet, cookie uint64) error
	}{
		{"recv_immed", 20000, func(s *side, iov []dat.LMRTriplet, cookie uint64) error {
			return s.ep.PostRecvImmed(iov,
				cookie, 0)
		}},
		{"recv_immed of no bytes", 0,
			func(s *side, _ []dat.LMRTriplet, cookie uint64) error { return s.ep.PostRecvImmed(nil, cookie, 0) }},
		{"recv", 20000, func(s *side, iov []dat.LMRTriplet, cookie uint64) error {
			return s.ep.PostRecv(iov, cookie,
				0)
		}},
	}
	const there = 30000 // where messages arrive; Writes go to the start
	everywhere(t, func(t *testing.T, dev *verbs.Device, addr netip.Addr) {
		a, b := pair(t, dev, addr, options{})
		cookie := uint64(100)
		for _, row := range rows {
			for _, receive := range receives {
				for _, n := range []int{0, 11, 20000} {
					if !row.write && n > receive.room {
						continue // too long for the receive
					}
					cookie++
					about := []any{"%s, %s, %d bytes", row.name, receive.name, n}
					text := bytes.Repeat([]byte{byte(cookie)}, n)
					copy(a.bytes(0, n), text)
					var iov []dat.LMRTriplet
					if n > 0 {
						iov = a.segment(0, n)
					}
					if row.peer != dat.DTOInvalid {
						require.NoError(t, receive.post(b, b.segment(there, receive.room), cookie), about...)
					}
					at := there
					if row.write {
						at = 0
						require.NoError(t, a.ep.PostWriteImmed(iov, cookie+1000, b.remote(0, n), row.immed, row.flags,
							0), about...)
					} else {
						require.NoError(t, a.ep.PostSendImmed(iov, cookie+1000, row.immed, row.flags, 0), about...)
					}
					relaxed := dat.LastFlags(a.ep)&verbs.SendRelaxed != 0
					require.Equal(t, row.flags&dat.DTOImmedConfirmFlag == 0, relaxed, about...)
					here := dto(t, a.requests, cookie+1000)
					equal(t, dat.DTOCompletion{EP: a.ep, Cookie: cookie + 1000, Operation: row.here,
						TransferredLength: uint32(n)}, here, about...)
					if row.peer == dat.DTOInvalid {
						if row.flags&dat.DTOImmedConfirmFlag != 0 {
							require.Equal(t, text, bytes.Clone(b.bytes(0, n)), about...)
						}
						empty(t, b.recv)
						continue
					}
					want := dat.DTOCompletion{EP: b.ep, Cookie: cookie, Operation: row.peer,
						TransferredLength: uint32(n)}
					if row.peer != dat.DTOReceive {
						want.ImmedData = row.immed
					}
					equal(t, want, dto(t, b.recv, cookie), about...)
					require.Equal(t, text, bytes.Clone(b.bytes(at, n)), about...)
					empty(t, a.requests)
					empty(t, b.recv)
				}
			}
		}
	})
}

// Calls of the proposal that are refused: nothing is sent, and the connection survives.
func TestImmedRefused(t *testing.T) {
	everywhere(t, func(t *testing.T, dev *verbs.Device, addr netip.Addr) {
		a, b := pair(t, dev, addr, options{})
		to := b.remote(0, 16)
		require.ErrorIs(t, a.ep.PostSendImmed(nil, 1, 1, 4, 0), dat.InvalidArg6)
		require.ErrorIs(t, a.ep.PostWriteImmed(nil, 1, to, 1, 4, 0), dat.InvalidArg7)
		require.ErrorIs(t, a.ep.PostSendImmed(nil, 1, 1, 1, 0x20), dat.InvalidArg7)
		require.ErrorIs(t, a.ep.PostWriteImmed(nil, 1, to, 1, 1, 0x20), dat.InvalidArg8)
		require.ErrorIs(t, a.ep.PostWriteImmed(nil, 1, to, 1, 0, dat.CompletionSolicitedWait), dat.InvalidArg8,
			"nobody is told")
		require.ErrorIs(t, a.ep.PostWriteImmed(a.segment(0, 17), 1, to, 1, 1, 0), dat.LengthError)
		require.ErrorIs(t, b.ep.PostRecvImmed(nil, 1, dat.CompletionSuppress), dat.InvalidArg5)
		require.NoError(t, b.ep.PostRecvImmed(nil, 2, 0))
		require.NoError(t, a.ep.PostWriteImmed(a.segment(0, 16), 3, to, 1, dat.DTOImmedFlag, 0))
		require.Equal(t, dat.DTOSuccess, dto(t, a.requests, 3).Status)
		require.Equal(t, uint32(1), dto(t, b.recv, 2).ImmedData)
	})
}

// A message with immediate data that is longer than its receive fails on both sides.
func TestImmedTooLong(t *testing.T) {
	everywhere(t, func(t *testing.T, dev *verbs.Device, addr netip.Addr) {
		a, b := pair(t, dev, addr, options{})
		require.NoError(t, b.ep.PostRecvImmed(b.segment(0, 10), 1, 0))
		require.NoError(t, a.ep.PostSendImmed(a.segment(0, 11), 2, 7, dat.DTOImmedFlag|dat.DTOImmedConfirmFlag, 0))
		sent := dto(t, a.requests, 2)
		require.Equal(t, dat.DTOErrRemoteResponder, sent.Status)
		require.Error(t, sent.Cause)
		require.Equal(t, dat.DTOErrLocalLength, dto(t, b.recv, 1).Status)
	})
}
