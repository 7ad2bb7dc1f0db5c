// SPDX-License-Identifier: BSD-3-Clause

package mpa

import "encoding/binary"

// Specification constants of the enhanced word.
const (
	// EnhancedLen is the length of the enhanced word, which reduces the room for the ULP's private
	// data (RFC 6581 section 9).
	EnhancedLen = 4
	// NoNegotiate, as IRD or ORD, means that this depth is not negotiated. It is also the largest
	// value of the 14-bit fields (RFC 6581 section 9.1).
	NoNegotiate = 0x3FFF
)

// Bits of the two 16-bit halves of the enhanced word (RFC 6581 section 9).
const (
	enhancedA     = 0x8000 // first half: peer-to-peer model
	enhancedB     = 0x4000 // first half: RTR by a Send
	enhancedC     = 0x8000 // second half: RTR by an RDMA Write
	enhancedD     = 0x4000 // second half: RTR by an RDMA Read
	enhancedDepth = 0x3FFF // IRD in the first half, ORD in the second
)

// Enhanced is the enhanced word, the first four bytes of private data in a frame with the S bit
// (RFC 6581 section 9).
type Enhanced struct {
	// PeerToPeer is control flag A: the initiator sends an RTR indication as its first FPDU.
	// Without it the three kinds of RTR must be false, and are ignored when received.
	PeerToPeer bool
	// RTRSend is control flag B: RTR by a Send without payload.
	RTRSend bool
	// RTRWrite is control flag C: RTR by an RDMA Write without payload.
	RTRWrite bool
	// RTRRead is control flag D: RTR by an RDMA Read of size zero.
	RTRRead bool
	// IRD is the inbound read queue depth of the frame's sender, 14 bits.
	IRD uint16
	// ORD is the outbound read queue depth of the frame's sender, 14 bits.
	ORD uint16
}

// check returns an error if the word cannot be sent.
func (e Enhanced) check() error {
	switch {
	case e.IRD > enhancedDepth:
		return frameErrorf("IRD %d exceeds 14 bits", e.IRD)
	case e.ORD > enhancedDepth:
		return frameErrorf("ORD %d exceeds 14 bits", e.ORD)
	case !e.PeerToPeer && (e.RTRSend || e.RTRWrite || e.RTRRead):
		// RFC 6581 section 9.2: if A is 0, then B, C and D MUST be 0.
		return frameErrorf("RTR kinds without the peer-to-peer model")
	}
	return nil
}

// append appends the four bytes of the word, which check must have accepted.
func (e Enhanced) append(b []byte) []byte {
	in, out := e.IRD, e.ORD
	if e.PeerToPeer {
		in |= enhancedA
	}
	if e.RTRSend {
		in |= enhancedB
	}
	if e.RTRWrite {
		out |= enhancedC
	}
	if e.RTRRead {
		out |= enhancedD
	}
	b = binary.BigEndian.AppendUint16(b, in)
	return binary.BigEndian.AppendUint16(b, out)
}

// parseEnhanced decodes the first four bytes of b.
func parseEnhanced(b []byte) Enhanced {
	in, out := binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	peer := in&enhancedA != 0
	return Enhanced{
		PeerToPeer: peer,
		RTRSend:    peer && in&enhancedB != 0,
		RTRWrite:   peer && out&enhancedC != 0,
		RTRRead:    peer && out&enhancedD != 0,
		IRD:        in & enhancedDepth,
		ORD:        out & enhancedDepth,
	}
}
