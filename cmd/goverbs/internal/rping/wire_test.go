// SPDX-License-Identifier: BSD-3-Clause

package rping

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/cmd/goverbs/internal/clitest"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// wirePeer plays the other role inside the test process, message by message.
type wirePeer struct {
	t    *testing.T
	ctx  context.Context
	dev  *verbs.Device
	id   *cm.ID
	pd   *verbs.PD
	cq   *verbs.CQ
	qp   *verbs.QP
	recv *verbs.MR
	send *verbs.MR
	data *verbs.MR // 128 bytes
}

func newWirePeer(t *testing.T) *wirePeer {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	nic, err := usiw.New(usiw.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, nic.Close()) })
	return &wirePeer{t: t, ctx: ctx, dev: nic.Device()}
}

// prepare creates the QP with a posted receive.
func (p *wirePeer) prepare(vctx *verbs.Context, bind func(*verbs.QP) error) {
	t, err := p.t, error(nil)
	p.pd, err = vctx.AllocPD()
	require.NoError(t, err)
	p.cq, err = vctx.CreateCQ(verbs.CQConfig{})
	require.NoError(t, err)
	p.qp, err = p.pd.CreateQP(verbs.QPConfig{SendCQ: p.cq, RecvCQ: p.cq})
	require.NoError(t, err)
	p.recv, err = p.pd.AllocMR(64, verbs.AccessLocalWrite)
	require.NoError(t, err)
	p.send, err = p.pd.AllocMR(64, 0)
	require.NoError(t, err)
	p.data, err = p.pd.AllocMR(128, verbs.AccessLocalWrite|verbs.AccessRemoteRead|verbs.AccessRemoteWrite)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, p.id.Close())
		require.NoError(t, p.qp.Close())
		for _, c := range []io.Closer{p.recv, p.send, p.data, p.cq, p.pd} {
			require.NoError(t, c.Close())
		}
	})
	require.NoError(t, bind(p.qp))
	p.postRecv()
}

func (p *wirePeer) postRecv() {
	sge, err := p.recv.SGE(0, p.recv.Len())
	require.NoError(p.t, err)
	_, err = p.qp.PostRecv([]verbs.RecvWR{{SGL: []verbs.SGE{sge}}})
	require.NoError(p.t, err)
}

// completion waits for the next completion with opcode op.
func (p *wirePeer) completion(op verbs.WCOpcode) verbs.WC {
	p.t.Helper()
	for {
		var wcs [1]verbs.WC
		_, err := p.cq.Wait(p.ctx, wcs[:])
		require.NoError(p.t, err)
		require.Equal(p.t, verbs.WCSuccess, wcs[0].Status, "%v", p.qp.Err())
		if wcs[0].Opcode == op {
			return wcs[0]
		}
		require.Equal(p.t, verbs.WCSend, wcs[0].Opcode)
	}
}

// message waits for a message and returns it.
func (p *wirePeer) message() []byte {
	p.t.Helper()
	wc := p.completion(verbs.WCRecv)
	msg := bytes.Clone(p.recv.Bytes()[:wc.ByteLen])
	p.postRecv()
	return msg
}

func (p *wirePeer) post(op verbs.WROpcode, mr *verbs.MR, n int, addr uint64, rkey uint32) {
	sge, err := mr.SGE(0, n)
	require.NoError(p.t, err)
	_, err = p.qp.PostSend([]verbs.SendWR{{Opcode: op, Flags: verbs.SendSignaled, SGL: []verbs.SGE{sge},
		RemoteAddr: addr, RKey: rkey}})
	require.NoError(p.t, err)
}

func (p *wirePeer) sendMessage(msg []byte) {
	copy(p.send.Bytes(), msg)
	p.post(verbs.WRSend, p.send, len(msg), 0, 0)
}

// where returns the message that locates the first size bytes of data.
func (p *wirePeer) where(size uint32) []byte {
	b := binary.BigEndian.AppendUint64(nil, p.data.Addr())
	b = binary.BigEndian.AppendUint32(b, p.data.RKey())
	return binary.BigEndian.AppendUint32(b, size)
}

// connect connects as a client to a server of the program.
func (p *wirePeer) connect(port string) {
	t, err := p.t, error(nil)
	p.id, err = cm.Resolve(p.ctx, "127.0.0.1:"+port, cm.Config{Device: p.dev})
	require.NoError(t, err)
	p.prepare(p.id.Context(), p.id.BindQP)
	require.NoError(t, p.id.Connect(p.ctx, p.qp, cm.ConnParam{InitiatorDepth: 4, ResponderResources: 4}))
	require.Empty(t, p.id.PrivateData())
	ord, _ := p.id.Depths()
	require.Equal(t, 1, ord, "the server answers one Read at a time")
}

// fill writes a NUL-terminated string into data, and marks the bytes after it.
func (p *wirePeer) fill(s string) {
	b := p.data.Bytes()
	n := copy(b, s)
	for i := range b[n:] {
		b[n+i] = 0xee
	}
}

var goAhead = make([]byte, 16)

func TestRPingServerWire(t *testing.T) {
	s, port := rpingServer(t, "-v", "-S100")
	p := newWirePeer(t)
	p.connect(port)
	for _, c := range []struct {
		text string // in the buffer of the ping
		size uint32
		pong int // bytes in the reply
	}{
		{"one\x00", 100, 4},
		{"\x1b[2J\nserver\xff\u00e9\x00", 100, 15},
		{"\x00", 1, 1},
		{"until here\x00not this", 50, 11},
		{"no end", 6, 6},
		{"longer than told\x00", 6, 6},
	} {
		p.fill(c.text)
		p.sendMessage(p.where(c.size))
		require.Equal(t, goAhead, p.message())
		p.fill("")
		p.sendMessage(p.where(100))
		require.Equal(t, goAhead, p.message())
		got := p.data.Bytes()
		require.Equal(t, c.text[:c.pong], string(got[:c.pong]))
		require.Equal(t, bytes.Repeat([]byte{0xee}, len(got)-c.pong), got[c.pong:])
	}
	require.NoError(t, p.id.Disconnect())
	r := s.End(t)
	require.Equal(t, clitest.Done, r.Code, r.Stderr)
	require.Equal(t, serverGone, r.Stderr)
	require.Equal(t, "server ping data: one\nserver ping data: \\u001b[2J\\u000aserver\\xffé\nserver ping data: \n"+
		"server ping data: until here\nserver ping data: no end\nserver ping data: longer\n",
		dataLines("server ping data: ", r.Stdout))
}

// A client's protocol violation ends its connection and is reported.
func TestRPingServerRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		play   func(p *wirePeer)
		stderr string
	}{
		{"no ping", func(p *wirePeer) {}, serverGone + "goverbs rping: the peer disconnected before its first ping\n"},
		{"short message", func(p *wirePeer) { p.sendMessage(p.where(64)[:15]); p.gone() },
			"Received bogus data, size 15\ngoverbs rping: ping 0: received a message of 15 bytes, not 16, waiting for RDMA_READ_ADV\n"},
		{"empty message", func(p *wirePeer) { p.sendMessage(nil); p.gone() },
			"Received bogus data, size 0\ngoverbs rping: ping 0: received a message of 0 bytes, not 16, waiting for RDMA_READ_ADV\n"},
		{"no data", func(p *wirePeer) { p.sendMessage(p.where(0)); p.gone() },
			"goverbs rping: ping 0: the client has 0 bytes, the server room for 1 to 64 (-S)\n"},
		{"too many data", func(p *wirePeer) { p.sendMessage(p.where(1<<32 - 1)); p.gone() },
			"goverbs rping: ping 0: the client has 4294967295 bytes, the server room for 1 to 64 (-S)\n"},
		{"unknown key", func(p *wirePeer) {
			b := p.where(64)
			b[8] ^= 1
			p.sendMessage(b)
			p.gone()
		}, "cq completion failed status 10\nwait for RDMA_READ_COMPLETE state 11\n"},
		{"wrong data", func(p *wirePeer) { p.fill(pingData(1, 64) + "\x00"); p.sendMessage(p.where(64)); p.gone() },
			"data mismatch!\ngoverbs rping: ping 0: not the data that were expected: first in byte 10\n"},
		{"second place too small", func(p *wirePeer) {
			p.fill(pingData(0, 64) + "\x00")
			p.sendMessage(p.where(64))
			require.Equal(p.t, goAhead, p.message())
			p.sendMessage(p.where(63))
			p.gone()
		}, "goverbs rping: ping 0: the client has room for 63 bytes of a pong of 64\n"},
		{"disconnected within a ping", func(p *wirePeer) {
			p.fill(pingData(0, 64) + "\x00")
			p.sendMessage(p.where(64))
			require.Equal(p.t, goAhead, p.message())
		}, "server DISCONNECT EVENT...\nwait for RDMA_WRITE_ADV state 10\ngoverbs rping: ping 0: waiting for RDMA_WRITE_ADV: the peer disconnected\n"},
		{"message while data are read", func(p *wirePeer) {
			p.fill(pingData(0, 64) + "\x00")
			p.sendMessage(p.where(64))
			require.Equal(p.t, goAhead, p.message())
			p.sendMessage(p.where(64))
			require.Equal(p.t, goAhead, p.message())
			require.Equal(p.t, pingData(0, 64)+"\x00", string(p.data.Bytes()[:64]))
			p.fill(pingData(1, 64) + "\x00")
			copy(p.send.Bytes(), p.where(64))
			sge, err := p.send.SGE(0, 16)
			require.NoError(p.t, err)
			wr := verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{sge}}
			_, err = p.qp.PostSend([]verbs.SendWR{wr, wr})
			require.NoError(p.t, err)
			p.gone()
		}, "wait for RDMA_READ_COMPLETE state 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, port := rpingServer(t, "-V")
			p := newWirePeer(t)
			p.connect(port)
			c.play(p)
			require.NoError(t, p.id.Disconnect())
			r := s.End(t)
			require.Equal(t, clitest.Failed, r.Code)
			require.Contains(t, r.Stderr, c.stderr)
		})
	}
}

// gone waits until the other side closes the connection.
func (p *wirePeer) gone() {
	select {
	case <-p.id.Done():
	case <-p.ctx.Done():
		require.Fail(p.t, "the connection was not ended")
	}
}

func TestRPingClientWire(t *testing.T) {
	for _, c := range []struct {
		name           string
		args           []string
		pong           string // "" for what was read
		answer         []byte
		code           int
		stdout, stderr string
	}{
		{"right data", []string{"-vV"}, "", goAhead, clitest.Done, pingLines("ping data: ", 2, 64), clientDone},
		{"wrong data", []string{"-vV"}, "nothing\x00", goAhead, clitest.Failed, "",
			"data mismatch!\ngoverbs rping: ping 0: not the data that were expected: first in byte 0\n"},
		{"wrong data that nobody looks at", []string{"-v"}, "nothing\x00", goAhead, clitest.Done,
			"ping data: nothing\nping data: nothing\n", clientDone},
		{"short answer", []string{"-vV"}, "", goAhead[:15], clitest.Failed, "",
			"Received bogus data, size 15\ngoverbs rping: ping 0: received a message of 15 bytes, not 16, waiting for RDMA_WRITE_ADV\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newWirePeer(t)
			ln, err := cm.Listen(p.ctx, "127.0.0.1:0", cm.Config{Device: p.dev})
			require.NoError(t, err)
			defer ln.Close()
			_, port, err := net.SplitHostPort(ln.Addr().String())
			require.NoError(t, err)
			client := clitest.Start(t,
				append([]string{"rping", "-c", "-C2", "-a", "127.0.0.1", "-p", port}, c.args...)...)
			req, err := ln.Accept(p.ctx)
			require.NoError(t, err)
			require.Empty(t, req.PrivateData())
			ord, ird := req.Depths()
			require.Equal(t, [2]int{1, 1}, [2]int{ord, ird})
			p.prepare(req.Context(), req.BindQP)
			p.id, err = req.Accept(p.ctx, p.qp, cm.ConnParam{})
			require.NoError(t, err)
			for n := range 2 {
				source := p.message()
				require.Len(t, source, 16)
				addr, rkey := binary.BigEndian.Uint64(source), binary.BigEndian.Uint32(source[8:])
				require.Equal(t, uint32(64), binary.BigEndian.Uint32(source[12:]))
				p.post(verbs.WRRDMARead, p.data, 64, addr, rkey)
				p.completion(verbs.WCRDMARead)
				require.Equal(t, pingData(n, 64)+"\x00", string(p.data.Bytes()[:64]))
				p.sendMessage(c.answer)
				if len(c.answer) != 16 {
					break
				}
				sink := p.message()
				require.Len(t, sink, 16)
				require.Equal(t, uint32(64), binary.BigEndian.Uint32(sink[12:]))
				require.NotEqual(t, source[:8], sink[:8], "source and sink are two buffers")
				pong := 64
				if c.pong != "" {
					pong = copy(p.data.Bytes(), c.pong)
				}
				p.post(verbs.WRRDMAWrite, p.data, pong, binary.BigEndian.Uint64(sink),
					binary.BigEndian.Uint32(sink[8:]))
				p.completion(verbs.WCRDMAWrite)
				p.sendMessage(goAhead)
				if c.code != clitest.Done {
					break
				}
			}
			p.gone()
			r := client.End(t)
			if c.code == clitest.Done {
				r.Stdout = pinged(t, r.Stdout, 2)
			}
			require.Equal(t, clitest.Outcome{Stdout: c.stdout, Stderr: c.stderr, Code: c.code, Took: r.Took}, r)
		})
	}
}

func TestRPingRejected(t *testing.T) {
	p := newWirePeer(t)
	ln, err := cm.Listen(p.ctx, "127.0.0.1:0", cm.Config{Device: p.dev})
	require.NoError(t, err)
	defer ln.Close()
	_, port, err := net.SplitHostPort(ln.Addr().String())
	require.NoError(t, err)
	client := clitest.Start(t, "rping", "-c", "-a", "127.0.0.1", "-p", port)
	req, err := ln.Accept(p.ctx)
	require.NoError(t, err)
	require.NoError(t, req.Reject(nil))
	r := client.End(t)
	require.Equal(t, clitest.Failed, r.Code)
	require.Contains(t, r.Stderr, "cma event RDMA_CM_EVENT_REJECTED, error -")
	require.Contains(t, r.Stderr, "connection rejected by the peer")
}

func TestConnectEvent(t *testing.T) {
	for _, c := range []struct {
		err       error
		transport verbs.Transport
		event     cm.Event
		status    int
	}{
		{&cm.RejectedError{}, verbs.TransportIWARP, cm.EventRejected, -int(syscall.ECONNREFUSED)},
		{&cm.RejectedError{}, verbs.TransportIB, cm.EventRejected, 28},
		{&cm.EventError{Event: cm.EventRejected, Status: 8, Err: syscall.ECONNREFUSED}, verbs.TransportIB,
			cm.EventRejected, 8}, {&cm.EventError{Event: cm.EventUnreachable, Status: -110, Err: syscall.ETIMEDOUT},
			verbs.TransportIB, cm.EventUnreachable, -110},
		{fmt.Errorf("dial: %w", syscall.ECONNRESET), verbs.TransportIWARP, cm.EventRejected, -int(syscall.ECONNRESET)},
		{&cm.OpError{Op: "Connect", Err: cm.ErrSetupTimeout}, verbs.TransportIWARP, cm.EventUnreachable,
			-int(syscall.ETIMEDOUT)},
		{syscall.EADDRNOTAVAIL, verbs.TransportIWARP, cm.EventConnectError, -int(syscall.EADDRNOTAVAIL)},
	} {
		event, status := connectEvent(&cm.OpError{Op: "Connect", Err: c.err}, c.transport)
		require.Equal(t, c.event, event, "%v", c.err)
		require.Equal(t, c.status, status, "%v", c.err)
	}
}

// TestRPingCRC: the MPA Request of a connection asks for a CRC if configured (RFC 5044 section
// 7.1.1).
func TestRPingCRC(t *testing.T) {
	const crc = 0x40
	for _, c := range []struct {
		options []string
		want    byte
	}{{nil, 0}, {[]string{"--crc", "on"}, crc}, {[]string{"--crc=auto"}, 0}, {[]string{"--crc", "off"}, 0},
		{[]string{"--no-crc"}, 0}} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		_, port, err := net.SplitHostPort(ln.Addr().String())
		require.NoError(t, err)
		flags := make(chan byte, 1)
		go func() {
			defer ln.Close()
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			request := make([]byte, 20)
			if _, err := io.ReadFull(conn, request); err == nil {
				flags <- request[16]
			}
		}()
		r := clitest.Start(t, append([]string{"rping", "-c", "-a", "127.0.0.1", "-p", port}, c.options...)...).End(t)
		require.NotEqual(t, clitest.Done, r.Code)
		require.Equal(t, c.want, <-flags&crc, "%v", c.options)
	}
}
