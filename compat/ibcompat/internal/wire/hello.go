// SPDX-License-Identifier: BSD-3-Clause

package wire

import "encoding/binary"

// HelloLen is the length of a hello in bytes. A longer one is of a later minor revision; the rest
// is ignored.
const HelloLen = 32

// Limits of what a hello may say.
const (
	MinSlot   = HeaderLen + 256 // bytes of a slot
	MaxSlot   = 1 << 20
	MaxSlots  = 1 << 16
	MaxWindow = 256 // atomics in progress
	MaxParts  = 64
	MaxSGE    = 16 // segments of one advertised receive
)

// Hello is what a side tells the other before anything else:
//
//	0  kind, 0xff   1  max segments   2  RNR timer   3  RNR retries   4  native operations
//	8  slot length   12  slots   16  threshold   20  window   22  flags   23  parts   24  QP number   28  reserved
type Hello struct {
	Segments   uint8  // of a receive that the sender of the hello advertises, 1 to MaxSGE
	RNRTimer   uint8  // min_rnr_timer, 0 to 31: how long the peer waits for a receive of this side, by its retry count
	RNRRetries uint8  // rnr_retry, 0 to 7: how often the peer tries again; 7 = for ever
	Native     uint32 // a verbs.OpSet: what this side executes for the peer natively
	SlotLen    uint32 // bytes of each slot of this side; a message is at most so long
	Slots      uint32 // the number of slots
	// longer payloads are written into the receive, or come in Parts; at most SlotLen less the
	// headers
	Threshold uint32
	Window    uint16 // atomics that the peer may have in progress, 1 to MaxWindow
	Flags     uint8  // HelloLax; others are ignored
	Parts     uint8  // Parts that the peer may send before they are taken, 1 to MaxParts
	QPNum     uint32 // 24 bits
}

// HelloLax in the flags of a hello: the device lets the peer do what the memory allows, also if the
// QP does not. So the peer has to refuse requests for which it has not been told of the right.
const HelloLax = 1

const kindHello = 0xff

// Append appends the hello.
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
