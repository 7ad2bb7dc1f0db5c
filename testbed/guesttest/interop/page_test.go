// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package interop

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/iwarp/ddp"
	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/verbs"
)

// TestKernelReadsAcrossPages: siw answers a Read of 2 to 32 bytes across a page boundary with wrong
// bytes (siw_try_1seg). It confuses the number of bytes in the first page with the number in the
// second, and continues at the start of the page in which it then is. The response is correct only
// if both numbers are equal.
func TestKernelReadsAcrossPages(t *testing.T) {
	needKernel(t)
	const short, page = 32, 4096
	l := here.link(t, linkConfig{memory: 4 * page})
	fill(l.kernel.mem.Bytes(), 5)
	memory := l.kernel.mem.Bytes()
	require.Zero(t, l.kernel.mem.Addr()%page)
	for n := 2; n <= short+8; n++ {
		for first := 1; first < n; first++ {
			const edge = 2 * page
			off := edge - first
			wc := l.user.ok(l.user.run(l.kernel.at(verbs.SendWR{Opcode: verbs.WRRDMARead, SGL: l.user.sgl(0, n)}, off)),
				verbs.WCRDMARead)
			require.EqualValues(t, n, wc.ByteLen)
			got := l.user.mem.Bytes()[:n]
			if n > short || 2*first == n {
				require.Equal(t, memory[off:off+n], got, "%d bytes, %d of them in the first page", n, first)
				continue
			}
			second := n - first
			start := edge
			if second < first {
				start -= page
			}
			require.Equal(t, memory[off:off+min(first, second)], got[:min(first, second)])
			// Between them are the bytes after the first page in the host's memory.
			require.Equal(t, memory[start:start+first], got[second:], "%d bytes, %d of them in the first page", n,
				first)
		}
	}
}

// TestKernelReadOfNothing: an empty Read that siw cannot answer immediately is answered with the
// memory that siw is sending.
func TestKernelReadOfNothing(t *testing.T) {
	needKernel(t)
	const size = 8 << 20 // more than the TCP buffers hold
	for name, busy := range map[string]func(r *raw, k *side) (msn uint32){
		"answering": func(r *raw, k *side) uint32 {
			r.send(k.reading(1, 0, size))
			return 2
		},
		"writing": func(_ *raw, k *side) uint32 {
			k.post(verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGL: k.sgl(0, size), RemoteAddr: 0x1000, RKey: 0x200})
			return 1
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, k := serving(t, size, 4, 1)
			fill(k.mem.Bytes()[:4096], 3)
			msn := busy(r, k)
			time.Sleep(quietTime)
			r.send(k.reading(msn, 0, 0))
			for got := 0; got < size; {
				got += len(r.read()) - ddp.TaggedLen
			}
			u := r.read()
			require.Equal(t, tagged(rdmap.OpReadResponse, false, 0x100, 0x2000,
				k.mem.Bytes()[:len(u)-ddp.TaggedLen]...), u)
		})
	}
}
