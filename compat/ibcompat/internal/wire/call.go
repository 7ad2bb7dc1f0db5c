// SPDX-License-Identifier: BSD-3-Clause

package wire

import "encoding/binary"

// Flags of a Greeting.
const (
	FlagEngine = 1 << 0 // of a refusal: not the program has refused, but its device
	FlagHand   = 1 << 1 // between QPs that were brought up by hand: a Call follows, or in a refusal a Refusal
)

// Name is what a QP is called in InfiniBand: the GID of its port and its number. There it is what
// programs tell each other.
type Name struct {
	GID [16]byte // an IP address, an IPv4 address as an IPv4-mapped one
	QPN uint32   // 24 bits
}

// CallLen is the length of a Call in bytes. It fits where the data of a program stand.
const CallLen = 48

// Call is what a QP that was brought up by hand tells the one that it wants, and the answer: from
// whom to whom, and the packet sequence numbers with which they send, which only their programs
// have told each other:
//
//	0  GID of the caller   16  GID of the other   32  number of the caller's QP   36  number of the other
//	40  PSN of the caller's QP   44  PSN of the other
type Call struct {
	From, To       Name
	FromPSN, ToPSN PSN
}

// PSN is the number of the first packet that a QP sends, if it is known. On the wire a known one
// has bit 31.
type PSN struct {
	Known bool
	Value uint32 // 24 bits; 0 if it is not known
}

// KnownPSN is a PSN that a program has set, of 24 bits.
func KnownPSN(v uint32) PSN { return PSN{true, v} }

const (
	mostPSN  = 1<<24 - 1
	psnKnown = 1 << 31
)

func (p PSN) word() uint32 {
	if !p.Known {
		return 0
	}
	return psnKnown | p.Value
}

// Append appends the call.
func (c *Call) Append(b []byte) []byte {
	b = append(append(b, c.From.GID[:]...), c.To.GID[:]...)
	b = binary.BigEndian.AppendUint32(b, c.From.QPN)
	b = binary.BigEndian.AppendUint32(b, c.To.QPN)
	b = binary.BigEndian.AppendUint32(b, c.FromPSN.word())
	return binary.BigEndian.AppendUint32(b, c.ToPSN.word())
}

// Back is the call in the other direction.
func (c *Call) Back() Call { return Call{From: c.To, To: c.From, FromPSN: c.ToPSN, ToPSN: c.FromPSN} }

// Meets reports whether a call of the peer's is for the QP whose own call c is: whether each names
// the other, and of the PSNs that both tell one is the same.
func (c *Call) Meets(peer *Call) bool {
	same := func(a, b PSN) bool { return a.Known && a == b }
	return c.From == peer.To && c.To == peer.From && (same(c.FromPSN, peer.ToPSN) || same(c.ToPSN, peer.FromPSN))
}

// ParseCall decodes a call. What follows it is ignored.
func ParseCall(b []byte) (c Call, err error) {
	if len(b) < CallLen {
		return Call{}, bad("call", "length", uint64(len(b)))
	}
	copy(c.From.GID[:], b)
	copy(c.To.GID[:], b[16:])
	c.From.QPN, c.To.QPN = binary.BigEndian.Uint32(b[32:]), binary.BigEndian.Uint32(b[36:])
	for _, n := range []Name{c.From, c.To} {
		switch {
		case n.GID == [16]byte{}:
			return Call{}, bad("call", "GID", 0)
		case n.QPN >= 1<<24:
			return Call{}, bad("call", "QP number", uint64(n.QPN))
		}
	}
	for i, p := range []*PSN{&c.FromPSN, &c.ToPSN} {
		w := binary.BigEndian.Uint32(b[40+4*i:])
		*p = PSN{w&psnKnown != 0, w &^ psnKnown}
		if p.Value > mostPSN || !p.Known && p.Value != 0 {
			return Call{}, bad("call", "PSN", uint64(w))
		}
	}
	return c, nil
}

// Refusal says why a call is refused. It is one byte.
type Refusal uint8

const (
	NoQP  Refusal = 1 // no QP of the device waits for this call. Whoever is not the peer learns nothing else
	Taken Refusal = 4 // the QP has a connection already: to its peer only
)

// String says it in words.
func (r Refusal) String() string {
	switch r {
	case NoQP:
		return "no QP of that number waits for this one, with these PSNs"
	case Taken:
		return "the QP has a connection already"
	}
	return "unknown refusal " + digits(uint8(r))
}

// ParseRefusal decodes a refusal.
func ParseRefusal(b []byte) (Refusal, error) {
	if len(b) < 1 {
		return 0, bad("refusal", "length", uint64(len(b)))
	}
	if r := Refusal(b[0]); r == NoQP || r == Taken {
		return r, nil
	}
	return 0, bad("refusal", "reason", uint64(b[0]))
}
