// SPDX-License-Identifier: BSD-3-Clause

package rdmap

import "io"

// HdrCt bits as the siw driver of Linux places them in the third byte on
// little-endian hosts: from the low end, as a compiler lays out bit-fields there.
const (
	siwSegLen = 0x01 // M
	siwDDP    = 0x02 // D
	siwRDMAP  = 0x04 // R
)

// ParseTerminateLenient decodes a Terminate header that may also come from the
// siw driver of Linux. On little-endian hosts siw exchanges the nibbles of the
// first byte, layer and type, and has the HdrCt bits at the other end of the
// third. swapped tells that the header was read that way.
//
// Which layout it is shows in the HdrCt bits, if one is set. If none is, the
// RFC's reading holds unless only the exchanged one names an assigned error.
// Both do in a few cases, where established decides: whether the connection is
// in full operation (true) or still being set up (false). The MPA errors 2/0/05
// to 2/0/07 belong to setup only, and the RDMAP errors 0/2/05 to 0/2/07 to full
// operation only, so each excludes the other's bytes. What siw reports with the
// bytes of RFC errors 1/0/00 and 0/1/00 always quotes a header, so these are
// taken as the RFC has them.
//
// Quotations and errors are as with ParseTerminate.
func ParseTerminateLenient(b []byte, established bool) (t Terminate, swapped bool, err error) {
	if len(b) < TerminateLen {
		return Terminate{}, false, io.ErrUnexpectedEOF
	}
	if !siwLayout(b, established) {
		t, err = ParseTerminate(b)
		return t, false, err
	}
	var flags byte
	if b[2]&siwSegLen != 0 {
		flags |= hdrSegLen
	}
	if b[2]&siwDDP != 0 {
		flags |= hdrDDP
	}
	if b[2]&siwRDMAP != 0 {
		flags |= hdrRDMAP
	}
	t, err = parseTerminate(b, b[0]&0x0F, b[0]>>4, flags)
	return t, true, err
}

// siwLayout judges from the first TerminateLen bytes of b.
func siwLayout(b []byte, established bool) bool {
	if b[2]&(hdrSegLen|hdrDDP|hdrRDMAP) != 0 {
		return false
	}
	if b[2]&(siwSegLen|siwDDP|siwRDMAP) != 0 {
		return true
	}
	high, low, code := b[0]>>4, b[0]&0x0F, b[1]
	rfc, siw := assigned(high, low, code), assigned(low, high, code)
	if !rfc || !siw {
		return siw
	}
	switch {
	case high == LayerMPA: // RFC 2/0, siw 0/2
		return established
	case low == LayerMPA: // RFC 0/2, siw 2/0
		return !established
	}
	return false
}
