// SPDX-License-Identifier: BSD-3-Clause

package rdmap

import (
	"fmt"

	"github.com/goverbs/goverbs/internal/iwarp/ddp"
)

// errType is an error type of a layer in a Terminate.
type errType struct {
	name string
	// codes are the assigned codes. If codes is nil, the type defines no codes and any code is
	// valid.
	codes map[uint8]string
}

// errTypes are the assigned errors by layer and type (RFC 6580 sections 3.1 to 3.3, RFC 6581
// section 8).
var errTypes = map[[2]uint8]errType{
	{LayerRDMAP, ErrTypeLocal}: {name: "RDMAP local catastrophic error"},
	{LayerRDMAP, ErrTypeProtection}: {"RDMAP remote protection error", map[uint8]string{
		ProtInvalidSTag:      "invalid STag",
		ProtBounds:           "base or bounds violation",
		ProtAccess:           "access rights violation",
		ProtNotAssociated:    "STag not associated with stream",
		ProtWrap:             "TO wrap",
		ProtCannotInvalidate: "STag cannot be invalidated",
		Unspecified:          "unspecified error",
	}},
	{LayerRDMAP, ErrTypeOperation}: {"RDMAP remote operation error", map[uint8]string{
		OperVersion:          "invalid RDMAP version",
		OperOpcode:           "unexpected opcode",
		OperStream:           "catastrophic error, localized to stream",
		OperGlobal:           "catastrophic error, global",
		OperCannotInvalidate: "STag cannot be invalidated",
		Unspecified:          "unspecified error",
	}},
	{LayerDDP, ddp.ErrTypeLocal}: {"DDP error", map[uint8]string{
		0: "local catastrophic",
	}},
	{LayerDDP, ddp.ErrTypeTagged}: {"DDP tagged buffer error", map[uint8]string{
		ddp.TaggedInvalidSTag:   "invalid STag",
		ddp.TaggedBounds:        "base or bounds violation",
		ddp.TaggedNotAssociated: "STag not associated with stream",
		ddp.TaggedWrap:          "TO wrap",
		ddp.TaggedVersion:       "invalid DDP version",
	}},
	{LayerDDP, ddp.ErrTypeUntagged}: {"DDP untagged buffer error", map[uint8]string{
		ddp.UntaggedInvalidQN: "invalid QN",
		ddp.UntaggedNoBuffer:  "invalid MSN, no buffer available",
		ddp.UntaggedMSN:       "invalid MSN, range not valid",
		ddp.UntaggedMO:        "invalid MO",
		ddp.UntaggedTooLong:   "message too long for available buffer",
		ddp.UntaggedVersion:   "invalid DDP version",
	}},
	{LayerDDP, ddp.ErrTypeLLP}: {name: "DDP error reserved for the LLP"},
	// Package mpa, which this one does not import, names the codes.
	{LayerMPA, 0}: {"MPA error", map[uint8]string{
		1: "TCP connection closed, terminated, or lost", // RFC 5044 section 8
		2: "CRC mismatch",                               // RFC 5044 section 8
		3: "marker and ULPDU length mismatch",           // RFC 5044 section 8
		4: "invalid request or reply frame",             // RFC 5044 section 8
		5: "local catastrophic",                         // RFC 6581 section 8
		6: "insufficient IRD resources",                 // RFC 6581 section 8
		7: "no matching RTR option",                     // RFC 6581 section 8
	}},
}

// assigned reports whether an RFC defines the three values of a Terminate.
func assigned(layer, typ, code uint8) bool {
	t, ok := errTypes[[2]uint8{layer, typ}]
	if ok && t.codes != nil {
		_, ok = t.codes[code]
	}
	return ok
}

// TerminateText returns the meaning of the three values of a Terminate as text, for example "RDMAP
// remote protection error: invalid STag". Values that no RFC defines are printed as numbers.
func TerminateText(layer, typ, code uint8) string {
	t, ok := errTypes[[2]uint8{layer, typ}]
	if !ok {
		return fmt.Sprintf("unassigned error: layer %d, type %d, code 0x%02x", layer, typ, code)
	}
	if t.codes == nil {
		return t.name
	}
	if text, ok := t.codes[code]; ok {
		return t.name + ": " + text
	}
	return fmt.Sprintf("%s: unassigned code 0x%02x", t.name, code)
}
