// SPDX-License-Identifier: BSD-3-Clause

package wire

import "encoding/binary"

// HelloLen is the length of a hello in bytes. A later minor revision may send a longer one; the
// rest is ignored.
const HelloLen = 32

// Limits of the values in a hello.
const (
	MinSlot   = HeaderLen + 256 // length of a slot in bytes
	MaxSlot   = 1 << 20
	MaxSlots  = 1 << 16
	MaxWindow = 256 // concurrent atomics
	MaxParts  = 64
	MaxSGE    = 16 // segments of an advertised receive
)

// Hello is the first message that each side sends:
//
//	0  kind, 0xff   1  max segments   2  RNR timer   3  RNR retries   4  native operations
//	8  slot length   12  slots   16  threshold   20  window   22  flags   23  parts
//	24  QP number   28  reserved
type Hello struct {
	Segments   uint8  // maximum segments of a receive that this side advertises, 1 to MaxSGE
	RNRTimer   uint8  // min_rnr_timer of this side, 0 to 31: the interval between the peer's retries
	RNRRetries uint8  // rnr_retry for the peer, 0 to 7: how often it retries; 7 = indefinitely
	Native     uint32 // a verbs.OpSet: what this side executes natively for the peer
	SlotLen    uint32 // length of each of this side's slots, and so of a message, in bytes
	Slots      uint32 // number of slots
	// Longer payloads are written into the receive or sent in Parts; in bytes, at most SlotLen less
	// the headers.
	Threshold uint32
	Window    uint16 // concurrent atomics allowed to the peer, 1 to MaxWindow
	Flags     uint8  // HelloLax; others are ignored
	Parts     uint8  // Parts that the peer may have outstanding, 1 to MaxParts
	QPNum     uint32 // 24 bits
}

// HelloLax is the flag of a device that enforces only the access rights of memory regions, not
// those of the QP. The peer itself must therefore refuse its requests for which this side has not
// announced the right.
const HelloLax = 1

const kindHello = 0xff

// Append appends the encoded hello to b.
func (h *Hello) Append(b []byte) []byte {
	b = append(b, kindHello, h.Segments, h.RNRTimer, h.RNRRetries)
	b = binary.BigEndian.AppendUint32(b, h.Native)
	b = binary.BigEndian.AppendUint32(b, h.SlotLen)
	b = binary.BigEndian.AppendUint32(b, h.Slots)
	b = binary.BigEndian.AppendUint32(b, h.Threshold)
	b = binary.BigEndian.AppendUint16(b, h.Window)
	b = append(b, h.Flags, h.Parts)
	b = binary.BigEndian.AppendUint32(b, h.QPNum)
	return append(b, 0, 0, 0, 0)
}

// ParseHello decodes a hello.
func ParseHello(b []byte) (Hello, error) {
	if len(b) < HelloLen {
		return Hello{}, bad("hello", "length", uint64(len(b)))
	}
	h := Hello{Segments: b[1], RNRTimer: b[2], RNRRetries: b[3], Native: binary.BigEndian.Uint32(b[4:]),
		SlotLen: binary.BigEndian.Uint32(b[8:]), Slots: binary.BigEndian.Uint32(b[12:]),
		Threshold: binary.BigEndian.Uint32(b[16:]), Window: binary.BigEndian.Uint16(b[20:]), Flags: b[22], Parts: b[23],
		QPNum: binary.BigEndian.Uint32(b[24:])}
	for _, f := range []struct {
		name        string
		v, min, max uint32
	}{
		{"kind", uint32(b[0]), kindHello, kindHello},
		{"segments", uint32(h.Segments), 1, MaxSGE},
		{"RNR timer", uint32(h.RNRTimer), 0, 31},
		{"RNR retries", uint32(h.RNRRetries), 0, 7},
		{"slot length", h.SlotLen, MinSlot, MaxSlot},
		{"slots", h.Slots, 4, MaxSlots},
		{"threshold", h.Threshold, 0, h.SlotLen - HeaderLen},
		{"window", uint32(h.Window), 1, MaxWindow},
		{"parts", uint32(h.Parts), 1, MaxParts},
		{"QP number", h.QPNum, 0, 1<<24 - 1},
	} {
		if f.v < f.min || f.v > f.max {
			return Hello{}, bad("hello", f.name, uint64(f.v))
		}
	}
	return h, nil
}
