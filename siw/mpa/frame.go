// SPDX-License-Identifier: BSD-3-Clause

package mpa

import (
	"encoding/binary"
	"fmt"
	"io"
)

// Specification constants of the startup frames.
const (
	// FrameLen is the length of a Request or Reply frame without its private
	// data (RFC 5044 section 7.1.1).
	FrameLen = 20
	// MaxPrivateData bounds the private data of a frame, the enhanced word
	// included (RFC 5044 section 7.1.1, RFC 6581 section 7).
	MaxPrivateData = 512

	// Rev0 is the revision of the RDMA Consortium's MPA (RFC 5044 appendix C).
	Rev0 = 0
	// Rev1 is the revision of RFC 5044 (RFC 5044 section 7.1.1).
	Rev1 = 1
	// Rev2 is the revision that knows the enhanced word (RFC 6581 section 6).
	Rev2 = 2
)

// Keys of the startup frames (RFC 5044 section 7.1.1).
const (
	keyRequest = "MPA ID Req Frame"
	keyReply   = "MPA ID Rep Frame"
	keyLen     = len(keyRequest)
)

// Flags of a startup frame, byte 16. The other bits are reserved: zero when
// sent, not checked when received.
const (
	flagMarkers  = 0x80 // M, RFC 5044 section 7.1.1
	flagCRC      = 0x40 // C, RFC 5044 section 7.1.1
	flagReject   = 0x20 // R, RFC 5044 section 7.1.1
	flagEnhanced = 0x10 // S, RFC 6581 section 6
)

// Frame is a startup frame: a Request or, if Reply is set, a Reply
// (RFC 5044 section 7.1.1, RFC 6581 section 6).
type Frame struct {
	// Reply tells a Reply frame from a Request.
	Reply bool
	// Markers is the M bit: the sender of this frame wants markers in the
	// FPDUs sent to it.
	Markers bool
	// CRC is the C bit: the sender wants CRCs. One side is enough to turn
	// them on in both directions.
	CRC bool
	// Reject is the R bit of a Reply. It must be false in a Request, where a
	// receiver does not look at it.
	Reject bool
	// Rev is the MPA revision. Every value parses; whether the peer can be
	// talked to is the caller's decision.
	Rev uint8
	// HasEnhanced is the S bit: the private data begins with the enhanced
	// word. Below Rev2 the bit is reserved and reads as false.
	HasEnhanced bool
	// Enhanced is the enhanced word, meaningful only with HasEnhanced.
	Enhanced Enhanced
	// PrivateData is the ULP's private data, without the enhanced word. Empty
	// private data parses as nil.
	PrivateData []byte
}

// Append appends the encoded frame to b. If the frame cannot be sent it returns
// b unchanged and a *FrameError naming the offending value.
func (f *Frame) Append(b []byte) ([]byte, error) {
	pd := len(f.PrivateData)
	if f.HasEnhanced {
		if f.Rev < Rev2 {
			return b, frameErrorf("enhanced word needs revision 2, frame has %d", f.Rev)
		}
		if err := f.Enhanced.check(); err != nil {
			return b, err
		}
		pd += EnhancedLen
	}
	if pd > MaxPrivateData {
		return b, frameErrorf("private data of %d bytes exceeds %d", pd, MaxPrivateData)
	}
	key, flags := keyRequest, byte(0)
	if f.Reply {
		key = keyReply
	} else if f.Reject {
		return b, frameErrorf("reject bit in a request")
	}
	if f.Markers {
		flags |= flagMarkers
	}
	if f.CRC {
		flags |= flagCRC
	}
	if f.Reject {
		flags |= flagReject
	}
	if f.HasEnhanced {
		flags |= flagEnhanced
	}
	b = append(b, key...)
	b = append(b, flags, f.Rev)
	b = binary.BigEndian.AppendUint16(b, uint16(pd))
	if f.HasEnhanced {
		b = f.Enhanced.append(b)
	}
	return append(b, f.PrivateData...), nil
}

// ParseFrame decodes the frame at the beginning of b and tells its length n.
// PrivateData is a part of b, not a copy.
//
// The error is io.ErrUnexpectedEOF if b is too short but so far the beginning
// of a frame, and a *FrameError if no continuation could make it one.
func ParseFrame(b []byte) (f Frame, n int, err error) {
	f, enhanced, pd, err := parseHeader(b)
	if err != nil {
		return Frame{}, 0, err
	}
	n = FrameLen + pd
	if len(b) < n {
		return Frame{}, 0, io.ErrUnexpectedEOF
	}
	f.setPrivateData(b[FrameLen:n:n], enhanced)
	return f, n, nil
}

// ReadFrame reads exactly one frame from r, not one byte more. The memory for
// the private data is allocated only after its length has been validated.
//
// The error is io.EOF if r ends before the first byte, io.ErrUnexpectedEOF if
// it ends inside the frame, a *FrameError if what was read is no frame, or the
// error of r.
func ReadFrame(r io.Reader) (Frame, error) {
	var header [FrameLen]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return Frame{}, err
	}
	f, enhanced, pd, err := parseHeader(header[:])
	if err != nil || pd == 0 {
		return f, err
	}
	data := make([]byte, pd)
	if _, err := io.ReadFull(r, data); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return Frame{}, err
	}
	f.setPrivateData(data, enhanced)
	return f, nil
}

// parseHeader decodes the first FrameLen bytes: all but the private data, of
// which it returns the length. enhanced tells that it begins with the enhanced
// word.
func parseHeader(b []byte) (f Frame, enhanced bool, pd int, err error) {
	n := min(len(b), keyLen)
	switch string(b[:n]) {
	case keyRequest[:n]:
	case keyReply[:n]:
		f.Reply = true
	default:
		return Frame{}, false, 0, frameErrorf("bad key %q", b[:n])
	}
	if len(b) < FrameLen {
		return Frame{}, false, 0, io.ErrUnexpectedEOF
	}
	flags := b[16]
	f.Markers = flags&flagMarkers != 0
	f.CRC = flags&flagCRC != 0
	f.Reject = f.Reply && flags&flagReject != 0
	f.Rev = b[17]
	pd = int(binary.BigEndian.Uint16(b[18:]))
	if pd > MaxPrivateData {
		return Frame{}, false, 0, frameErrorf("private data of %d bytes exceeds %d", pd, MaxPrivateData)
	}
	enhanced = flags&flagEnhanced != 0 && f.Rev >= Rev2
	if enhanced && pd < EnhancedLen {
		return Frame{}, false, 0, frameErrorf("private data of %d bytes cannot hold the enhanced word", pd)
	}
	return f, enhanced, pd, nil
}

// setPrivateData divides the private data of the wire into the enhanced word,
// if there is one, and the ULP's part.
func (f *Frame) setPrivateData(b []byte, enhanced bool) {
	if enhanced {
		f.HasEnhanced = true
		f.Enhanced = parseEnhanced(b)
		b = b[EnhancedLen:]
	}
	if len(b) > 0 {
		f.PrivateData = b
	}
}

// FrameError says what is wrong with a startup frame, be it one received or one
// that was to be sent.
type FrameError struct {
	// Reason names the fault and the offending value.
	Reason string
}

// Error implements error.
func (e *FrameError) Error() string { return "mpa: bad frame: " + e.Reason }

func frameErrorf(format string, args ...any) error {
	return &FrameError{Reason: fmt.Sprintf(format, args...)}
}
