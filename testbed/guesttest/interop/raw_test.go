// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package interop

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/iwarp/ddp"
	"github.com/goverbs/goverbs/internal/iwarp/mpa"
	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
)

// raw is a TCP connection to the kernel's siw on which the test itself writes and reads MPA, DDP
// and RDMAP. It can send what no RNIC sends, and check every byte that it receives.
type raw struct {
	t    *testing.T
	conn net.Conn
	crc  bool // FPDUs carry a CRC
}

// Flags of a startup frame (RFC 5044 section 7.1.1, RFC 6581 section 6).
const (
	flagM = 0x80
	flagC = 0x40
	flagR = 0x20
	flagS = 0x10
)

// frame returns the bytes of a startup frame without checking them.
func frame(reply bool, flags, rev byte, private ...byte) []byte {
	key := "MPA ID Req Frame"
	if reply {
		key = "MPA ID Rep Frame"
	}
	return append(append([]byte(key), flags, rev, byte(len(private)>>8), byte(len(private))), private...)
}

func request(flags, rev byte, private ...byte) []byte { return frame(false, flags, rev, private...) }
func reply(flags, rev byte, private ...byte) []byte   { return frame(true, flags, rev, private...) }

// word returns the enhanced word of a startup frame (RFC 6581 section 9).
func word(ird, ord uint16, private ...byte) []byte {
	return append([]byte{byte(ird >> 8), byte(ird), byte(ord >> 8), byte(ord)}, private...)
}

// dial opens a TCP connection to a listener of the kernel's siw.
func (p place) dial(t *testing.T, address string) *raw {
	t.Helper()
	var conn net.Conn
	var err error
	if p.network == nil {
		conn, err = net.DialTimeout("tcp", address, waitLimit)
	} else {
		conn, err = p.network.DialContext(soon(t), "tcp", address)
	}
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return &raw{t: t, conn: conn}
}

// listen opens a TCP listener for the kernel's siw to connect to.
func (p place) listen(t *testing.T) net.Listener {
	t.Helper()
	var ln net.Listener
	var err error
	if p.network == nil {
		ln, err = net.Listen("tcp", anyPort(p.host))
	} else {
		ln, err = p.network.Listen(soon(t), "tcp", anyPort(p.host))
	}
	require.NoError(t, err)
	t.Cleanup(func() { ln.Close() })
	return ln
}

// write sends bytes.
func (r *raw) write(b []byte) {
	r.t.Helper()
	require.NoError(r.t, r.conn.SetWriteDeadline(time.Now().Add(waitLimit)))
	_, err := r.conn.Write(b)
	require.NoError(r.t, err)
}

// send sends each ULPDU in an FPDU, all in one write.
func (r *raw) send(ulpdus ...[]byte) {
	r.t.Helper()
	var b []byte
	for _, u := range ulpdus {
		b = append(b, r.fpdu(u)...)
	}
	r.write(b)
}

// fpdu returns an FPDU.
func (r *raw) fpdu(ulpdu []byte) []byte {
	b := make([]byte, mpa.FPDULen(len(ulpdu)))
	binary.BigEndian.PutUint16(b, uint16(len(ulpdu)))
	copy(b[mpa.LengthLen:], ulpdu)
	if r.crc {
		mpa.PutCRC(b[len(b)-mpa.CRCLen:], mpa.CRC(0, b[:len(b)-mpa.CRCLen]))
	}
	return b
}

// bytes reads exactly n bytes.
func (r *raw) bytes(n int) []byte {
	r.t.Helper()
	require.NoError(r.t, r.conn.SetReadDeadline(time.Now().Add(waitLimit)))
	b := make([]byte, n)
	got, err := io.ReadFull(r.conn, b)
	require.NoError(r.t, err, "%d of %d bytes: % x", got, n, b[:got])
	return b
}

// frame reads a startup frame and returns its bytes.
func (r *raw) frame() []byte {
	r.t.Helper()
	b := r.bytes(mpa.FrameLen)
	return append(b, r.bytes(int(binary.BigEndian.Uint16(b[18:])))...)
}

// read reads an FPDU, checks its CRC, or that the field is 0 without CRC, and returns the ULPDU.
func (r *raw) read() []byte {
	r.t.Helper()
	b := r.bytes(mpa.LengthLen)
	n := int(binary.BigEndian.Uint16(b))
	b = append(b, r.bytes(mpa.FPDULen(n)-mpa.LengthLen)...)
	end := len(b) - mpa.CRCLen
	var want uint32
	if r.crc {
		want = mpa.CRC(0, b[:end])
	}
	require.Equal(r.t, want, mpa.GetCRC(b[end:]), "CRC of % x", b[:min(len(b), 64)])
	return b[mpa.LengthLen:][:n]
}

// readOp reads an untagged message of one segment and returns its DDP header and payload.
func (r *raw) readOp(op rdmap.Opcode) (ddp.Untagged, []byte) {
	r.t.Helper()
	u := r.read()
	require.False(r.t, ddp.IsTagged(u[0]), "% x", u[:min(len(u), 64)])
	h, err := ddp.ParseUntagged(u)
	require.NoError(r.t, err)
	_, got := rdmap.ParseControl(h.ULP)
	require.Equal(r.t, op, got)
	return h, u[ddp.UntaggedLen:]
}

// gone requires that only the end of the stream follows, by FIN or by RST.
func (r *raw) gone() {
	r.t.Helper()
	b, err := r.rest()
	require.Empty(r.t, b, "nothing but the end wanted")
	var timeout net.Error
	require.False(r.t, errors.As(err, &timeout) && timeout.Timeout(), "the connection has not ended: %v", err)
}

// rest reads until the end of the stream, which must come.
func (r *raw) rest() ([]byte, error) {
	require.NoError(r.t, r.conn.SetReadDeadline(time.Now().Add(waitLimit)))
	return io.ReadAll(io.LimitReader(r.conn, 1<<20))
}

// quiet requires that nothing arrives during quietTime, and that the connection does not end.
func (r *raw) quiet() {
	r.t.Helper()
	require.NoError(r.t, r.conn.SetReadDeadline(time.Now().Add(quietTime)))
	var b [64]byte
	n, err := r.conn.Read(b[:])
	var timeout net.Error
	require.True(r.t, errors.As(err, &timeout) && timeout.Timeout(), "got % x, %v", b[:n], err)
}

// quietTime is how long a test waits for something that must not happen.
const quietTime = 300 * time.Millisecond

// untagged returns an untagged message of one segment.
func untagged(op rdmap.Opcode, qn, msn uint32, body ...byte) []byte {
	b := make([]byte, ddp.UntaggedLen, ddp.UntaggedLen+len(body))
	ddp.Untagged{Last: true, ULP: rdmap.Control(op), QN: qn, MSN: msn}.Put(b)
	return append(b, body...)
}

// tagged returns a tagged segment, the last of its message or not.
func tagged(op rdmap.Opcode, last bool, stag uint32, to uint64, body ...byte) []byte {
	b := make([]byte, ddp.TaggedLen, ddp.TaggedLen+len(body))
	ddp.Tagged{Last: last, ULP: rdmap.Control(op), STag: stag, TO: to}.Put(b)
	return append(b, body...)
}

// readRequest returns a Read Request.
func readRequest(msn uint32, rr rdmap.ReadRequest) []byte {
	b := make([]byte, rdmap.ReadRequestLen)
	rr.Put(b)
	return untagged(rdmap.OpReadRequest, ddp.QNReadRequest, msn, b...)
}

// toKernel connects a raw peer to the kernel, whose QP was prepared by before. The request asks for
// CRC.
func (p place) toKernel(t *testing.T, param cm.ConnParam, before func(k *side)) (*raw, *side) {
	t.Helper()
	k := kernelSide(t, 1<<16)
	ln := k.listen(kernelHost)
	k.open()
	r := p.dial(t, ln.Addr().String())
	r.write(request(flagC|flagS, mpa.Rev2, word(16, 16)...))
	req, err := ln.Accept(soon(t))
	require.NoError(t, err)
	require.NoError(t, req.BindQP(k.qp))
	if before != nil {
		before(k)
	}
	accepted := make(chan error, 1)
	go func() {
		var err error
		k.id, err = req.Accept(soon(t), k.qp, param)
		accepted <- err
	}()
	b := r.frame()
	require.Equal(t, byte(flagC|flagS), b[16], "flags of the Reply")
	r.crc = true
	require.NoError(t, result(t, "Accept", accepted))
	t.Cleanup(func() { assert.NoError(t, k.id.Close()) })
	return r, k
}

// fromKernel connects the kernel to a raw peer. It returns the kernel's Request; Connect is in
// progress.
func (p place) fromKernel(t *testing.T, param cm.ConnParam) (r *raw, k *side, request []byte, connected <-chan error) {
	t.Helper()
	k = kernelSide(t, 1<<16)
	ln := p.listen(t)
	k.resolve(ln.Addr().String())
	done := make(chan error, 1)
	finished := make(chan struct{})
	ctx := soon(t)
	t.Cleanup(func() { <-finished })
	go func() {
		defer close(finished)
		err := k.id.Connect(ctx, k.qp, param)
		if err != nil {
			ln.Close() // no connection is expected
		}
		done <- err
	}()
	conn, err := ln.Accept()
	if err != nil {
		err = result(t, "Connect", done)
	}
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	r = &raw{t: t, conn: conn}
	return r, k, r.frame(), done
}

// opened waits for a Connect of the kernel's side to return, and reads the empty Write that its
// provider then sends.
func (r *raw) opened(connected <-chan error) {
	r.t.Helper()
	require.NoError(r.t, result(r.t, "Connect", connected))
	require.Equal(r.t, tagged(rdmap.OpWrite, true, 1, 0), r.read())
}
