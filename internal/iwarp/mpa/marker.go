// SPDX-License-Identifier: BSD-3-Clause

package mpa

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Specification constants of markers.
const (
	// MarkerLen is the length of a marker: two reserved bytes and FPDUPTR (RFC 5044 section 4.2).
	MarkerLen = 4
	// MarkerSpacing is the distance in bytes of the stream from the first byte of a marker to the
	// first byte of the next (RFC 5044 section 4.3).
	MarkerSpacing = 512
)

// pointerMask clears the low two bits of FPDUPTR. Senders set them to zero, and receivers treat
// them as zero (RFC 5044 section 4.2).
const pointerMask = 0xFFFC

// errAlign reports a stream position or a length that is not a multiple of four, which no sequence
// of FPDUs and markers produces.
var errAlign = errors.New("mpa: marked FPDU is not aligned to four bytes")

// errTrailing reports a slice longer than the FPDU that it begins with.
var errTrailing = errors.New("mpa: bytes behind the marked FPDU")

// MarkerError reports a marker that does not point to the start of the FPDU that contains it, MPA
// error ErrCodeMarker (RFC 5044 section 8).
type MarkerError struct {
	// Offset is the marker's offset in the stream of its direction.
	Offset uint64
	// Got is the received FPDUPTR and Want the correct one, both with the low two bits cleared.
	Got, Want uint16
}

// Error implements error.
func (e *MarkerError) Error() string {
	return fmt.Sprintf("mpa: marker at stream offset %d points back %d bytes, want %d", e.Offset, e.Got, e.Want)
}

// A stream offset (pos in the functions below) is the number of bytes already sent in one direction
// since the startup frames, including markers. Markers are at the multiples of MarkerSpacing, so
// the stream begins with one (RFC 5044 section 4.3).

// MarkedPrefix returns how many marker bytes precede the ULPDU_Length field of an FPDU that begins
// at stream offset pos: MarkerLen if a marker is due there, otherwise 0.
func MarkedPrefix(pos uint64) int {
	if pos%MarkerSpacing == 0 {
		return MarkerLen
	}
	return 0
}

// MarkedLen returns how many stream bytes an FPDU occupies that begins at stream offset pos and has
// fpduLen bytes without markers. A marker immediately before the FPDU belongs to it; a marker
// immediately after it belongs to the next FPDU (RFC 5044 section 4.3).
func MarkedLen(pos uint64, fpduLen int) int {
	// Bytes of the FPDU before the first marker.
	first := int(-pos % MarkerSpacing)
	if fpduLen <= first {
		return fpduLen
	}
	return fpduLen + MarkerLen*(1+(fpduLen-first-1)/(MarkerSpacing-MarkerLen))
}

// AppendMarked appends to dst an FPDU with markers that begins at stream offset pos. fpdu is the
// FPDU without markers, at most FPDULen(MaxMULPDU) bytes. Its last four bytes are ignored;
// AppendMarked appends the CRC of the FPDU with markers in their place, or 0 if crc is false
// (RFC 5044 section 4.4). fpdu is not changed and must not overlap the spare capacity of dst.
//
// AppendMarked does not allocate if dst has room for MarkedLen more bytes. It panics if pos or the
// length of fpdu is not a multiple of four.
func AppendMarked(dst []byte, pos uint64, fpdu []byte, crc bool) []byte {
	if pos%4 != 0 || len(fpdu)%4 != 0 {
		panic(errAlign)
	}
	begin := len(dst)
	dst = slices.Grow(dst, MarkedLen(pos, len(fpdu)))
	at, body := pos, fpdu[:len(fpdu)-CRCLen]
	for len(body) > 0 {
		if at%MarkerSpacing == 0 {
			dst = appendMarker(dst, at, pos)
			at += MarkerLen
		}
		n := min(len(body), MarkerSpacing-int(at%MarkerSpacing))
		dst = append(dst, body[:n]...)
		at += uint64(n)
		body = body[n:]
	}
	if at%MarkerSpacing == 0 { // between pad and CRC
		dst = appendMarker(dst, at, pos)
	}
	var sum uint32
	if crc {
		sum = CRC(0, dst[begin:])
	}
	return binary.LittleEndian.AppendUint32(dst, sum)
}

// StripMarked appends to dst the FPDU in raw without its markers. raw is one FPDU with markers that
// begins at stream offset pos. The CRC is copied but not verified; it covers the markers, see
// CheckMarked. dst may be raw[:0].
//
// On error, dst is returned unchanged. The error is io.ErrUnexpectedEOF if raw is shorter than its
// ULPDU_Length implies, a *MarkerError if a marker does not point to the ULPDU_Length field
// (RFC 5044 sections 4.2 and 8), and an untyped error if raw is longer than the FPDU or pos is not
// a multiple of four.
func StripMarked(dst, raw []byte, pos uint64) ([]byte, error) {
	if pos%4 != 0 {
		return dst, errAlign
	}
	prefix := MarkedPrefix(pos)
	if len(raw) < prefix+LengthLen {
		return dst, io.ErrUnexpectedEOF
	}
	switch n := MarkedLen(pos, FPDULen(int(binary.BigEndian.Uint16(raw[prefix:])))); {
	case len(raw) < n:
		return dst, io.ErrUnexpectedEOF
	case len(raw) > n:
		return dst, errTrailing
	}
	out, at := dst, pos
	for len(raw) > 0 {
		if at%MarkerSpacing == 0 {
			got, want := binary.BigEndian.Uint16(raw[2:])&pointerMask, pointer(at, pos)
			if got != want {
				return dst, &MarkerError{Offset: at, Got: got, Want: want}
			}
			at += MarkerLen
			raw = raw[MarkerLen:]
		}
		n := min(len(raw), MarkerSpacing-int(at%MarkerSpacing))
		out = append(out, raw[:n]...)
		at += uint64(n)
		raw = raw[n:]
	}
	return out, nil
}

// CheckMarked reports whether the last four bytes of raw are the CRC of all bytes before them
// (RFC 5044 section 4.4). raw is an FPDU as received, with or without markers.
func CheckMarked(raw []byte) bool {
	n := len(raw) - CRCLen
	return n >= 0 && CRC(0, raw[:n]) == GetCRC(raw[n:])
}

// pointer returns the FPDUPTR of the marker at stream offset at, inside the FPDU that begins at
// pos: the distance from the ULPDU_Length field, or 0 if the marker precedes that field (RFC 5044
// section 4.3).
func pointer(at, pos uint64) uint16 {
	if at == pos {
		return 0
	}
	return uint16(at-pos-uint64(MarkedPrefix(pos))) & pointerMask
}

func appendMarker(dst []byte, at, pos uint64) []byte {
	dst = append(dst, 0, 0)
	return binary.BigEndian.AppendUint16(dst, pointer(at, pos))
}
