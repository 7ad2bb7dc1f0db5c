// SPDX-License-Identifier: BSD-3-Clause

package wire

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func sampleCall() Call {
	c := Call{From: Name{QPN: 1<<24 - 1}, To: Name{QPN: 2}}
	for i := range c.From.GID {
		c.From.GID[i], c.To.GID[i] = byte(i), byte(0xf0+i)
	}
	return c
}

// TestCall: what is encoded can be decoded, what is cut anywhere cannot, and what is out of range is named.
func TestCall(t *testing.T) {
	good := sampleCall()
	b := good.Append(nil)
	require.Len(t, b, CallLen)
	require.LessOrEqual(t, CallLen, MaxPrivate)
	got, err := ParseCall(append(b, 9))
	require.NoError(t, err)
	require.Equal(t, good, got)
	require.Equal(t, Call{From: good.To, To: good.From}, got.Back())
	for n := range b {
		_, err := ParseCall(b[:n])
		var format *FormatError
		require.ErrorAs(t, err, &format)
	}
	for name, change := range map[string]func(c *Call){
		"GID 0x0":             func(c *Call) { c.To.GID = [16]byte{} },
		"QP number 0x1000000": func(c *Call) { c.From.QPN = 1 << 24 },
	} {
		c := good
		change(&c)
		_, err := ParseCall(c.Append(nil))
		require.ErrorContains(t, err, name)
	}
}

func TestRefusal(t *testing.T) {
	for r := NoQP; r < refusalEnd; r++ {
		got, err := ParseRefusal([]byte{byte(r)})
		require.NoError(t, err)
		require.Equal(t, r, got)
		require.NotContains(t, r.String(), "unknown")
	}
	for _, b := range [][]byte{{}, {0}, {byte(refusalEnd)}, {255}} {
		_, err := ParseRefusal(b)
		require.Error(t, err)
	}
	require.Equal(t, "unknown refusal 99", Refusal(99).String())
}

// FuzzCall: nothing that a peer sends causes a panic, and what is accepted is what was sent.
func FuzzCall(f *testing.F) {
	c := sampleCall()
	f.Add(c.Append(nil))
	f.Add((&Greeting{Flags: FlagHand, Private: c.Append(nil)}).Append(nil))
	f.Add([]byte{byte(Taken)})
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := ParseCall(b); err == nil {
			require.Equal(t, b[:CallLen], c.Append(nil))
		}
		if g, err := ParseGreeting(b); err == nil && g.Flags&FlagHand != 0 {
			_, _ = ParseCall(g.Private)
			_, _ = ParseRefusal(g.Private)
		}
		if r, err := ParseRefusal(b); err == nil {
			require.Equal(t, b[0], byte(r))
		}
	})
}
