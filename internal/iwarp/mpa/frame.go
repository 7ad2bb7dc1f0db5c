// SPDX-License-Identifier: BSD-3-Clause

package mpa

import (
	"encoding/binary"
	"fmt"
	"io"
)

// Specification constants of the startup frames.
const (
	// FrameLen is the length of a Request or Reply frame without its private data (RFC 5044
	// section 7.1.1).
	FrameLen = 20
	// MaxPrivateData is the largest length of the private data of a frame, including the enhanced
	// word (RFC 5044 section 7.1.1, RFC 6581 section 7).
	MaxPrivateData = 512

	// Rev0 is the revision of the RDMA Consortium's MPA (RFC 5044 appendix C).
	Rev0 = 0
	// Rev1 is the revision of RFC 5044 (RFC 5044 section 7.1.1).
	Rev1 = 1
	// Rev2 is the revision with the enhanced word (RFC 6581 section 6).
	Rev2 = 2
)

// Keys of the startup frames (RFC 5044 section 7.1.1).
const (
	keyRequest = "MPA ID Req Frame"
	keyReply   = "MPA ID Rep Frame"
	keyLen     = len(keyRequest)
)

// Flags of a startup frame, byte 16. The other bits are reserved: senders set them to zero,
// receivers ignore them.
const (
	flagMarkers  = 0x80 // M, RFC 5044 section 7.1.1
	flagCRC      = 0x40 // C, RFC 5044 section 7.1.1
	flagReject   = 0x20 // R, RFC 5044 section 7.1.1
	flagEnhanced = 0x10 // S, RFC 6581 section 6
)

// Frame is a startup frame: a Request or, if Reply is set, a Reply (RFC 5044 section 7.1.1,
// RFC 6581 section 6).
type Frame struct {
	// Reply is true for a Reply, false for a Request.
	Reply bool
	// Markers is the M bit: the sender of this frame wants markers in the FPDUs that it receives.
	Markers bool
	// CRC is the C bit: the sender of this frame wants CRCs. If either side does, both directions
	// use them.
	CRC bool
	// Reject is the R bit of a Reply. In a Request it must be false when sent, and is ignored when
	// received.
	Reject bool
	// Rev is the MPA revision. Parsing accepts every value; the caller decides which revisions it
	// supports.
	Rev uint8
	// HasEnhanced is the S bit: the private data begins with the enhanced word. Below Rev2 the bit
	// is reserved and reads as false.
	HasEnhanced bool
	// Enhanced is the enhanced word, meaningful only with HasEnhanced.
	Enhanced Enhanced
	// PrivateData is the ULP's private data, without the enhanced word. Empty private data parses
	// as nil.
	PrivateData []byte
}

// Append appends the encoded frame to b. If the frame cannot be sent it returns b unchanged and a
// *FrameError naming the offending value.
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

// ParseFrame decodes the frame at the beginning of b and returns its length n. PrivateData is a
// part of b, not a copy.
//
// The error is io.ErrUnexpectedEOF if b is the beginning of a frame but too short, and a
// *FrameError if b cannot be the beginning of a frame.
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

// ReadFrame reads exactly one frame from r, and no byte after it. It checks the length of the
// private data before it allocates memory for them.
//
// The error is io.EOF if r ends before the first byte, io.ErrUnexpectedEOF if it ends inside the
// frame, a *FrameError if the bytes are not a valid frame, or the error of r.
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

// parseHeader decodes the first FrameLen bytes. pd is the length of the private data, and enhanced
// reports whether they begin with the enhanced word.
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

// setPrivateData splits the received private data into the enhanced word, if there is one, and the
// ULP's private data.
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

// FrameError describes an invalid startup frame, whether received or to be sent.
type FrameError struct {
	// Reason describes the error and the offending value.
	Reason string
}

// Error implements error.
func (e *FrameError) Error() string { return "mpa: bad frame: " + e.Reason }

func frameErrorf(format string, args ...any) error {
	return &FrameError{Reason: fmt.Sprintf(format, args...)}
}
