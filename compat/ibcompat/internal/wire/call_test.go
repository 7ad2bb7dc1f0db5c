// SPDX-License-Identifier: BSD-3-Clause

package wire

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func sampleCall() Call {
	c := Call{From: Name{QPN: 1<<24 - 1}, To: Name{QPN: 2}, FromPSN: KnownPSN(1<<24 - 1), ToPSN: KnownPSN(0)}
	for i := range c.From.GID {
		c.From.GID[i], c.To.GID[i] = byte(i), byte(0xf0+i)
	}
	return c
}

// TestCall checks that an encoded call can be decoded, that a truncated one cannot, and that errors
// name the value out of range.
func TestCall(t *testing.T) {
	good := sampleCall()
	b := good.Append(nil)
	require.Len(t, b, CallLen)
	require.LessOrEqual(t, CallLen, MaxPrivate)
	got, err := ParseCall(append(b, 9))
	require.NoError(t, err)
	require.Equal(t, good, got)
	require.Equal(t, Call{From: good.To, To: good.From, FromPSN: good.ToPSN, ToPSN: good.FromPSN}, got.Back())
	for n := range b {
		_, err := ParseCall(b[:n])
		var format *FormatError
		require.ErrorAs(t, err, &format)
	}
	for name, change := range map[string]func(c *Call){
		"GID 0x0":             func(c *Call) { c.To.GID = [16]byte{} },
		"QP number 0x1000000": func(c *Call) { c.From.QPN = 1 << 24 },
		"PSN 0x81000000":      func(c *Call) { c.FromPSN.Value = 1 << 24 },
	} {
		c := good
		change(&c)
		_, err := ParseCall(c.Append(nil))
		require.ErrorContains(t, err, name)
	}
}

// TestCallPSN checks that an unknown PSN has no value.
func TestCallPSN(t *testing.T) {
	c := sampleCall()
	c.ToPSN = PSN{}
	b := c.Append(nil)
	got, err := ParseCall(b)
	require.NoError(t, err)
	require.Equal(t, c, got)
	b[CallLen-1] = 1
	_, err = ParseCall(b)
	require.ErrorContains(t, err, "PSN 0x1")
}

// TestCallMeets checks that both names must match, and one PSN known to both. A PSN that only one
// side knows is ignored.
func TestCallMeets(t *testing.T) {
	ours := Call{From: sampleCall().From, To: sampleCall().To, FromPSN: KnownPSN(5), ToPSN: KnownPSN(6)}
	for name, c := range map[string]struct {
		want   bool
		change func(ours, peer *Call)
	}{
		"both":                {true, func(ours, peer *Call) {}},
		"the peer is in RTR":  {true, func(_, peer *Call) { peer.FromPSN = PSN{} }},
		"this is in RTR":      {true, func(ours, _ *Call) { ours.FromPSN = PSN{} }},
		"one direction":       {true, func(_, peer *Call) { peer.FromPSN.Value++ }},
		"the other direction": {true, func(_, peer *Call) { peer.ToPSN.Value++ }},
		"neither tells the waiter's": {false,
			func(ours, peer *Call) { ours.FromPSN, peer.ToPSN = PSN{}, PSN{}; peer.FromPSN.Value++ }},
		"both are in RTR":            {false, func(ours, peer *Call) { ours.FromPSN, peer.FromPSN = PSN{}, PSN{} }},
		"wrong PSNs":                 {false, func(_, peer *Call) { peer.FromPSN.Value++; peer.ToPSN.Value++ }},
		"no PSNs":                    {false, func(_, peer *Call) { peer.FromPSN, peer.ToPSN = PSN{}, PSN{} }},
		"a wrong one to a QP in RTR": {false, func(ours, peer *Call) { ours.FromPSN = PSN{}; peer.FromPSN.Value++ }},
		"a wrong one of a QP in RTR": {false, func(_, peer *Call) { peer.FromPSN = PSN{}; peer.ToPSN.Value++ }},
		"the PSNs the other way": {false,
			func(_, peer *Call) { peer.FromPSN, peer.ToPSN = peer.ToPSN, peer.FromPSN }},
		"another number":     {false, func(_, peer *Call) { peer.From.QPN-- }},
		"another GID":        {false, func(_, peer *Call) { peer.From.GID[15]++ }},
		"for another number": {false, func(_, peer *Call) { peer.To.QPN++ }},
		"for another GID":    {false, func(_, peer *Call) { peer.To.GID[15]++ }},
	} {
		a, b := ours, ours.Back()
		c.change(&a, &b)
		require.Equal(t, c.want, a.Meets(&b), name)
		require.Equal(t, c.want, b.Meets(&a), name)
	}
}

func TestRefusal(t *testing.T) {
	for _, r := range []Refusal{NoQP, Taken} {
		got, err := ParseRefusal([]byte{byte(r)})
		require.NoError(t, err)
		require.Equal(t, r, got)
		require.NotContains(t, r.String(), "unknown")
	}
	for _, b := range [][]byte{{}, {0}, {2}, {3}, {5}, {255}} {
		_, err := ParseRefusal(b)
		require.Error(t, err)
	}
	require.Equal(t, "unknown refusal 99", Refusal(99).String())
}

// FuzzCall checks that no input causes a panic, and that an accepted one encodes to the same bytes.
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
