// SPDX-License-Identifier: BSD-3-Clause

package usiw_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/iwarp/mpa"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// sizeTap is a Tap that records the length of every FPDU that a side sends.
type sizeTap struct {
	mu     sync.Mutex // guards the fields below
	frames int        // set-up bytes still expected
	head   []byte     // bytes of the FPDU's length field
	rest   int        // remaining bytes of the FPDU after its length field
	last   int        // the largest since the last call of largest
}

func (s *sizeTap) Packet(p *usiw.Packet) {
	if !p.Out {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range p.Data {
		for len(b) > 0 {
			skip := &s.frames
			if *skip == 0 {
				skip = &s.rest
			}
			if *skip > 0 {
				n := min(*skip, len(b))
				*skip -= n
				b = b[n:]
				continue
			}
			s.head, b = append(s.head, b[0]), b[1:]
			if len(s.head) == mpa.LengthLen {
				whole := mpa.FPDULen(int(binary.BigEndian.Uint16(s.head)))
				s.head, s.rest, s.last = s.head[:0], whole-mpa.LengthLen, max(s.last, whole)
			}
		}
	}
}

// largest returns the length of the largest FPDU since its last call.
func (s *sizeTap) largest() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.last
	s.last = 0
	return n
}

// TestSegmentSize changes the MTU between two connected hosts: the FPDU size follows in both
// directions, so that each FPDU still travels in its own segment (RFC 5044 section 4.5).
func TestSegmentSize(t *testing.T) {
	a, b := rdmatest.NewNamespace(t), rdmatest.NewNamespace(t)
	a.IP(t, "link", "add", "v0", "type", "veth", "peer", "name", "v1")
	a.IP(t, "link", "set", "v1", "netns", b.Path)
	a.IP(t, "addr", "add", "10.98.0.1/24", "dev", "v0")
	b.IP(t, "addr", "add", "10.98.0.2/24", "dev", "v1")
	mtu := func(n int) {
		// The receiver always accepts at least as much as is sent.
		first, second := a, b
		if n > 1500 {
			first, second = b, a
		}
		for _, s := range []*rdmatest.Namespace{first, second} {
			dev := map[*rdmatest.Namespace]string{a: "v0", b: "v1"}[s]
			s.IP(t, "link", "set", dev, "mtu", fmt.Sprint(n), "up")
		}
	}
	mtu(9000)

	tap := &sizeTap{frames: mpa.FrameLen + mpa.EnhancedLen}
	server, err := newScaleSideOf(usiw.Config{Network: b, CloseTimeout: time.Second})
	require.NoError(t, err)
	client, err := newScaleSideOf(usiw.Config{Network: a, CloseTimeout: time.Second, Tap: tap})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ln, err := cm.Listen(ctx, "10.98.0.2:7306", cm.Config{Device: server.nic.Device()})
	require.NoError(t, err)
	peer, err := server.qp()
	require.NoError(t, err)
	accepted := make(chan error, 1)
	var served *cm.ID
	go func() {
		r, err := ln.Accept(ctx)
		if err == nil {
			served, err = r.Accept(ctx, peer, cm.ConnParam{PrivateData: []byte("{}")})
		}
		accepted <- err
	}()
	c, err := client.connect(ctx, "10.98.0.2:7306")
	require.NoError(t, err)
	require.NoError(t, <-accepted)

	// write writes 4 MiB and returns the length of the largest FPDU in the last write.
	write := func() (n int) {
		sge, err := client.mr.SGE(0, 1<<20)
		require.NoError(t, err)
		for range 4 {
			tap.largest()
			client.run(t, c, []verbs.SendWR{{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled,
				SGL: []verbs.SGE{sge}, RemoteAddr: server.mr.Addr(), RKey: server.mr.RKey()}})
		}
		return tap.largest()
	}
	const headers = 20 + 20 + 12 // IPv4 and TCP headers with timestamps
	for _, n := range []int{9000, 1500, 600, 4000, 1500} {
		mtu(n)
		got := write()
		require.LessOrEqual(t, got, n-headers, "MTU %d", n)
		require.Greater(t, got, (n-headers)*9/10, "MTU %d", n)
	}
	require.NoError(t, errors.Join(c.id.Close(), c.qp.Close(), served.Close(), peer.Close(), ln.Close(), client.close(),
		server.close()))
}
