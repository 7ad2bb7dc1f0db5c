// SPDX-License-Identifier: BSD-3-Clause

package rdmap

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTerminateText(t *testing.T) {
	for _, tc := range []struct {
		layer, typ, code uint8
		want             string
	}{
		{0, 0, 0x00, "RDMAP local catastrophic error"},
		{0, 0, 0x77, "RDMAP local catastrophic error"},
		{0, 1, 0x00, "RDMAP remote protection error: invalid STag"},
		{0, 1, 0x01, "RDMAP remote protection error: base or bounds violation"},
		{0, 1, 0x02, "RDMAP remote protection error: access rights violation"},
		{0, 1, 0x03, "RDMAP remote protection error: STag not associated with stream"},
		{0, 1, 0x04, "RDMAP remote protection error: TO wrap"},
		{0, 1, 0x05, "RDMAP remote protection error: unassigned code 0x05"},
		{0, 1, 0x09, "RDMAP remote protection error: STag cannot be invalidated"},
		{0, 1, 0xff, "RDMAP remote protection error: unspecified error"},
		{0, 2, 0x04, "RDMAP remote operation error: unassigned code 0x04"},
		{0, 2, 0x05, "RDMAP remote operation error: invalid RDMAP version"},
		{0, 2, 0x06, "RDMAP remote operation error: unexpected opcode"},
		{0, 2, 0x07, "RDMAP remote operation error: catastrophic error, localized to stream"},
		{0, 2, 0x08, "RDMAP remote operation error: catastrophic error, global"},
		{0, 2, 0x09, "RDMAP remote operation error: STag cannot be invalidated"},
		{0, 2, 0xff, "RDMAP remote operation error: unspecified error"},
		{0, 3, 0x01, "unassigned error: layer 0, type 3, code 0x01"},
		{1, 0, 0x00, "DDP error: local catastrophic"},
		{1, 0, 0x01, "DDP error: unassigned code 0x01"},
		{1, 1, 0x00, "DDP tagged buffer error: invalid STag"},
		{1, 1, 0x01, "DDP tagged buffer error: base or bounds violation"},
		{1, 1, 0x02, "DDP tagged buffer error: STag not associated with stream"},
		{1, 1, 0x03, "DDP tagged buffer error: TO wrap"},
		{1, 1, 0x04, "DDP tagged buffer error: invalid DDP version"},
		{1, 2, 0x00, "DDP untagged buffer error: unassigned code 0x00"},
		{1, 2, 0x01, "DDP untagged buffer error: invalid QN"},
		{1, 2, 0x02, "DDP untagged buffer error: invalid MSN, no buffer available"},
		{1, 2, 0x03, "DDP untagged buffer error: invalid MSN, range not valid"},
		{1, 2, 0x04, "DDP untagged buffer error: invalid MO"},
		{1, 2, 0x05, "DDP untagged buffer error: message too long for available buffer"},
		{1, 2, 0x06, "DDP untagged buffer error: invalid DDP version"},
		{1, 3, 0x42, "DDP error reserved for the LLP"},
		{2, 0, 0x01, "MPA error: TCP connection closed, terminated, or lost"},
		{2, 0, 0x02, "MPA error: CRC mismatch"},
		{2, 0, 0x03, "MPA error: marker and ULPDU length mismatch"},
		{2, 0, 0x04, "MPA error: invalid request or reply frame"},
		{2, 0, 0x05, "MPA error: local catastrophic"},
		{2, 0, 0x06, "MPA error: insufficient IRD resources"},
		{2, 0, 0x07, "MPA error: no matching RTR option"},
		{2, 0, 0x08, "MPA error: unassigned code 0x08"},
		{2, 1, 0x00, "unassigned error: layer 2, type 1, code 0x00"},
		{3, 1, 0xab, "unassigned error: layer 3, type 1, code 0xab"},
	} {
		require.Equal(t, tc.want, TerminateText(tc.layer, tc.typ, tc.code))
	}
}
