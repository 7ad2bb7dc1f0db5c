// SPDX-License-Identifier: BSD-3-Clause

package dat_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/compat/dat"
	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/verbs"
)

// The atomics, each with its result, the original value and its event.
func TestAtomics(t *testing.T) {
	everywhere(t, func(t *testing.T, dev *verbs.Device, addr netip.Addr) {
		a, b := pair(t, dev, addr, options{})
		sink, word := a.segment(8, 8)[0], b.remote(16, 8)
		const mask = 1<<7 | 1<<63 // two fields
		for i, op := range []struct {
			ext           dat.Extension
			before, after uint64
			post          func(cookie uint64) error
		}{
			{dat.FetchAndAdd, 40, 42, func(c uint64) error { return a.ep.PostFetchAndAdd(2, sink, c, word, 0) }},
			{dat.FetchAndAdd, 1<<64 - 1, 1, func(c uint64) error { return a.ep.PostFetchAndAdd(2, sink, c, word, 0) }},
			{dat.CmpAndSwap, 5, 6, func(c uint64) error { return a.ep.PostCmpAndSwap(5, 6, sink, c, word, 0) }},
			{dat.CmpAndSwap, 7, 7, func(c uint64) error { return a.ep.PostCmpAndSwap(5, 6, sink, c, word, 0) }},
			{dat.MaskedFetchAndAdd, 0x1FF, ext.MaskedFetchAdd(0x1FF, 0x101, mask),
				func(c uint64) error { return a.ep.PostMaskedFetchAndAdd(0x101, mask, sink, c, word, 0) }},
			{dat.MaskedCmpAndSwap, 0xAB12, 0xCD12,
				func(c uint64) error {
					return a.ep.PostMaskedCmpAndSwap(0x0012, 0xFF, 0xCD00, 0xFF00, sink, c, word,
						0)
				}},
			{dat.MaskedCmpAndSwap, 0xAB13, 0xAB13,
				func(c uint64) error {
					return a.ep.PostMaskedCmpAndSwap(0x0012, 0xFF, 0xCD00, 0xFF00, sink, c, word,
						0)
				}},
		} {
			b.setNumber(16, op.before)
			a.setNumber(8, 0)
			cookie := uint64(i)
			require.NoError(t, op.post(cookie), "%v", op.ext)
			equal(t, dat.DTOCompletion{EP: a.ep, Cookie: cookie, Operation: dat.DTOExtension, TransferredLength: 8,
				Extension: op.ext}, dto(t, a.requests, cookie))
			require.Equal(t, op.before, a.number(8), "%v", op.ext)
			require.Equal(t, op.after, b.number(16), "%v of %#x", op.ext, op.before)
		}
		empty(t, a.requests)

		// Refused atomics: nothing is sent.
		odd := word
		odd.VirtualAddress += 4
		require.ErrorIs(t, a.ep.PostFetchAndAdd(1, sink, 1, odd, 0), dat.InvalidParameter)
		short := sink
		short.SegmentLength = 7
		require.ErrorIs(t, a.ep.PostFetchAndAdd(1, short, 1, word, 0), dat.LengthError)
		require.ErrorIs(t, a.ep.PostCmpAndSwap(1, 1, sink, 1, b.remote(16, 7), 0), dat.LengthError)
		require.ErrorIs(t, a.ep.PostCmpAndSwap(1, 1, sink, 1, word, dat.CompletionSolicitedWait), dat.InvalidArg7)
		require.Equal(t, dat.EPConnected, a.ep.State())

		// Memory without the privilege.
		l, err := b.pz.AllocLMR(8, dat.MemPrivAll)
		require.NoError(t, err)
		denied, err := l.Remote(0, 8)
		require.NoError(t, err)
		require.NoError(t, a.ep.PostFetchAndAdd(1, sink, 9, denied, 0))
		bad := dto(t, a.requests, 9)
		require.Equal(t, dat.DTOErrRemoteAccess, bad.Status)
		require.Equal(t, dat.DTOExtension, bad.Operation)
	})
}

// The attributes agree with package ibcompat on each operation, and every supported operation can
// be posted.
func TestAttributes(t *testing.T) {
	everywhere(t, func(t *testing.T, dev *verbs.Device, addr netip.Addr) {
		a, b := pair(t, dev, addr, options{})
		_, attr, provider, err := a.ia.Query()
		require.NoError(t, err)
		require.Equal(t, dev.Name(), attr.AdapterName)
		require.Equal(t, addr, attr.Addr)
		require.Positive(t, attr.MaxEPs)
		require.Positive(t, attr.MaxDTOPerEP)
		require.Positive(t, attr.MaxMessageSize)
		require.Equal(t, dat.MaxPrivateData, provider.MaxPrivateDataSize)
		require.True(t, provider.IsThreadSafe)
		require.False(t, provider.LMRSyncRequired)
		require.Len(t, provider.Operations, 6)

		sink, word := a.segment(8, 8)[0], b.remote(16, 8)
		posts := map[string]func() error{
			"DAT_IB_FETCH_AND_ADD":     func() error { return a.ep.PostFetchAndAdd(0, sink, 1, word, 0) },
			"DAT_IB_CMP_AND_SWAP":      func() error { return a.ep.PostCmpAndSwap(0, 0, sink, 1, word, 0) },
			"DAT_MASKED_FETCH_AND_ADD": func() error { return a.ep.PostMaskedFetchAndAdd(0, 0, sink, 1, word, 0) },
			"DAT_MASKED_CMP_AND_SWAP":  func() error { return a.ep.PostMaskedCmpAndSwap(0, 0, 0, 0, sink, 1, word, 0) },
			"DAT_SEND_IMMED":           func() error { return a.ep.PostSendImmed(nil, 1, 1, dat.DTOImmedFlag, 0) },
			"DAT_IB_IMMED_DATA": func() error {
				return a.ep.PostWriteImmed(nil, 1, word, 1, dat.DTOImmedFlag,
					0)
			},
		}
		how := map[string]map[string]ext.Support{ // by device: the others are native
			"ib:usiw0": {"DAT_SEND_IMMED": ext.Emulated},
			"ib:rxe0":  {"DAT_MASKED_FETCH_AND_ADD": ext.Composed, "DAT_MASKED_CMP_AND_SWAP": ext.Composed},
		}
		for _, op := range provider.Operations {
			want := ext.Native
			if by, ok := how[dev.Name()]; !ok {
				want = ext.Emulated // iWARP without RFC 7306
			} else if s, ok := by[op.Name]; ok {
				want = s
			}
			require.Equal(t, want, op.Support, op.Name)
			s, why := a.ep.Support(op.Op)
			require.Equal(t, want, s, op.Name)
			require.NotEmpty(t, why)
			require.NoError(t, b.ep.PostRecvImmed(nil, 2, 0))
			require.NoError(t, posts[op.Name](), op.Name)
			require.Equal(t, dat.DTOSuccess, dto(t, a.requests, 1).Status, op.Name)
		}
	})
}
