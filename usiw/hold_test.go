// SPDX-License-Identifier: BSD-3-Clause

package usiw_test

import (
	"fmt"
	"io"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/iwarp/mpa"
	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// listenersOnly are Requests of peers that wait for our first message although they are the active
// side.
func listenersOnly() map[string]*mpa.Frame {
	plain := rawRequest()
	plain.Enhanced.PeerToPeer, plain.Enhanced.RTRWrite = false, false
	like := plain
	like.CRC = false
	return map[string]*mpa.Frame{"revision 1": {Rev: mpa.Rev1, CRC: true}, "revision 2": &plain,
		"as Linux's siw": &like}
}

// hold connects a peer that waits for our first message.
func hold(t *testing.T, cfg usiw.Config, frame *mpa.Frame) (*rawEnd, *rawPeer) {
	t.Helper()
	return newRawNIC(t, cfg).passive(rawOpts{frame: frame})
}

// TestHold: the passive side sends first. Posted requests wait for HoldTimeout and are then sent as
// usual. The first message from the peer is a response.
func TestHold(t *testing.T) {
	t.Parallel()
	for name, frame := range listenersOnly() {
		t.Run(name, func(t *testing.T) {
			e, p := hold(t, usiw.Config{HoldTimeout: time.Second}, frame)
			sink := e.mr(8, 0x100, verbs.AccessLocalWrite)
			sgl := []verbs.SGE{e.sge(sink)}
			data := e.region(e.pd, pattern(2000, 1), 0x8000, verbs.AccessLocalWrite)
			e.post(verbs.SendWR{ID: 1, Opcode: verbs.WRRDMAWrite, SGL: []verbs.SGE{e.sge(data)}, RKey: 5,
				RemoteAddr: 64}, verbs.SendWR{ID: 2, Opcode: verbs.WRRDMARead, SGL: sgl, RKey: 3, RemoteAddr: 8},
				verbs.SendWR{ID: 3, Opcode: verbs.WRAtomicFetchAndAdd, SGL: sgl, RKey: 1},
				verbs.SendWR{ID: 4, Opcode: verbs.WRSend, Flags: verbs.SendFence})
			p.none(50 * time.Millisecond)
			e.idle(e.scq)
			require.Equal(t, rawTagged(rdmap.OpWrite, 5, 64, pattern(2000, 1)), p.read())
			require.Equal(t, rawRead(1,
				rdmap.ReadRequest{SinkSTag: sink.LKey(), SinkTO: 0x100, Size: 8, SrcSTag: 3, SrcTO: 8}), p.read())
			r, err := rdmap.ParseAtomicRequest(p.read()[18:])
			require.NoError(t, err)
			p.none(20 * time.Millisecond) // the fence
			p.send(rawTagged(rdmap.OpReadResponse, sink.LKey(), 0x100, []byte("response")),
				rawAtomicResponse(1, r.ID, 7))
			require.Equal(t, rawSend(1, nil), p.read())
			for id := uint64(1); id <= 4; id++ {
				wc := e.sent()
				require.Equal(t, id, wc.ID)
				require.NoError(t, wc.Err())
			}
			// Requests posted later do not wait.
			e.post(verbs.SendWR{ID: 5, Opcode: verbs.WRSend})
			require.Equal(t, rawSend(2, nil), p.read())
			p.alive(e.mr(64, 0x1000, rawAccess))
		})
	}
}

// TestHoldPeerSpeaks: the peer's first FPDU ends the hold as soon as it is complete, and is
// answered.
func TestHoldPeerSpeaks(t *testing.T) {
	t.Parallel()
	for name, frame := range listenersOnly() {
		t.Run(name, func(t *testing.T) {
			e, p := hold(t, usiw.Config{HoldTimeout: time.Hour}, frame)
			mr := e.mr(64, 0x1000, rawAccess)
			e.post(verbs.SendWR{ID: 1, Opcode: verbs.WRSend})
			b := p.encode(rawRead(1, rdmap.ReadRequest{SinkSTag: 1, Size: 4, SrcSTag: mr.RKey(), SrcTO: mr.Addr()}))
			p.write(b[:len(b)-1])
			p.none(20 * time.Millisecond)
			p.write(b[len(b)-1:])
			require.Equal(t, rawTagged(rdmap.OpReadResponse, 1, 0, mr.Bytes()[:4]), p.read(), "answers go first")
			require.Equal(t, rawSend(1, nil), p.read())
			require.Equal(t, verbs.WCSuccess, e.sent().Status)
		})
	}
}

// TestHoldEnds ends the connection during the hold: waiting requests are flushed, and none is sent.
func TestHoldEnds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		end  func(e *rawEnd, p *rawPeer)
		want error
	}{
		{"FIN", func(_ *rawEnd, p *rawPeer) { p.shut(); p.eof() }, io.EOF},
		{"FIN in the first FPDU", func(_ *rawEnd, p *rawPeer) { p.write([]byte{0, 14, 0xc1}); p.shut(); p.eof() },
			io.ErrUnexpectedEOF},
		{"reset", func(_ *rawEnd, p *rawPeer) { p.reset() }, syscall.ECONNRESET},
		{"Disconnect", func(e *rawEnd, p *rawPeer) { require.NoError(e.t, e.id.Disconnect()); p.eof() },
			verbs.ErrClosed},
		{"Close", func(e *rawEnd, p *rawPeer) {
			closed := make(chan error, 1)
			go func() { closed <- e.id.Close() }()
			p.eof()
			p.close()
			require.NoError(e.t, result(e.t, "Close", closed))
		}, verbs.ErrClosed},
		{"a wrong CRC", func(_ *rawEnd, p *rawPeer) {
			b := rawFPDU(rawTagged(rdmap.OpWrite, 1, 0, nil), true)
			b[len(b)-1] ^= 1
			p.write(b)
			p.terminate(2, 0, 2, quoteNone, nil)
		}, terminated(2, 0, 2, false)},
		{"a Terminate", func(_ *rawEnd, p *rawPeer) {
			p.send(rawTerminate(rdmap.Terminate{Layer: 2, Code: 6}))
			p.eof()
		}, terminated(2, 0, 6, true)},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, p := hold(t, usiw.Config{HoldTimeout: time.Hour}, &mpa.Frame{Rev: mpa.Rev1, CRC: true})
			e.post(verbs.SendWR{ID: 1, Opcode: verbs.WRRDMARead}, verbs.SendWR{ID: 2, Opcode: verbs.WRSend})
			c.end(e, p)
			e.ended(c.want)
			for id := uint64(1); id <= 2; id++ {
				require.Equal(t, verbs.WC{ID: id, Status: verbs.WCWRFlushErr, QPNum: e.qp.Num()}, e.sent())
			}
			e.idle(e.scq)
		})
	}
}

// TestHoldPeerToPeer: HoldTimeout does not apply to a peer that promised to open the connection.
func TestHoldPeerToPeer(t *testing.T) {
	t.Parallel()
	n := newRawNIC(t, usiw.Config{HoldTimeout: time.Millisecond})
	e, ln := n.end(verbs.QPCap{}), n.listen()
	p := rawDial(t, ln.Addr())
	p.sendFrame(rawRequest())
	c := e.goAccept(soon(t), n.request(ln), depth(4, 4))
	t.Cleanup(p.close)
	require.True(t, p.frame().Enhanced.PeerToPeer)
	p.crc = true
	require.Eventually(t, func() bool { return e.qp.State() == verbs.QPStateRTS }, rawWait, time.Millisecond)
	e.post(verbs.SendWR{ID: 1, Opcode: verbs.WRSend})
	p.none(50 * time.Millisecond)
	require.Empty(t, c)
	p.send(rawTagged(rdmap.OpWrite, 1, 0, nil))
	require.Equal(t, rawSend(1, nil), p.read())
	require.NoError(t, result(t, "Accept", c).err)
}

// TestHoldOneProcessor: the hold also ends for a program that polls continuously on a single
// processor.
func TestHoldOneProcessor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	e, _ := hold(t, usiw.Config{}, &mpa.Frame{Rev: mpa.Rev1})
	e.post(verbs.SendWR{ID: 1, Opcode: verbs.WRSend})
	var wcs [1]verbs.WC
	for end := time.Now().Add(rawWait); ; {
		n, err := e.scq.Poll(wcs[:])
		require.NoError(t, err)
		if n == 1 {
			break
		}
		require.True(t, time.Now().Before(end), "still held")
	}
	require.NoError(t, wcs[0].Err())
}

// TestConfigPolicies: invalid policies and times are rejected, naming the field.
func TestConfigPolicies(t *testing.T) {
	for _, c := range []struct {
		cfg  usiw.Config
		says string
	}{
		{usiw.Config{CRC: usiw.Auto + 1}, "Config.CRC: Policy(4) is not Default, On, Off or Auto"},
		{usiw.Config{RTR: usiw.Auto}, "Config.RTR: auto is not Default, On or Off"},
		{usiw.Config{Markers: usiw.Auto}, "Config.Markers: auto is not Default, On or Off"},
		{usiw.Config{HoldTimeout: -1}, "Config.HoldTimeout: -1ns is not positive"},
	} {
		_, err := usiw.New(c.cfg)
		require.ErrorIs(t, err, verbs.ErrInvalid)
		require.ErrorContains(t, err, c.says)
	}
	for i, want := range []string{"default", "on", "off", "auto"} {
		require.Equal(t, want, fmt.Sprint(usiw.Policy(i)))
	}
}
