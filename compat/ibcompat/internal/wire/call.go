// SPDX-License-Identifier: BSD-3-Clause

package wire

import "encoding/binary"

// Flags of a Greeting.
const (
	FlagEngine = 1 << 0 // of a refusal: not the program has refused, but its device
	FlagHand   = 1 << 1 // between QPs that were brought up by hand: a Call follows, or in a refusal a Refusal
)

// Name is what a QP is called in InfiniBand: the GID of its port and its number. There it is what programs tell each other.
type Name struct {
	GID [16]byte // an IP address, an IPv4 address as an IPv4-mapped one
	QPN uint32   // 24 bits
}

// CallLen is the length of a Call in bytes. It fits where the data of a program stand.
const CallLen = 40

// Call is what a QP that was brought up by hand tells the one that it wants, and the answer, from whom to whom:
//
//	0  GID of the caller   16  GID of the other   32  number of the caller's QP   36  number of the other
type Call struct{ From, To Name }

// Append appends the call.
func (c *Call) Append(b []byte) []byte {
	b = append(append(b, c.From.GID[:]...), c.To.GID[:]...)
	b = binary.BigEndian.AppendUint32(b, c.From.QPN)
	return binary.BigEndian.AppendUint32(b, c.To.QPN)
}

// Back is the call in the other direction.
func (c *Call) Back() Call { return Call{From: c.To, To: c.From} }

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
	return c, nil
}

// Refusal says why a call is refused. It is one byte.
type Refusal uint8

const (
	NoQP      Refusal = 1 + iota // no QP of the device has the number
	NotReady                     // the QP has not been told of a peer yet: it is not in RTR
	OtherPeer                    // the QP has been told of another peer
	Taken                        // the QP has a connection, or is getting one
	Malformed                    // the call cannot be read
	refusalEnd
)

// String says it in words.
func (r Refusal) String() string {
	switch r {
	case NoQP:
		return "there is no QP of that number"
	case NotReady:
		return "the QP is not in RTR"
	case OtherPeer:
		return "the QP waits for another peer"
	case Taken:
		return "the QP has a connection already"
	case Malformed:
		return "the call cannot be read"
	}
	return "unknown refusal " + digits(uint8(r))
}

// ParseRefusal decodes a refusal.
func ParseRefusal(b []byte) (Refusal, error) {
	if len(b) < 1 {
		return 0, bad("refusal", "length", uint64(len(b)))
	}
	if r := Refusal(b[0]); r > 0 && r < refusalEnd {
		return r, nil
	}
	return 0, bad("refusal", "reason", uint64(b[0]))
}
