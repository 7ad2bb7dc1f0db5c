// SPDX-License-Identifier: BSD-3-Clause

package wire

import "encoding/binary"

// Flags of a Greeting.
const (
	FlagEngine = 1 << 0 // in a refusal: the device refused, not the program
	FlagHand   = 1 << 1 // between QPs brought up manually: a Call follows, or a Refusal in a rejection
)

// Name identifies a QP as InfiniBand does: by the GID of its port and its QP number. Programs that
// connect QPs themselves exchange these.
type Name struct {
	GID [16]byte // an IP address; IPv4 as an IPv4-mapped IPv6 address
	QPN uint32   // 24 bits
}

// CallLen is the length of a Call in bytes. A Call travels in place of the program's private data,
// and fits there.
const CallLen = 48

// Call is what a QP brought up manually sends to the QP it wants to reach, and also the answer. It
// holds both names and both initial packet sequence numbers, which only the two programs have
// exchanged:
//
//	0   GID of the caller           16  GID of the other
//	32  number of the caller's QP   36  number of the other
//	40  PSN of the caller's QP      44  PSN of the other
type Call struct {
	From, To       Name
	FromPSN, ToPSN PSN
}

// PSN is the initial send PSN of a QP, if known. Bit 31 marks a known PSN on the wire.
type PSN struct {
	Known bool
	Value uint32 // 24 bits; 0 if unknown
}

// KnownPSN returns a PSN that a program set, 24 bits.
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

// Append appends the encoded call to b.
func (c *Call) Append(b []byte) []byte {
	b = append(append(b, c.From.GID[:]...), c.To.GID[:]...)
	b = binary.BigEndian.AppendUint32(b, c.From.QPN)
	b = binary.BigEndian.AppendUint32(b, c.To.QPN)
	b = binary.BigEndian.AppendUint32(b, c.FromPSN.word())
	return binary.BigEndian.AppendUint32(b, c.ToPSN.word())
}

// Back returns the call in the opposite direction.
func (c *Call) Back() Call { return Call{From: c.To, To: c.From, FromPSN: c.ToPSN, ToPSN: c.FromPSN} }

// Meets reports whether c and the peer's call are for the same pair of QPs: each names the other,
// and at least one PSN known to both is equal.
func (c *Call) Meets(peer *Call) bool {
	same := func(a, b PSN) bool { return a.Known && a == b }
	return c.From == peer.To && c.To == peer.From && (same(c.FromPSN, peer.ToPSN) || same(c.ToPSN, peer.FromPSN))
}

// ParseCall decodes a call. Bytes after it are ignored.
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

// Refusal is the reason why a call was refused, one byte on the wire.
type Refusal uint8

const (
	NoQP  Refusal = 1 // no QP of the device waits for this call; anyone but the peer gets no other reason
	Taken Refusal = 4 // the QP is already connected; sent to its peer only
)

// String returns the reason in words.
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
