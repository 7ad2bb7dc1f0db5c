// SPDX-License-Identifier: BSD-3-Clause

package rdmap

import "io"

// HdrCt bits as the Linux siw driver places them in the third byte on little-endian hosts: starting
// from the low end, where a compiler for such hosts puts bit-fields.
const (
	siwSegLen = 0x01 // M
	siwDDP    = 0x02 // D
	siwRDMAP  = 0x04 // R
)

// ParseTerminateLenient decodes a Terminate header that may also come from the Linux siw driver. On
// little-endian hosts, siw swaps the two halves of the first byte, layer and type, and places the
// HdrCt bits at the low end of the third byte. If HdrCt bits are set in siw's places and none in
// the RFC's, the header is decoded in siw's layout, and swapped is true. If no HdrCt bit is set,
// the layout is unknown and the header is decoded in the RFC's layout; see SIWMeaning.
//
// Quoted headers and errors are as for ParseTerminate.
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

// SIWMeaning returns what t, decoded in the RFC's layout, means if the Linux siw driver sent it. It
// returns "" if siw does not send such a Terminate. The Terminates that siw sends without quoted
// headers report MPA errors, and RDMAP and DDP errors of type 2.
func SIWMeaning(t *Terminate) string {
	if t.SegLenValid || t.DDPHeader != nil || t.RDMAPHeader != nil ||
		t.Layer == t.Type || t.Layer != LayerMPA && t.Type != LayerMPA || !assigned(t.Type, t.Layer, t.Code) {
		return ""
	}
	return TerminateText(t.Type, t.Layer, t.Code)
}
