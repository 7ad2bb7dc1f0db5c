// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package interop

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/iwarp/ddp"
	"github.com/goverbs/goverbs/internal/iwarp/mpa"
	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/verbs"
)

// depth returns a ConnParam.
func depth(ird, ord int) cm.ConnParam {
	return cm.ConnParam{ResponderResources: ird, InitiatorDepth: ord}
}

// siwTerminate returns the Terminate of siw: the two halves of the first byte are swapped, and the
// bits M, D and R are at the low end of the third byte.
func siwTerminate(first, code, bits byte, quoted ...byte) []byte {
	return untagged(rdmap.OpTerminate, ddp.QNTerminate, 1, append([]byte{first, code, bits, 0}, quoted...)...)
}

// TestKernelRequest: the Request of siw as initiator, and its reactions to the replies.
func TestKernelRequest(t *testing.T) {
	needKernel(t)
	p := here
	t.Run("bytes", func(t *testing.T) {
		param := depth(5, 7)
		param.PrivateData = []byte("private")
		r, _, got, _ := p.fromKernel(t, param)
		// Revision 2 with the enhanced word; no CRC, no markers, no peer-to-peer.
		require.Equal(t, request(flagS, mpa.Rev2, word(5, 7, []byte("private")...)...), got)
		r.conn.Close()
	})
	for _, c := range []struct {
		name  string
		reply []byte
		last  []byte // the ULPDU that siw sends before it closes, nil = none
		event cm.Event
		errno syscall.Errno
	}{
		{"markers", reply(flagM|flagS, 2, word(4, 4)...), nil, cm.EventRejected, syscall.ECONNREFUSED},
		{"revision 1", reply(0, 1), nil, cm.EventRejected, syscall.ECONNRESET},
		{"no enhanced word", reply(0, 2), nil, cm.EventRejected, syscall.ECONNRESET},
		{"a Request", request(flagS, 2, word(4, 4)...), siwTerminate(0x02, 0x04, 0), cm.EventConnectError,
			syscall.EINVAL},
		{"ORD 129", reply(flagS, 2, word(4, 129)...), siwTerminate(0x02, 0x06, 0), cm.EventConnectError,
			syscall.EINVAL},
		{"ORD 129 and CRC", reply(flagC|flagS, 2, word(4, 129)...), siwTerminate(0x02, 0x06, 0), cm.EventConnectError,
			syscall.EINVAL},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, k, _, connected := p.fromKernel(t, depth(4, 4))
			r.write(c.reply)
			if c.last != nil {
				require.Equal(t, c.last, r.read()) // its CRC field is 0 even if CRC was requested
			}
			r.gone()
			failed(t, result(t, "Connect", connected), c.event, c.errno)
			require.Error(t, k.id.Connect(soon(t), k.qp, depth(4, 4)), "an ID connects once")
		})
	}
	for _, crc := range []bool{false, true} {
		t.Run(fmt.Sprintf("accepted, CRC %v", crc), func(t *testing.T) {
			r, k, _, connected := p.fromKernel(t, depth(4, 4))
			flags := byte(flagS)
			if r.crc = crc; crc {
				flags |= flagC
			}
			r.write(reply(flags, 2, word(4, 4, 1, 2, 3)...))
			r.opened(connected)
			require.Equal(t, []byte{1, 2, 3}, k.id.PrivateData())
			// The provider sent the first message. siw itself sends none until its program does.
			r.quiet()
			fill(k.mem.Bytes()[:5], 1)
			k.post(verbs.SendWR{Opcode: verbs.WRSend, SGL: k.sgl(0, 5)})
			require.Equal(t, untagged(rdmap.OpSend, ddp.QNSend, 1, k.mem.Bytes()[:5]...), r.read())
			k.ok(k.sent(), verbs.WCSend)
		})
	}
	t.Run("it serves what it is asked for", func(t *testing.T) {
		r, k, _, connected := p.fromKernel(t, depth(4, 4))
		r.write(reply(flagS, 2, word(4, 100)...))
		r.opened(connected)
		for n := range uint32(100) {
			r.send(readRequest(n+1, rdmap.ReadRequest{SinkSTag: 1, Size: 4, SrcSTag: k.mem.RKey(),
				SrcTO: k.mem.Addr()}))
			require.Len(t, r.read(), ddp.TaggedLen+4)
		}
	})
	t.Run("a message right behind the Reply", func(t *testing.T) {
		r, _, _, connected := p.fromKernel(t, depth(4, 4))
		r.write(append(reply(flagS, 2, word(4, 4)...), r.fpdu(tagged(rdmap.OpWrite, true, 1, 0))...))
		r.gone()
		failed(t, result(t, "Connect", connected), cm.EventConnectError, syscall.EINVAL)
	})
	t.Run("rejected", func(t *testing.T) {
		r, _, _, connected := p.fromKernel(t, depth(4, 4))
		r.write(reply(flagR|flagS, 2, word(4, 4, 7, 8)...))
		err := result(t, "Connect", connected)
		var rejected *cm.RejectedError
		require.ErrorAs(t, err, &rejected)
		require.Equal(t, []byte{7, 8}, rejected.PrivateData)
		failed(t, err, cm.EventRejected, syscall.ECONNRESET)
		r.gone()
	})
	for _, reset := range []bool{false, true} {
		t.Run(fmt.Sprintf("no Reply, reset %v", reset), func(t *testing.T) {
			r, _, _, connected := p.fromKernel(t, depth(4, 4))
			if reset {
				require.NoError(t, r.conn.(*net.TCPConn).SetLinger(0))
			}
			r.conn.Close() // with no unread data: FIN
			failed(t, result(t, "Connect", connected), cm.EventRejected, syscall.ECONNRESET)
		})
	}
}

// failed requires that a connection attempt failed with an event and an errno. siw reports a
// connection that its peer closes as rejected.
func failed(t *testing.T, err error, event cm.Event, errno syscall.Errno) {
	t.Helper()
	var ee *cm.EventError
	require.ErrorAs(t, err, &ee)
	require.Equal(t, event, ee.Event)
	require.Equal(t, -int(errno), ee.Status)
	require.ErrorIs(t, err, errno)
	require.Equal(t, event == cm.EventRejected, errors.Is(err, cm.ErrRejected))
	require.Equal(t, errno == syscall.ETIMEDOUT, errors.Is(err, cm.ErrSetupTimeout))
}

// TestKernelSilence: siw gives up on a silent peer, after 10 s as initiator and after 5 s as
// responder.
func TestKernelSilence(t *testing.T) {
	needKernel(t)
	began := time.Now()
	k := kernelSide(t, 4096)
	silent := here.dial(t, k.listen(kernelHost).Addr().String())
	r, _, _, connected := here.fromKernel(t, depth(4, 4))
	silent.gone()
	require.InDelta(t, 5, time.Since(began).Seconds(), 2)
	r.gone()
	failed(t, result(t, "Connect", connected), cm.EventUnreachable, syscall.ETIMEDOUT)
	require.InDelta(t, 10, time.Since(began).Seconds(), 3)
}

// TestKernelReply: the Reply of siw as responder.
func TestKernelReply(t *testing.T) {
	needKernel(t)
	nothing := []byte{}
	for _, c := range []struct {
		name    string
		request []byte
		param   cm.ConnParam // of the kernel's program
		reply   []byte       // empty = siw closes without one; a Reply with R does not come from the program
		private []byte       // the private data that its program receives
	}{
		{"CRC", request(flagC|flagS, 2, word(4, 4)...), depth(4, 4), reply(flagC|flagS, 2, word(4, 4)...), nil},
		{"no CRC", request(flagS, 2, word(4, 4)...), depth(4, 4), reply(flagS, 2, word(4, 4)...), nil},
		{"private data", request(flagS, 2, word(4, 4, 9, 8, 7)...), depth(4, 4), reply(flagS, 2, word(4, 4)...),
			[]byte{9, 8, 7}}, {"it can more than is asked for", request(flagS, 2, word(4, 4)...), depth(16, 16),
			reply(flagS, 2, word(4, 4)...), nil},
		{"it is made to serve what is asked for", request(flagS, 2, word(16, 16)...), depth(2, 3),
			reply(flagS, 2, word(16, 3)...), nil},
		{"200 is cut to 128", request(flagS, 2, word(200, 200)...), depth(4, 128), reply(flagS, 2, word(128, 128)...),
			nil},
		{"not negotiated is taken for a number", request(flagS, 2, word(0x3fff, 0x3fff)...), depth(4, 128),
			reply(flagS, 2, word(128, 128)...), nil},
		{"revision 1", request(0, 1), depth(4, 4), reply(0, 1), nil},
		{"revision 1, CRC", request(flagC, 1, 1, 2), depth(4, 4), reply(flagC, 1), []byte{1, 2}},
		{"revision 1 with S", request(flagS, 1, word(4, 4)...), depth(4, 4), reply(flagS, 1), word(4, 4)},
		{"revision 0", request(flagC, 0), depth(4, 4), reply(flagC, 0), nil},
		{"reserved bits come back", request(flagS|0x0f, 2, word(4, 4)...), depth(4, 4),
			reply(flagS|0x0f, 2, word(4, 4)...), nil},
		{"R comes back", request(flagR|flagS, 2, word(4, 4)...), depth(4, 4), reply(flagR|flagS, 2, word(4, 4)...),
			nil},
		{"peer-to-peer, Send", request(flagS, 2, word(0xc004, 4)...), depth(4, 4),
			reply(flagS, 2, word(0x8004, 0x8004)...), nil},
		{"peer-to-peer, nothing", request(flagS, 2, word(0x8004, 4)...), depth(4, 4),
			reply(flagS, 2, word(0x8004, 0x8004)...), nil},
		{"peer-to-peer, Write", request(flagS, 2, word(0x8004, 0x8004)...), depth(4, 4),
			reply(flagS, 2, word(0x8004, 0x8004)...), nil},
		{"peer-to-peer, Write and Read", request(flagS, 2, word(0x8004, 0xc004)...), depth(4, 4),
			reply(flagS, 2, word(0x8004, 0x8004)...), nil},
		{"peer-to-peer, Read", request(flagS, 2, word(0x8004, 0x4004)...), depth(4, 4),
			reply(flagS, 2, word(0x8004, 0x4004)...), nil},
		{"first messages without peer-to-peer", request(flagS, 2, word(4, 0xc004)...), depth(4, 4),
			reply(flagS, 2, word(4, 4)...), nil},

		{"markers", request(flagM|flagS, 2, word(4, 4)...), depth(4, 4), reply(flagR|flagS, 2, word(0, 0)...), nothing},
		{"no enhanced word behind S", request(flagS, 2), depth(4, 4), reply(flagR|flagS, 2), nothing},
		{"half an enhanced word", request(flagS, 2, 0, 4), depth(4, 4), reply(flagR|flagS, 2), nothing},
		{"revision 3", request(flagS, 3, word(4, 4)...), depth(4, 4), nil, nothing},
		{"a Reply", reply(flagS, 2, word(4, 4)...), depth(4, 4), nil, nothing},
		{"257 bytes of private data", request(0, 2, make([]byte, 257)...), depth(4, 4), nil, nothing},
		{"something behind it", append(request(flagS, 2, word(4, 4)...), 0, 14, 0xc1, 0x40), depth(4, 4), nil, nothing},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := kernelSide(t, 4096)
			ln := k.listen(kernelHost)
			r := here.dial(t, ln.Addr().String())
			if bytes.Equal(c.private, nothing) && c.private != nil {
				r.write(c.request)
				if c.reply != nil {
					require.Equal(t, c.reply, r.frame())
				}
				r.gone()
				return
			}
			k.open()
			r.write(c.request)
			req, err := ln.Accept(soon(t))
			require.NoError(t, err)
			require.Equal(t, string(c.private), string(req.PrivateData()))
			accepted := make(chan error, 1)
			go func() {
				id, err := req.Accept(soon(t), k.qp, c.param)
				if err == nil {
					k.id = id
				}
				accepted <- err
			}()
			b := r.frame()
			require.Equal(t, c.reply, b)
			if len(b) > mpa.FrameLen && c.request[17] == mpa.Rev2 && b[mpa.FrameLen]&0x80 != 0 {
				// The first message of a peer-to-peer connection. If the peer closes the connection
				// before it, the kernel oopses. If it arrives too early, siw can miss it.
				time.Sleep(openTime / 10)
				if b[mpa.FrameLen+2]&0x80 != 0 {
					r.send(tagged(rdmap.OpWrite, true, 1, 0))
				} else {
					r.send(readRequest(1, rdmap.ReadRequest{SinkSTag: 1, SrcSTag: 1}))
					require.Equal(t, tagged(rdmap.OpReadResponse, true, 1, 0), r.read())
				}
			}
			require.NoError(t, result(t, "Accept", accepted))
			if b[17] != mpa.Rev2 {
				// The versions of DDP and RDMAP are always 1.
				r.crc = c.request[16]&flagC != 0
				r.send(k.reading(1, 0, 4))
				require.Equal(t, tagged(rdmap.OpReadResponse, true, 0x100, 0x2000, k.mem.Bytes()[:4]...), r.read())
			}
			r.conn.Close()
			require.NoError(t, k.id.Close())
		})
	}
	t.Run("in pieces", func(t *testing.T) {
		k := kernelSide(t, 4096)
		ln := k.listen(kernelHost)
		r := here.dial(t, ln.Addr().String())
		whole := request(flagS, 2, word(4, 4)...)
		for _, part := range [][]byte{whole[:7], whole[7:20], whole[20:]} {
			r.write(part)
			time.Sleep(20 * time.Millisecond)
		}
		req, err := ln.Accept(soon(t))
		require.NoError(t, err)
		require.NoError(t, req.Reject([]byte{5}))
		require.Equal(t, reply(flagR|flagS, 2, word(4, 4, 5)...), r.frame())
		r.gone()
	})
}
