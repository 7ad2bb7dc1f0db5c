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
// siw driver of Linux. On little-endian hosts siw swaps the two halves of the
// first byte, layer and type, and has the HdrCt bits at the low end of the third
// byte. If HdrCt bits are set in siw's places and none in those of the RFC, the
// header is decoded in siw's layout, and swapped is true. If no HdrCt bit is set,
// the layout is not known, and the header is decoded in the RFC's layout; see
// SIWMeaning.
//
// Quoted headers and errors are as with ParseTerminate.
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

// SIWMeaning returns the text of t, which was decoded in the RFC's layout, for
// the case that the siw driver of Linux has sent it. It returns "" if siw does not
// send such a Terminate. Without quoted headers siw reports errors of MPA, and
// errors of type 2 of RDMAP and DDP.
func SIWMeaning(t *Terminate) string {
	if t.SegLenValid || t.DDPHeader != nil || t.RDMAPHeader != nil ||
		t.Layer == t.Type || t.Layer != LayerMPA && t.Type != LayerMPA || !assigned(t.Type, t.Layer, t.Code) {
		return ""
	}
	return TerminateText(t.Type, t.Layer, t.Code)
}
