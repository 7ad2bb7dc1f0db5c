// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package interop

import (
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/testprogram"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// The protocol of librdmacm's ucmatose: the server sends ten messages of 100 bytes. When the client
// has received all of them, it sends ten messages too. Then the server disconnects. The server thus
// sends first.
const (
	cmatoseCount = 10
	cmatoseSize  = 100
)

// ucmatose is the start of the command line of librdmacm's program, which always uses the kernel's
// device here.
var ucmatose = []string{"stdbuf", "-oL", "ucmatose"}

// transferred requires that librdmacm's ucmatose completed the transfer and exits.
func transferred(t *testing.T, p *testprogram.Program) {
	t.Helper()
	p.Ends(t, 0)
	require.Contains(t, p.Out.String(), "data transfers complete\n")
	require.Contains(t, p.Out.String(), "return status 0\n")
}

// cmatoseReceives posts receives for the other side's messages.
func (s *side) cmatoseReceives() {
	s.t.Helper()
	for i := range cmatoseCount {
		s.recv(uint64(i), s.sgl(i*cmatoseSize, cmatoseSize))
	}
}

// cmatoseSends sends the messages of one side, and waits until they are sent.
func (s *side) cmatoseSends() {
	s.t.Helper()
	for range cmatoseCount {
		s.post(verbs.SendWR{Opcode: verbs.WRSend, SGL: s.sgl(1024, cmatoseSize)})
	}
	for range cmatoseCount {
		s.ok(s.sent(), verbs.WCSend)
	}
}

// cmatoseTakes waits for the other side's messages.
func (s *side) cmatoseTakes() {
	s.t.Helper()
	for i := range cmatoseCount {
		wc := s.ok(s.received(), verbs.WCRecv)
		require.EqualValues(s.t, i, wc.ID)
		require.EqualValues(s.t, cmatoseSize, wc.ByteLen)
	}
}

// cmatoseServes runs the server's part for one connection.
func (s *side) cmatoseServes(ln *cm.Listener) {
	s.t.Helper()
	req, err := ln.Accept(soon(s.t))
	require.NoError(s.t, err)
	s.open()
	require.NoError(s.t, req.BindQP(s.qp))
	s.cmatoseReceives()
	s.id, err = req.Accept(soon(s.t), s.qp, depth(1, 1))
	require.NoError(s.t, err)
	s.cmatoseSends()
	s.cmatoseTakes()
	require.NoError(s.t, s.id.Close())
}

// cmatoseAsks runs the client's part. It reports false if there is no listener yet.
func (s *side) cmatoseAsks(address string) bool {
	s.t.Helper()
	s.resolve(address)
	s.cmatoseReceives()
	if err := s.id.Connect(soon(s.t), s.qp, depth(1, 1)); errors.Is(err, syscall.ECONNREFUSED) {
		return false
	} else {
		require.NoError(s.t, err)
	}
	s.cmatoseTakes()
	s.cmatoseSends()
	s.ended()
	return true
}

// TestUcmatose: the user-space RNIC and the kernel's siw are client and server of ucmatose for each
// other. The first messages of the user-space RNIC's server must wait for the client, but not
// forever.
func TestUcmatose(t *testing.T) {
	needKernel(t)
	everywhere(t, func(t *testing.T, p place) {
		t.Run("kernel serves", func(t *testing.T) {
			port := nextPort()
			server := start(t, ucmatose, []string{"-b", kernelHost, "-p", port})
			server.Out.Await(t, "starting server") // and will listen soon
			address := net.JoinHostPort(kernelHost, port)
			for end := time.Now().Add(waitLimit); !newSide(t, p.nic(t, usiw.Config{}), 4096).cmatoseAsks(address); {
				require.True(t, time.Now().Before(end), "nobody listens")
				time.Sleep(100 * time.Millisecond)
			}
			transferred(t, server)
		})
		t.Run("user space serves", func(t *testing.T) {
			u := newSide(t, p.nic(t, usiw.Config{}), 4096)
			ln := u.listen(p.host)
			_, port, err := net.SplitHostPort(ln.Addr().String())
			require.NoError(t, err)
			client := start(t, ucmatose, []string{"-s", p.host, "-p", port})
			u.cmatoseServes(ln)
			transferred(t, client)
		})
		t.Run("user space serves goverbs", func(t *testing.T) {
			// Here the client's provider opens the connection.
			u := newSide(t, p.nic(t, usiw.Config{HoldTimeout: time.Hour}), 4096)
			ln := u.listen(p.host)
			k := kernelSide(t, 4096)
			asked := make(chan bool, 1)
			go func() { asked <- k.cmatoseAsks(ln.Addr().String()) }()
			u.cmatoseServes(ln)
			require.True(t, result(t, "the client", asked))
		})
	})
}
