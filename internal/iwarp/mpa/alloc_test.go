// SPDX-License-Identifier: BSD-3-Clause

package mpa

import (
	"testing"

	"github.com/stretchr/testify/require"
)

var sink int

func TestNoAllocs(t *testing.T) {
	var (
		frame  = frameVectors[8].frame
		wire   = mustAppend(t, frame)
		buf    = make([]byte, 0, 4096)
		sum    = make([]byte, CRCLen)
		fpdu   = randomFPDU(1430)
		marked = AppendMarked(nil, 8, fpdu, true)
	)
	for name, fn := range map[string]func(){
		"Frame.Append": func() { b, _ := frame.Append(buf); sink += len(b) },
		"ParseFrame":   func() { _, n, _ := ParseFrame(wire); sink += n },
		"CRC":          func() { PutCRC(sum, CRC(0, fpdu)); sink += int(GetCRC(sum)) },
		"AppendMarked": func() { sink += len(AppendMarked(buf, 8, fpdu, true)) },
		"StripMarked":  func() { b, _ := StripMarked(buf, marked, 8); sink += len(b) },
		"CheckMarked":  func() { _ = CheckMarked(marked) },
		"lengths":      func() { sink += MULPDU(1448, true) + FPDULen(70) + MarkedLen(8, 76) + MarkedPrefix(8) },
	} {
		require.Zero(t, testing.AllocsPerRun(100, fn), name)
	}
}
