// SPDX-License-Identifier: BSD-3-Clause

package wire

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

// message decodes a whole message and returns its encoding.
func message(b []byte) ([]byte, error) {
	h, rest, err := ParseHeader(b)
	if err != nil {
		return nil, err
	}
	out := h.Append(nil)
	var a Advert
	for range h.Adverts {
		if rest, err = ParseAdvert(rest, &a); err != nil {
			return nil, err
		}
		out = a.Append(out)
	}
	if h.Kind == Atomic {
		r, err := ParseAtomic(rest)
		if err != nil {
			return nil, err
		}
		return r.Append(out), nil
	}
	return append(out, rest...), nil
}

func samples() [][]byte {
	var all [][]byte
	for k := Data; k < kindEnd; k++ {
		h := Header{Kind: k, Flags: flagsOf[k], Adverts: 2, Taken: 7, First: 9}
		if h.Flags&FlagImm != 0 {
			h.Imm = 0xdeadbeef
		}
		if k <= Credit || k == Part {
			h.Value = 1<<32 - 1
		}
		if k == Refused {
			h.Status = 5
		}
		if k == Answer {
			h.Value = 1<<64 - 1
		}
		b := h.Append(nil)
		b = (&Advert{Total: 12, Segments: []Segment{{1 << 40, 5, 8}, {1<<64 - 5, 6, 4}}}).Append(b)
		b = (&Advert{Total: 99}).Append(b)
		if k == Atomic {
			b = (&AtomicRequest{true, 3, 4, 5, 6, 7, 8}).Append(b)
		}
		all = append(all, b)
	}
	return all
}

// TestMessages checks that an encoded message can be decoded, that a truncated one cannot, and that
// no byte is ignored.
func TestMessages(t *testing.T) {
	for _, b := range samples() {
		got, err := message(b)
		require.NoError(t, err)
		require.Equal(t, b, got)
		for n := range b {
			_, err := message(b[:n])
			var format *FormatError
			require.ErrorAs(t, err, &format, "cut to %d", n)
		}
		for i := range b {
			other := bytes.Clone(b)
			other[i] ^= 0x40
			if got, err := message(other); err == nil {
				require.Equal(t, other, got, "byte %d", i)
			}
		}
	}
}

func TestHello(t *testing.T) {
	good := Hello{Segments: 4, RNRTimer: 12, RNRRetries: 7, Native: 0x3f, SlotLen: 8192, Slots: 200, Threshold: 4096,
		Window: 16, Flags: HelloLax, Parts: MaxParts, QPNum: 1<<24 - 1}
	b := good.Append(nil)
	require.Len(t, b, HelloLen)
	got, err := ParseHello(append(b, 1, 2, 3))
	require.NoError(t, err)
	require.Equal(t, good, got)
	for n := range b {
		_, err := ParseHello(b[:n])
		require.Error(t, err)
	}
	for name, change := range map[string]func(h *Hello){
		"segments":    func(h *Hello) { h.Segments = MaxSGE + 1 },
		"RNR timer":   func(h *Hello) { h.RNRTimer = 32 },
		"RNR retries": func(h *Hello) { h.RNRRetries = 8 },
		"slot length": func(h *Hello) { h.SlotLen = MinSlot - 1 },
		"slots":       func(h *Hello) { h.Slots = 3 },
		"bad slots":   func(h *Hello) { h.Slots = MaxSlots + 1 },
		"threshold":   func(h *Hello) { h.Threshold = h.SlotLen - HeaderLen + 1 },
		"parts":       func(h *Hello) { h.Parts = 0 },
		"bad parts":   func(h *Hello) { h.Parts = MaxParts + 1 },
		"window":      func(h *Hello) { h.Window = 0 },
		"QP number":   func(h *Hello) { h.QPNum = 1 << 24 },
	} {
		h := good
		change(&h)
		_, err := ParseHello(h.Append(nil))
		require.ErrorContains(t, err, name)
	}
	b[0] = 1
	_, err = ParseHello(b)
	require.ErrorContains(t, err, "kind")
}

func TestGreeting(t *testing.T) {
	for _, n := range []int{0, 1, MaxPrivate} {
		want := Greeting{Flags: 0x8001, Private: bytes.Repeat([]byte{9}, n)}
		b := want.Append(nil)
		require.Len(t, b, GreetingLen+n)
		got, err := ParseGreeting(append(b, make([]byte, 100)...))
		require.NoError(t, err)
		require.Equal(t, want, got)
		for k := range b {
			_, err := ParseGreeting(b[:k])
			require.Error(t, err)
		}
	}
	b := (&Greeting{Private: make([]byte, MaxPrivate)}).Append(nil)
	b[5]++
	_, err := ParseGreeting(append(b, 0))
	require.ErrorContains(t, err, "private length 0x31")
	b[2] = 213
	_, err = ParseGreeting(b)
	require.EqualError(t, err, "ibcompat: the peer speaks version 213 of the protocol, not 2")
	_, err = ParseGreeting([]byte("a peer that knows nothing of this"))
	require.ErrorIs(t, err, ErrNoGreeting)
}

// FuzzMessage checks that no input causes a panic, and that an accepted one encodes to the same
// bytes.
func FuzzMessage(f *testing.F) {
	for _, b := range samples() {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, err := message(b); err == nil {
			require.Equal(t, b, got)
		}
		_, _ = ParseHello(b)
		_, _ = ParseGreeting(b)
	})
}
