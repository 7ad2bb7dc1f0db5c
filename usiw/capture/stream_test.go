// SPDX-License-Identifier: BSD-3-Clause

package capture_test

import (
	"bytes"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/iwarp/ddp"
	"github.com/goverbs/goverbs/internal/iwarp/mpa"
	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/usiw/capture"
)

// start is when simulated connections begin; each call in a script is a millisecond later.
var start = time.Date(2026, 3, 4, 5, 6, 7, 123456789, time.UTC)

func tcp(s string) net.Addr {
	a, err := net.ResolveTCPAddr("tcp", s)
	if err != nil {
		panic(err)
	}
	return a
}

// script simulates a NIC: it calls a Writer as a NIC does.
type script struct {
	*capture.Writer
	file bytes.Buffer
	now  time.Time
}

func newScript(t testing.TB) *script {
	s := &script{now: start}
	var err error
	s.Writer, err = capture.New(&s.file, capture.Config{})
	require.NoError(t, err)
	return s
}

func (s *script) tap(local, remote net.Addr, out bool, pieces ...[]byte) {
	s.Packet(&usiw.Packet{Time: s.now, Local: local, Remote: remote, Out: out, Data: pieces})
	s.now = s.now.Add(time.Millisecond)
}

// done closes the Writer and returns the file.
func (s *script) done(t testing.TB) []byte {
	t.Helper()
	require.NoError(t, s.Close())
	return s.file.Bytes()
}

// frame returns a Request or a Reply.
func frame(t testing.TB, f mpa.Frame) []byte {
	t.Helper()
	b, err := f.Append(nil)
	require.NoError(t, err)
	return b
}

func request(t testing.TB) []byte {
	return frame(t, mpa.Frame{CRC: true, Rev: 2, HasEnhanced: true, Enhanced: mpa.Enhanced{IRD: 4, ORD: 4},
		PrivateData: []byte("who are you")})
}

func reply(t testing.TB) []byte {
	return frame(t, mpa.Frame{Reply: true, CRC: true, Rev: 2, HasEnhanced: true, PrivateData: []byte("I am")})
}

// fpdu returns an FPDU with a CRC.
func fpdu(ulpdu []byte) []byte {
	n := len(ulpdu)
	b := append([]byte{byte(n >> 8), byte(n)}, ulpdu...)
	b = append(b, make([]byte, mpa.Pad(n)+mpa.CRCLen)...)
	end := len(b) - mpa.CRCLen
	mpa.PutCRC(b[end:], mpa.CRC(0, b[:end]))
	return b
}

// send returns the FPDU of a Send.
func send(msn uint32, payload []byte) []byte {
	b := make([]byte, ddp.UntaggedLen)
	ddp.Untagged{Last: true, ULP: rdmap.Control(rdmap.OpSend), QN: ddp.QNSend, MSN: msn}.Put(b)
	return fpdu(append(b, payload...))
}

// sends returns FPDUs of many lengths, some of them consecutive.
func sends(n int) (fpdus [][]byte) {
	for i := range n {
		fpdus = append(fpdus, send(uint32(i+1), bytes.Repeat([]byte{byte(i)}, 37*i%1500)))
	}
	return fpdus
}

// marked inserts markers into FPDUs that begin a stream.
func marked(fpdus [][]byte) (out [][]byte) {
	pos := uint64(0)
	for _, f := range fpdus {
		b := mpa.AppendMarked(nil, pos, f, true)
		pos += uint64(len(b))
		out = append(out, b)
	}
	return out
}
