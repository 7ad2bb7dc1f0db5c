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
// third. swapped tells that the header was read that way: if HdrCt bits are set
// in siw's places and none in the RFC's. Where none is set, nothing shows who
// has sent it, and it is read as the RFC has it; see SIWMeaning.
//
// Quotations and errors are as with ParseTerminate.
func ParseTerminateLenient(b []byte) (t Terminate, swapped bool, err error) {
	if len(b) < TerminateLen {
		return Terminate{}, false, io.ErrUnexpectedEOF
	}
	if b[2]&(hdrSegLen|hdrDDP|hdrRDMAP) != 0 || b[2]&(siwSegLen|siwDDP|siwRDMAP) == 0 {
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

// SIWMeaning returns in words what t, which was read as the RFC has it, means if
// the siw driver of Linux has sent it; "" if siw sends nothing like it. Without a
// quotation siw tells of errors of MPA, and of RDMAP and DDP those of type 2.
func SIWMeaning(t *Terminate) string {
	if t.SegLenValid || t.DDPHeader != nil || t.RDMAPHeader != nil ||
		t.Layer == t.Type || t.Layer != LayerMPA && t.Type != LayerMPA || !assigned(t.Type, t.Layer, t.Code) {
		return ""
	}
	return TerminateText(t.Type, t.Layer, t.Code)
}
