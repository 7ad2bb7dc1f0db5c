// SPDX-License-Identifier: BSD-3-Clause

package capture_test

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/iwarp/mpa"
)

// FuzzStreams feeds two streams to a Writer, cut as the plan specifies, and requires that the file
// is well-formed and contains each byte once and in order, whatever the streams are.
func FuzzStreams(f *testing.F) {
	req, rep := request(f), reply(f)
	f.Add(append(req, send(1, []byte("hello"))...), append(rep, send(1, nil)...), []byte{20, 12, 19, 99, 3, 7})
	f.Add(append(frame(f, mpa.Frame{Rev: 1, Markers: true}), bytes.Join(sends(9), nil)...),
		append(frame(f, mpa.Frame{Reply: true, Rev: 1}), bytes.Join(marked(sends(9)), nil)...),
		[]byte{255, 254, 1, 0, 130})
	f.Add(append(req, frame(f, mpa.Frame{Rev: 1})...), rep, []byte{byte(len(req) - 1), 128, 19})
	f.Add([]byte("GET / HTTP/1.1"), []byte{0xFF, 0xFF}, []byte{0})
	f.Fuzz(func(t *testing.T, first, second, plan []byte) {
		s := newScript(t)
		streams := [2][]byte{first, second}
		for at := 0; len(streams[0])+len(streams[1]) > 0; at++ {
			step := byte(127)
			if at < len(plan) {
				step = plan[at]
			}
			if step == 255 {
				require.NoError(t, s.Flush())
				continue
			}
			i := int(step>>7) & 1
			if len(streams[i]) == 0 {
				i = 1 - i
			}
			n := min(1+int(step&127), len(streams[i]))
			if step == 127 {
				n = len(streams[i])
			}
			s.tap(here, there, i == 0, streams[i][:n/2], streams[i][n/2:n])
			streams[i] = streams[i][n:]
		}
		got := make(map[netip.AddrPort][]byte)
		for _, c := range follow(t, readFile(t, s.done(t))) {
			for _, h := range c {
				got[h.from] = append(got[h.from], h.bytes()...)
			}
		}
		require.True(t, bytes.Equal(first, got[addrPort(here)]))
		require.True(t, bytes.Equal(second, got[addrPort(there)]))
	})
}
