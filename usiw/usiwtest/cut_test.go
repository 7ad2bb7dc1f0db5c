// SPDX-License-Identifier: BSD-3-Clause

package usiwtest_test

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/lifetime"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/usiw/usiwtest"
	"github.com/goverbs/goverbs/verbs"
)

// conversation is a connection from set-up to end, with a script of requests from both sides.
type conversation struct {
	t    *testing.T
	wire *usiwtest.Wire
	a, b *usiwtest.End

	connect, accept error // results of the set-up
	posted          bool  // both sides were connected and have posted their scripts
	alive           int   // number of sides that believe they are connected
}

// newEnd creates the objects of one side, except the connection.
func newEnd(t *testing.T, wire *usiwtest.Wire) *usiwtest.End {
	t.Helper()
	return newEndOf(t, usiw.Config{Network: wire})
}

func newEndOf(t *testing.T, cfg usiw.Config) *usiwtest.End {
	t.Helper()
	e := &usiwtest.End{}
	var err error
	e.NIC, err = usiw.New(cfg)
	require.NoError(t, err)
	e.Context, err = e.NIC.Device().Open()
	require.NoError(t, err)
	e.PD, err = e.Context.AllocPD()
	require.NoError(t, err)
	e.SendCQ, err = e.Context.CreateCQ(verbs.CQConfig{})
	require.NoError(t, err)
	e.RecvCQ, err = e.Context.CreateCQ(verbs.CQConfig{})
	require.NoError(t, err)
	e.QP, err = e.PD.CreateQP(verbs.QPConfig{SendCQ: e.SendCQ, RecvCQ: e.RecvCQ, SigAll: true})
	require.NoError(t, err)
	e.MR, err = e.PD.AllocMR(1024, usiwtest.AllAccess)
	require.NoError(t, err)
	return e
}

// script is what each side posts. Its own memory starts with text; 128 bytes for each Read or
// receive follow.
var script = struct {
	text  string
	sends []verbs.SendWR
	sizes []int // sizes of the data
	recvs int
}{
	text: "some text to be sent, written and read",
	sends: []verbs.SendWR{{Opcode: verbs.WRSend}, {Opcode: verbs.WRRDMAWriteWithImm, Imm: 9},
		{Opcode: verbs.WRRDMARead},
		{Opcode: verbs.WRAtomicFetchAndAdd, Add: 1}, {Opcode: verbs.WRImmData, Imm64: 8},
		{Opcode: verbs.WRSend, Flags: verbs.SendFence}},
	sizes: []int{13, 6, 21, 8, 0, 3},
	recvs: 4,
}

const (
	writeTo = 256
	readTo  = 384
	counter = 512 // the target of atomics
	result  = 520 // their sink
	recvTo  = 640
)

// post posts the script on one side.
func (c *conversation) post(e, peer *usiwtest.End) {
	wrs := slices.Clone(script.sends)
	for i := range wrs {
		wrs[i].ID, wrs[i].RKey = uint64(i+1), peer.MR.RKey()
		from, to := 0, 0
		switch wrs[i].Opcode {
		case verbs.WRRDMAWriteWithImm:
			to = writeTo
		case verbs.WRRDMARead:
			from = readTo
		case verbs.WRAtomicFetchAndAdd:
			from, to = result, counter
		}
		wrs[i].RemoteAddr = peer.MR.Addr() + uint64(to)
		if n := script.sizes[i]; n > 0 {
			wrs[i].SGL = sgl(c.t, e, from, n)
		}
		_, err := e.QP.PostSend(wrs[i : i+1])
		require.NoError(c.t, err)
	}
}

// run performs the conversation, which arrange cuts short at some point, and checks what both sides
// report. It returns how many bytes went each way.
func (c *conversation) run(arrange func(*usiwtest.Link)) (toListener, toDialer int64) {
	t := c.t
	began, before := time.Now(), len(lifetime.Live())
	c.wire = usiwtest.NewWire()
	c.wire.OnDial = arrange
	c.a, c.b = newEnd(t, c.wire), newEnd(t, c.wire)
	ln, err := cm.Listen(t.Context(), "b:1", cm.Config{Context: c.b.Context})
	require.NoError(t, err)
	c.a.ID, err = cm.Resolve(t.Context(), "b:1", cm.Config{Context: c.a.Context})
	require.NoError(t, err)
	accepted := make(chan error, 1)
	requested := false
	go func() {
		req, err := ln.Accept(t.Context())
		if err == nil {
			requested = true
			c.b.ID, err = req.Accept(t.Context(), c.b.QP, cm.ConnParam{})
		}
		accepted <- err
	}()
	require.NoError(t, c.a.ID.BindQP(c.a.QP))
	for i, e := range []*usiwtest.End{c.a, c.b} {
		copy(e.MR.Bytes(), script.text)
		if i == 0 {
			c.receives(e)
		}
	}
	c.connect = c.a.ID.Connect(t.Context(), c.a.QP, cm.ConnParam{})
	synctest.Wait()
	if c.connect != nil && !requested {
		require.Empty(t, accepted, "no request has arrived")
	}
	require.NoError(t, ln.Close())
	c.accept = <-accepted
	if c.connect == nil && c.accept == nil {
		c.receives(c.b)
		c.posted = true
		c.post(c.a, c.b)
		c.post(c.b, c.a)
	}
	synctest.Wait()
	require.Zero(t, time.Since(began), "everybody learns at once")

	link := c.wire.Links()[0]
	toListener, toDialer = link.ToListener.Written(), link.ToDialer.Written()
	c.check(c.a, c.b, c.connect)
	c.check(c.b, c.a, c.accept)
	for _, e := range []*usiwtest.End{c.a, c.b} {
		require.NoError(t, e.ID.Close())
		require.NoError(t, e.Context.CloseAll())
		require.NoError(t, e.NIC.Close())
	}
	require.Zero(t, time.Since(began), "nothing is left to wait for")
	require.Len(t, lifetime.Live(), before)
	return toListener, toDialer
}

// receives posts the receives of one side.
func (c *conversation) receives(e *usiwtest.End) {
	for i := range script.recvs {
		_, err := e.QP.PostRecv([]verbs.RecvWR{{ID: uint64(i + 1), SGL: sgl(c.t, e, recvTo+32*i, 32)}})
		require.NoError(c.t, err)
	}
}

// check requires that every request of a side has one completion: successful ones first, with the
// promised effects, then flushed ones. A side whose connection has ended must report why.
func (c *conversation) check(e, peer *usiwtest.End, setup error) {
	t := c.t
	sends, recvs := drain(t, e.SendCQ), drain(t, e.RecvCQ)
	if setup != nil {
		require.NotEqual(t, verbs.QPStateRTS, e.QP.State())
	}
	ended := e.QP.State() == verbs.QPStateErr
	if setup == nil && !ended {
		c.alive++
	}
	if setup == nil && ended {
		<-e.ID.Done()
		cause := e.QP.Err()
		require.True(t, cause == io.EOF || cause == io.ErrUnexpectedEOF || errors.Is(cause, syscall.ECONNRESET), "%v",
			cause)
	}
	if !c.posted {
		require.Empty(t, sends)
		return
	}
	good := func(wcs []verbs.WC, posted int) int {
		all := statuses(t, wcs)
		n := slices.Index(all, verbs.WCWRFlushErr)
		if n < 0 {
			n = len(all)
		}
		for _, s := range all[:n] {
			require.Equal(t, verbs.WCSuccess, s)
		}
		for _, s := range all[n:] {
			require.Equal(t, verbs.WCWRFlushErr, s)
		}
		if ended {
			require.Len(t, all, posted, "one completion for each request")
		}
		return n
	}
	done := good(sends, len(script.sends))
	if done > 2 {
		require.Equal(t, script.text[:21], string(e.MR.Bytes()[readTo:readTo+21]))
	}
	if done > 3 {
		require.Equal(t, make([]byte, 8), e.MR.Bytes()[result:result+8])
	}
	for i := range good(recvs, script.recvs) {
		switch i {
		case 0:
			require.Equal(t, script.text[:13], string(e.MR.Bytes()[recvTo:recvTo+13]))
		case 1:
			require.Equal(t, verbs.WCRecvRDMAWithImm, recvs[i].Opcode)
			require.Equal(t, script.text[:6], string(e.MR.Bytes()[writeTo:writeTo+6]))
		case 2:
			require.EqualValues(t, 8, recvs[i].Imm64)
		case 3:
			require.True(t, bytes.HasPrefix(e.MR.Bytes()[recvTo+96:], []byte(script.text[:3])))
		}
	}
	if !ended {
		require.Equal(t, verbs.QPStateRTS, e.QP.State())
		require.Equal(t, len(script.sends), done)
	}
}

// TestCutEverywhere ends the stream after each byte of the conversation, in either direction, with
// a reset and with a half-close.
func TestCutEverywhere(t *testing.T) {
	var bytes [2]int64
	bubble(t, func(t *testing.T) {
		c := &conversation{t: t}
		bytes[0], bytes[1] = c.run(nil)
		require.True(t, c.posted)
		require.Equal(t, 2, c.alive)
	})
	require.Greater(t, bytes[0], int64(300))
	require.Greater(t, bytes[1], int64(300))
	for _, kind := range []struct {
		name string
		at   func(*usiwtest.Direction, int64)
	}{{"reset", (*usiwtest.Direction).CutAt}, {"half-close", (*usiwtest.Direction).EndAt}} {
		for way, total := range bytes {
			t.Run(kind.name+[]string{" from A", " from B"}[way], func(t *testing.T) {
				for off := range total {
					bubble(t, func(t *testing.T) {
						defer func() {
							if t.Failed() {
								t.Logf("%s behind byte %d", kind.name, off)
							}
						}()
						c := &conversation{t: t}
						c.run(func(l *usiwtest.Link) {
							kind.at([]*usiwtest.Direction{l.ToListener, l.ToDialer}[way],
								off)
						})
						require.Zero(t, c.alive)
					})
				}
			})
		}
	}
}
