// SPDX-License-Identifier: BSD-3-Clause

package usiw_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/iwarp/mpa"
	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/internal/lifetime"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/usiw/usiwtest"
	"github.com/goverbs/goverbs/verbs"
)

// wirePeer is the test's end of a connection on an in-memory wire. It is used in testing/synctest
// bubbles, where a wait that never ends fails the test.
type wirePeer struct {
	t    *testing.T
	conn net.Conn
}

// wirePassive connects the test to a listening NIC.
func wirePassive(n *rawNIC, w *usiwtest.Wire) (*rawEnd, *wirePeer) {
	n.t.Helper()
	e := n.end(verbs.QPCap{})
	ln := n.listen()
	conn, err := w.DialContext(n.t.Context(), "tcp", ln.Addr().String())
	require.NoError(n.t, err)
	p := &wirePeer{n.t, conn}
	n.t.Cleanup(p.close)
	f := rawRequest()
	b, err := f.Append(nil)
	require.NoError(n.t, err)
	p.write(b)
	c := e.goAccept(n.t.Context(), n.request(ln), cm.ConnParam{})
	_, err = mpa.ReadFrame(conn)
	require.NoError(n.t, err)
	p.send(rawTagged(rdmap.OpWrite, 1, 0, nil))
	r := <-c
	require.NoError(n.t, r.err)
	e.id = r.id
	return e, p
}

func (p *wirePeer) close() { p.conn.Close() }

func (p *wirePeer) write(b []byte) {
	p.t.Helper()
	_, err := p.conn.Write(b)
	require.NoError(p.t, err)
}

// send sends each ULPDU in an FPDU, in one write.
func (p *wirePeer) send(ulpdus ...[]byte) {
	p.t.Helper()
	var b []byte
	for _, u := range ulpdus {
		b = append(b, rawFPDU(u, true)...)
	}
	p.write(b)
}

// read reads one FPDU and returns its ULPDU.
func (p *wirePeer) read() []byte {
	p.t.Helper()
	b := make([]byte, mpa.LengthLen)
	_, err := io.ReadFull(p.conn, b)
	require.NoError(p.t, err)
	n := int(binary.BigEndian.Uint16(b))
	b = append(b, make([]byte, mpa.FPDULen(n)-mpa.LengthLen)...)
	_, err = io.ReadFull(p.conn, b[mpa.LengthLen:])
	require.NoError(p.t, err)
	require.True(p.t, mpa.CheckMarked(b))
	return b[mpa.LengthLen:][:n]
}

// FuzzSetup sends a NIC arbitrary bytes in place of the other side's frame and what follows it. The
// NIC is the passive side if active is false. Whatever the bytes, set-up ends in time and leaves
// nothing behind. split is how many bytes arrive at once.
func FuzzSetup(f *testing.F) {
	for _, reply := range []bool{false, true} {
		for _, frame := range []mpa.Frame{rawRequest(), {Rev: 1},
			{Rev: 1, CRC: true, Markers: true, PrivateData: []byte("data")},
			{Rev: 2, HasEnhanced: true, CRC: true, Enhanced: mpa.Enhanced{IRD: 3, ORD: mpa.NoNegotiate}},
			{Rev: 2, HasEnhanced: true,
				Enhanced: mpa.Enhanced{PeerToPeer: true, RTRRead: true, RTRSend: true, IRD: 3, ORD: 1}}} {
			frame.Reply = reply
			b, err := frame.Append(nil)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(reply, uint8(0), b)
			f.Add(reply, uint8(1), append(b, rawFPDU(rawTagged(rdmap.OpWrite, 1, 0, nil), true)...))
			f.Add(reply, uint8(0), append(b, rawFPDU(rawSend(1, nil), true)...))
			frame.Reject = reply
			if b, err = frame.Append(nil); err != nil {
				f.Fatal(err)
			}
			f.Add(reply, uint8(7), b[:len(b)-1])
			f.Add(reply, uint8(0), b)
		}
	}
	f.Fuzz(func(t *testing.T, active bool, split uint8, b []byte) {
		before := len(lifetime.Live())
		synctest.Test(t, func(t *testing.T) { fuzzSetup(t, active, split, b) })
		require.Len(t, lifetime.Live(), before)
	})
}

func fuzzSetup(t *testing.T, active bool, split uint8, b []byte) {
	w := usiwtest.NewWire()
	w.OnDial = func(l *usiwtest.Link) {
		l.ToListener.Split(int(split))
		l.ToDialer.Split(int(split))
	}
	n := newRawNIC(t, usiw.Config{Network: w, RTRMessages: usiw.RTRWrite | usiw.RTRRead | usiw.RTRSend})
	e := n.end(verbs.QPCap{})
	began := time.Now()
	var done <-chan accepted
	var peer net.Conn
	if active {
		ln, err := w.Listen(t.Context(), "tcp", "peer:1")
		require.NoError(t, err)
		defer ln.Close()
		done = e.goConnect(t.Context(), ln, cm.ConnParam{})
		peer, err = ln.Accept()
		require.NoError(t, err)
	} else {
		ln := n.listen()
		var err error
		peer, err = w.DialContext(t.Context(), "tcp", ln.Addr().String())
		require.NoError(t, err)
		_, _ = peer.Write(b)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
		if req, err := ln.Accept(ctx); err == nil {
			done = e.goAccept(t.Context(), req, cm.ConnParam{})
		}
		cancel()
	}
	t.Cleanup(func() { peer.Close() })
	go func() { _, _ = io.Copy(io.Discard, peer) }()
	if active {
		_, _ = peer.Write(b)
	}
	if done != nil {
		r := <-done
		require.LessOrEqual(t, time.Since(began), 10*time.Second)
		require.Equal(t, r.err == nil, r.id != nil && r.id.LocalAddr() != nil)
	}
	time.Sleep(time.Minute)
	require.NoError(t, peer.Close())
}
