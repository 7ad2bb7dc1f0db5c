// SPDX-License-Identifier: BSD-3-Clause

package rdmap

import (
	"testing"

	"github.com/stretchr/testify/require"
)

var sink uint64

func TestNoAllocs(t *testing.T) {
	var (
		buf       = make([]byte, MaxTerminateLen)
		terminate = terminateVectors[4].terminate
		wire      = terminate.Append(nil)
	)
	for name, fn := range map[string]func(){
		"control": func() {
			version, op := ParseControl(Control(OpSend))
			sink += uint64(version) + uint64(op)
		},
		"ReadRequest": func() {
			vectorReadRequest.Put(buf)
			r, _ := ParseReadRequest(buf)
			sink += r.SrcTO
		},
		"AtomicRequest": func() {
			vectorFetchAdd.Put(buf)
			r, _ := ParseAtomicRequest(buf)
			sink += r.TO
		},
		"AtomicResponse": func() {
			vectorAtomicResponse.Put(buf)
			r, _ := ParseAtomicResponse(buf)
			sink += r.Value
		},
		"Terminate.Append":      func() { sink += uint64(len(terminate.Append(buf[:0]))) },
		"ParseTerminate":        func() { r, _ := ParseTerminate(wire); sink += uint64(r.SegLen) },
		"ParseTerminateLenient": func() { r, _, _ := ParseTerminateLenient(wire); sink += uint64(r.SegLen) },
		"TerminateText":         func() { sink += uint64(len(TerminateText(LayerRDMAP, ErrTypeLocal, 0))) },
		"String":                func() { sink += uint64(len(OpSend.String())) },
	} {
		require.Zero(t, testing.AllocsPerRun(100, fn), name)
	}
}
