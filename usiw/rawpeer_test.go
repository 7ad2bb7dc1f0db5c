// SPDX-License-Identifier: BSD-3-Clause

package usiw_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/iwarp/ddp"
	"github.com/goverbs/goverbs/internal/iwarp/mpa"
	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// The wire tests connect a NIC, used through verbs and cm, to a raw peer: a plain TCP socket on
// which the test writes and reads startup frames and FPDUs byte by byte, as initiator or responder.

// rawWait bounds every wait for an event that must happen.
const rawWait = 10 * time.Second

// rawBulk bounds waits for large amounts of work.
const rawBulk = time.Minute

// rawAccess is all access rights that a region can have.
const rawAccess = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic

// soon returns a context for one wait.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), rawWait)
	t.Cleanup(cancel)
	return ctx
}

// within runs f and fails the test, with the stacks of all goroutines, if f has not returned after
// d. Time in which a busy machine did not run this process does not count: a late tick counts as
// one.
func within(t *testing.T, d time.Duration, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	const tick = 10 * time.Millisecond
	for range d / tick {
		select {
		case <-done:
			return
		case <-time.After(tick):
		}
	}
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	require.FailNow(t, "not within "+d.String()+": "+what, "%s", buf)
}

// result waits for the outcome of a call in another goroutine.
func result[T any](t *testing.T, what string, c <-chan T) (v T) {
	t.Helper()
	timer := time.NewTimer(rawWait)
	defer timer.Stop()
	select {
	case v = <-c:
	case <-timer.C:
		buf := make([]byte, 1<<20)
		buf = buf[:runtime.Stack(buf, true)]
		require.FailNow(t, "no result: "+what, "%s", buf)
	}
	return v
}

// rawNIC is a NIC with an open context and a protection domain.
type rawNIC struct {
	t   *testing.T
	nic *usiw.NIC
	ctx *verbs.Context
	pd  *verbs.PD
}

func newRawNIC(t *testing.T, cfg usiw.Config) *rawNIC {
	t.Helper()
	nic, err := usiw.New(cfg)
	require.NoError(t, err)
	n := &rawNIC{t: t, nic: nic}
	n.ctx, err = nic.Device().Open()
	require.NoError(t, err)
	t.Cleanup(func() {
		within(t, rawWait, "closing the NIC", func() {
			assert.NoError(t, n.ctx.CloseAll())
			assert.NoError(t, nic.Close())
		})
	})
	n.pd, err = n.ctx.AllocPD()
	require.NoError(t, err)
	return n
}

// as returns the same NIC for a subtest: new objects are closed when the subtest ends.
func (n *rawNIC) as(t *testing.T) *rawNIC {
	c := *n
	c.t = t
	return &c
}

// config is the cm.Config of the NIC.
func (n *rawNIC) config() cm.Config { return cm.Config{Context: n.ctx} }

// mr registers size bytes, all 0xa5, at address iova.
func (n *rawNIC) mr(size int, iova uint64, access verbs.AccessFlags) *verbs.MR {
	n.t.Helper()
	return n.region(n.pd, bytes.Repeat([]byte{0xa5}, size), iova, access)
}

// region registers memory that is initialized with content. It lies outside the Go heap, because
// the race detector cannot know that a raw peer's message precedes what the test does after it
// receives the response.
func (n *rawNIC) region(pd *verbs.PD, content []byte, iova uint64, access verbs.AccessFlags) *verbs.MR {
	n.t.Helper()
	mem, err := pd.AllocMR(len(content), 0)
	require.NoError(n.t, err)
	n.t.Cleanup(func() { assert.NoError(n.t, mem.Close()) })
	copy(mem.Bytes(), content)
	mr, err := pd.RegMRIova(mem.Bytes(), iova, access)
	require.NoError(n.t, err)
	n.t.Cleanup(func() { within(n.t, rawWait, "MR.Close", func() { assert.NoError(n.t, mr.Close()) }) })
	return mr
}

// listen opens a listener on a free port of the IPv4 loopback.
func (n *rawNIC) listen() *cm.Listener {
	n.t.Helper()
	ln, err := cm.Listen(soon(n.t), "127.0.0.1:0", n.config())
	require.NoError(n.t, err)
	n.t.Cleanup(func() { within(n.t, rawWait, "Listener.Close", func() { assert.NoError(n.t, ln.Close()) }) })
	return ln
}

// rawEnd is a QP of a NIC with its own CQs, and its connection.
type rawEnd struct {
	*rawNIC
	qp       *verbs.QP
	scq, rcq *verbs.CQ
	id       *cm.ID
	nextRecv uint64 // the ID of the last receive of recv
	flooded  uint64 // the ID of the next Send of flood
}

// end creates a QP in RESET. The zero QPCap selects the defaults.
func (n *rawNIC) end(c verbs.QPCap) *rawEnd { n.t.Helper(); return n.endOn(c, nil) }

// endOn is end with a given CQ for receives.
func (n *rawNIC) endOn(c verbs.QPCap, rcq *verbs.CQ) *rawEnd {
	n.t.Helper()
	e := &rawEnd{rawNIC: n, rcq: rcq}
	var err error
	e.scq, err = n.ctx.CreateCQ(verbs.CQConfig{CQE: max(c.MaxSendWR, verbs.DefaultSendWR) + 1})
	require.NoError(n.t, err)
	if rcq == nil {
		e.rcq, err = n.ctx.CreateCQ(verbs.CQConfig{CQE: max(c.MaxRecvWR, verbs.DefaultRecvWR) + 1})
		require.NoError(n.t, err)
	}
	e.qp, err = n.pd.CreateQP(verbs.QPConfig{SendCQ: e.scq, RecvCQ: e.rcq, Cap: c, SigAll: true})
	require.NoError(n.t, err)
	n.t.Cleanup(func() {
		within(n.t, rawWait, "closing a QP and its CQs", func() {
			assert.NoError(n.t, e.qp.Close())
			assert.NoError(n.t, e.scq.Close())
			assert.NoError(n.t, e.rcq.Close())
		})
	})
	return e
}

// accepted is the result of a goroutine in Accept or Connect.
type accepted struct {
	id  *cm.ID
	err error
}

// request waits for a peer's connection request.
func (n *rawNIC) request(ln *cm.Listener) *cm.Request {
	n.t.Helper()
	req, err := ln.Accept(soon(n.t))
	require.NoError(n.t, err)
	return req
}

// goAccept accepts a request in a goroutine. The ID, if there is one, is closed when the test ends.
func (e *rawEnd) goAccept(ctx context.Context, req *cm.Request, param cm.ConnParam) <-chan accepted {
	c := make(chan accepted, 1)
	done := make(chan struct{})
	var id *cm.ID
	e.t.Cleanup(func() {
		within(e.t, rawWait, "Accept and closing its ID", func() {
			<-done
			assert.NoError(e.t, id.Close())
		})
	})
	go func() {
		defer close(done)
		var err error
		id, err = req.Accept(ctx, e.qp, param)
		c <- accepted{id, err}
	}()
	return c
}

// goConnect connects to a raw listener in a goroutine. The ID is closed when the test ends.
func (e *rawEnd) goConnect(ctx context.Context, ln net.Listener, param cm.ConnParam) <-chan accepted {
	e.t.Helper()
	id, err := cm.Resolve(ctx, ln.Addr().String(), e.config())
	require.NoError(e.t, err)
	c := make(chan accepted, 1)
	done := make(chan struct{})
	e.t.Cleanup(func() {
		within(e.t, rawWait, "Connect and closing its ID", func() {
			assert.NoError(e.t, id.Close())
			<-done
		})
	})
	go func() {
		defer close(done)
		err := id.Connect(ctx, e.qp, param)
		c <- accepted{id, err}
	}()
	return c
}

// rawOpts describes a connection between a NIC and a raw peer.
type rawOpts struct {
	cap    verbs.QPCap
	rcq    *verbs.CQ     // for receives (nil = one of its own)
	param  cm.ConnParam  // of the NIC
	frame  *mpa.Frame    // of the raw peer (nil = rawRequest)
	told   *mpa.Frame    // receives the NIC's frame, if not nil
	before func(*rawEnd) // called while the QP is in INIT, to post receives
}

// rawRequest is the raw peer's usual frame: revision 2, CRC, RTR by Write, 16 Reads each way.
func rawRequest() mpa.Frame {
	return mpa.Frame{Rev: mpa.Rev2, CRC: true, HasEnhanced: true,
		Enhanced: mpa.Enhanced{PeerToPeer: true, RTRWrite: true, IRD: 16, ORD: 16}}
}

// passive makes a connection whose initiator is the raw peer.
func (n *rawNIC) passive(o rawOpts) (*rawEnd, *rawPeer) {
	n.t.Helper()
	e := n.endOn(o.cap, o.rcq)
	ln := n.listen()
	frame := rawRequest()
	if o.frame != nil {
		frame = *o.frame
	}
	p := rawDial(n.t, ln.Addr())
	p.sendFrame(frame)
	req := n.request(ln)
	require.NoError(n.t, req.BindQP(e.qp))
	if o.before != nil {
		o.before(e)
	}
	c := e.goAccept(soon(n.t), req, o.param)
	n.t.Cleanup(p.close)
	reply := p.frame()
	require.True(n.t, reply.Reply)
	require.False(n.t, reply.Reject)
	if o.told != nil {
		*o.told = reply
	}
	p.crc, p.markOut, p.markIn = frame.CRC || reply.CRC, reply.Markers, frame.Markers
	if frame.Enhanced.PeerToPeer {
		p.send(rawTagged(rdmap.OpWrite, 1, 0, nil))
	}
	r := result(n.t, "Accept", c)
	require.NoError(n.t, r.err)
	e.id = r.id
	return e, p
}

// active makes a connection whose initiator is the NIC. If the NIC asked for the peer-to-peer
// model, the RTR message has been read.
func (n *rawNIC) active(o rawOpts) (*rawEnd, *rawPeer) {
	n.t.Helper()
	e := n.endOn(o.cap, o.rcq)
	ln := rawListen(n.t)
	if o.before != nil {
		id, err := cm.Resolve(soon(n.t), ln.Addr().String(), n.config())
		require.NoError(n.t, err)
		require.NoError(n.t, id.BindQP(e.qp))
		require.NoError(n.t, id.Close())
		o.before(e)
	}
	c := e.goConnect(soon(n.t), ln, o.param)
	p := rawAccept(n.t, ln)
	req := p.frame()
	require.False(n.t, req.Reply)
	if o.told != nil {
		*o.told = req
	}
	reply := rawRequest()
	if o.frame != nil {
		reply = *o.frame
	}
	reply.Reply, reply.Rev, reply.HasEnhanced = true, req.Rev, req.HasEnhanced
	if !req.Enhanced.PeerToPeer {
		reply.Enhanced.PeerToPeer, reply.Enhanced.RTRWrite = false, false
	}
	p.sendFrame(reply)
	p.crc, p.markOut, p.markIn = req.CRC || reply.CRC, req.Markers, reply.Markers
	if req.Enhanced.PeerToPeer {
		require.Equal(n.t, rawTagged(rdmap.OpWrite, 1, 0, nil), p.read())
	}
	r := result(n.t, "Connect", c)
	require.NoError(n.t, r.err)
	e.id = r.id
	return e, p
}

// post queues send requests.
func (e *rawEnd) post(wrs ...verbs.SendWR) {
	e.t.Helper()
	n, err := e.qp.PostSend(wrs)
	require.NoError(e.t, err)
	require.Equal(e.t, len(wrs), n)
}

// recv posts one receive per size, each with separate memory, and returns the memory.
func (e *rawEnd) recv(sizes ...int) [][]byte {
	e.t.Helper()
	var bufs [][]byte
	for _, size := range sizes {
		var sgl []verbs.SGE
		var buf []byte
		if size > 0 {
			mr := e.mr(size, 0x5000, verbs.AccessLocalWrite)
			sgl, buf = []verbs.SGE{e.sge(mr)}, mr.Bytes()
		}
		e.nextRecv++
		n, err := e.qp.PostRecv([]verbs.RecvWR{{ID: e.nextRecv, SGL: sgl}})
		require.NoError(e.t, err)
		require.Equal(e.t, 1, n)
		bufs = append(bufs, buf)
	}
	return bufs
}

// sge returns an element that covers a whole region.
func (e *rawEnd) sge(mr *verbs.MR) verbs.SGE {
	e.t.Helper()
	s, err := mr.SGE(0, mr.Len())
	require.NoError(e.t, err)
	return s
}

// sent waits for the next completion of the send queue, received for the next of the receive queue.
func (e *rawEnd) sent() verbs.WC     { e.t.Helper(); return e.next("send", e.scq) }
func (e *rawEnd) received() verbs.WC { e.t.Helper(); return e.next("receive", e.rcq) }

func (e *rawEnd) next(what string, cq *verbs.CQ) verbs.WC {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), rawWait)
	defer cancel()
	var wcs [1]verbs.WC
	n, err := cq.Wait(ctx, wcs[:])
	require.NoError(e.t, err, "waiting for a %s completion", what)
	require.Equal(e.t, 1, n)
	require.Equal(e.t, e.qp.Num(), wcs[0].QPNum)
	return wcs[0]
}

// idle requires that the CQ holds no completion.
func (e *rawEnd) idle(cq *verbs.CQ) {
	e.t.Helper()
	var wcs [1]verbs.WC
	n, err := cq.Poll(wcs[:])
	require.NoError(e.t, err)
	require.Zero(e.t, n, "unexpected completion %+v", wcs[0])
}

// ended waits until the connection ends and checks what the NIC reports: the QP is in error, and
// the QP, the ID and an asynchronous event give want as the reason.
func (e *rawEnd) ended(want error) {
	e.t.Helper()
	select {
	case <-e.id.Done():
	case <-soon(e.t).Done():
		require.FailNow(e.t, "the connection has not ended")
	}
	require.Equal(e.t, verbs.QPStateErr, e.qp.State())
	require.ErrorIs(e.t, e.qp.Err(), want)
	require.ErrorIs(e.t, e.id.Err(), want)
}

// event waits for an asynchronous event of the QP; events of other objects are dropped.
func (e *rawEnd) event() verbs.AsyncEvent {
	e.t.Helper()
	ctx := soon(e.t)
	for {
		ev, err := e.ctx.WaitEvent(ctx)
		require.NoError(e.t, err)
		if ev.QP == e.qp {
			return ev
		}
	}
}

// terminated returns the error of a Terminate. Comparisons ignore the text and the quoted header.
func terminated(layer, typ, code uint8, remote bool) *verbs.TerminateError {
	return &verbs.TerminateError{Layer: layer, Type: typ, Code: code, Remote: remote}
}

// rawPeer is a TCP socket that speaks MPA, DDP and RDMAP by hand.
type rawPeer struct {
	t    *testing.T
	conn *net.TCPConn
	crc  bool // the FPDUs of both directions carry a CRC

	// Markers in what the peer sends and in what it receives, and the current positions in the two
	// streams.
	markOut, markIn bool
	out, in         uint64

	lives uint32 // calls of alive, which are the only Reads of this peer
}

// rawListen opens a TCP listener on a free port of the IPv4 loopback.
func rawListen(t *testing.T) *net.TCPListener {
	t.Helper()
	ln, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	t.Cleanup(func() { ln.Close() })
	return ln
}

// rawDial opens a TCP connection to a listener of the NIC.
func rawDial(t *testing.T, addr net.Addr) *rawPeer {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr.String(), rawWait)
	require.NoError(t, err)
	p := &rawPeer{t: t, conn: conn.(*net.TCPConn)}
	t.Cleanup(p.close)
	return p
}

// rawAccept accepts a TCP connection from the NIC.
func rawAccept(t *testing.T, ln *net.TCPListener) *rawPeer {
	t.Helper()
	require.NoError(t, ln.SetDeadline(time.Now().Add(rawWait)))
	conn, err := ln.AcceptTCP()
	require.NoError(t, err)
	p := &rawPeer{t: t, conn: conn}
	t.Cleanup(p.close)
	return p
}

// close closes the peer's socket. It may be called more than once.
func (p *rawPeer) close() { p.conn.Close() }

// reset closes the peer's socket with RST.
func (p *rawPeer) reset() {
	p.t.Helper()
	require.NoError(p.t, p.conn.SetLinger(0))
	require.NoError(p.t, p.conn.Close())
}

// shut ends the peer's sending direction with FIN.
func (p *rawPeer) shut() {
	p.t.Helper()
	require.NoError(p.t, p.conn.CloseWrite())
}

// write sends bytes.
func (p *rawPeer) write(b []byte) {
	p.t.Helper()
	require.NoError(p.t, p.conn.SetWriteDeadline(time.Now().Add(rawWait)))
	_, err := p.conn.Write(b)
	require.NoError(p.t, err)
}

// trickle sends bytes one at a time, each in its own segment.
func (p *rawPeer) trickle(b []byte) {
	p.t.Helper()
	for i := range b {
		p.write(b[i : i+1])
		if i%8 == 0 {
			runtime.Gosched()
		}
	}
}

// send sends each ULPDU in an FPDU, in one write.
func (p *rawPeer) send(ulpdus ...[]byte) {
	p.t.Helper()
	var b []byte
	for _, u := range ulpdus {
		b = append(b, p.encode(u)...)
	}
	p.write(b)
}

// encode returns the next FPDU of the peer's stream.
func (p *rawPeer) encode(ulpdu []byte) []byte {
	b := rawFPDU(ulpdu, p.crc)
	if p.markOut {
		b = mpa.AppendMarked(nil, p.out, b, p.crc)
	}
	p.out += uint64(len(b))
	return b
}

// sendFrame sends a startup frame.
func (p *rawPeer) sendFrame(f mpa.Frame) {
	p.t.Helper()
	b, err := f.Append(nil)
	require.NoError(p.t, err)
	p.write(b)
}

// frame reads a startup frame.
func (p *rawPeer) frame() mpa.Frame {
	p.t.Helper()
	require.NoError(p.t, p.conn.SetReadDeadline(time.Now().Add(rawWait)))
	f, err := mpa.ReadFrame(p.conn)
	require.NoError(p.t, err)
	return f
}

// bytes reads exactly n bytes.
func (p *rawPeer) bytes(n int) []byte {
	p.t.Helper()
	require.NoError(p.t, p.conn.SetReadDeadline(time.Now().Add(rawWait)))
	b := make([]byte, n)
	got, err := io.ReadFull(p.conn, b)
	require.NoError(p.t, err, "%d of %d bytes: % x", got, n, b[:got])
	return b
}

// readRaw reads one FPDU, checks its pad, its CRC and its markers, and returns it without the
// markers.
func (p *rawPeer) readRaw() []byte {
	p.t.Helper()
	prefix := 0
	if p.markIn {
		prefix = mpa.MarkedPrefix(p.in)
	}
	b := p.bytes(prefix + mpa.LengthLen)
	n := int(binary.BigEndian.Uint16(b[prefix:]))
	whole := mpa.FPDULen(n)
	if p.markIn {
		whole = mpa.MarkedLen(p.in, whole)
	}
	b = append(b, p.bytes(whole-len(b))...)
	if p.crc {
		require.True(p.t, mpa.CheckMarked(b), "CRC of % x", b[:min(len(b), 64)])
	} else {
		require.Equal(p.t, make([]byte, mpa.CRCLen), b[len(b)-mpa.CRCLen:], "CRC field without CRC")
	}
	if p.markIn {
		var err error
		b, err = mpa.StripMarked(nil, b, p.in)
		require.NoError(p.t, err)
	}
	p.in += uint64(whole)
	require.Zero(p.t, bytes.Trim(b[mpa.LengthLen+n:len(b)-mpa.CRCLen], "\x00"), "pad")
	return b
}

// read reads one FPDU and returns its ULPDU.
func (p *rawPeer) read() []byte {
	p.t.Helper()
	b := p.readRaw()
	return b[mpa.LengthLen:][:binary.BigEndian.Uint16(b)]
}

// none requires that nothing arrives for d and that the connection stays open.
func (p *rawPeer) none(d time.Duration) {
	p.t.Helper()
	require.NoError(p.t, p.conn.SetReadDeadline(time.Now().Add(d)))
	var b [64]byte
	n, err := p.conn.Read(b[:])
	var timeout net.Error
	require.True(p.t, errors.As(err, &timeout) && timeout.Timeout(), "got % x, %v", b[:n], err)
}

// eof requires that the NIC sends nothing but its FIN.
func (p *rawPeer) eof() {
	p.t.Helper()
	require.NoError(p.t, p.conn.SetReadDeadline(time.Now().Add(rawWait)))
	b, err := io.ReadAll(io.LimitReader(p.conn, 1<<10))
	require.NoError(p.t, err, "FIN wanted")
	require.Empty(p.t, b, "nothing but FIN wanted")
}

// gone requires that the NIC ends the connection with FIN or RST, without sending anything first.
func (p *rawPeer) gone() {
	p.t.Helper()
	require.NoError(p.t, p.conn.SetReadDeadline(time.Now().Add(rawWait)))
	b, err := io.ReadAll(io.LimitReader(p.conn, 1<<10))
	require.Empty(p.t, b, "nothing but the end wanted")
	var timeout net.Error
	require.False(p.t, errors.As(err, &timeout) && timeout.Timeout(), "the connection has not ended: %v", err)
}

// A rawQuote selects the headers that a Terminate must quote.
type rawQuote int

const (
	quoteNone rawQuote = iota // M, D and R are 0
	quoteDDP                  // M and D: segment length and DDP header
	quoteRead                 // M, D and R: also the Read Request header
)

// terminate reads a Terminate, which must have these codes and quote these headers of the offending
// ULPDU, and the FIN.
func (p *rawPeer) terminate(layer, typ, code uint8, quote rawQuote, fault []byte) {
	p.t.Helper()
	p.wantTerminate(p.read(), layer, typ, code, quote, fault)
	p.eof()
}

func (p *rawPeer) wantTerminate(u []byte, layer, typ, code uint8, quote rawQuote, fault []byte) {
	p.t.Helper()
	want := rdmap.Terminate{Layer: layer, Type: typ, Code: code}
	if quote != quoteNone {
		want.SegLenValid, want.SegLen = true, uint16(len(fault))
		n := ddp.UntaggedLen
		if ddp.IsTagged(fault[0]) {
			n = ddp.TaggedLen
		}
		want.DDPHeader = fault[:n]
		if quote == quoteRead {
			want.RDMAPHeader = fault[n : n+rdmap.ReadRequestLen]
		}
	}
	require.Equal(p.t, rawTerminate(want), u, "Terminate %d/%d/%02x wanted, got %s", layer, typ, code, describe(u))
}

// describe formats a ULPDU for a failure message.
func describe(u []byte) string {
	if len(u) < ddp.UntaggedLen || ddp.IsTagged(u[0]) {
		return "no Terminate"
	}
	if _, op := rdmap.ParseControl(u[1]); op != rdmap.OpTerminate {
		return op.String()
	}
	t, err := rdmap.ParseTerminate(u[ddp.UntaggedLen:])
	if err != nil {
		return err.Error()
	}
	return rdmap.TerminateText(t.Layer, t.Type, t.Code)
}

// rawFPDU returns an FPDU with a ULPDU of any length.
func rawFPDU(ulpdu []byte, crc bool) []byte {
	b := make([]byte, mpa.FPDULen(len(ulpdu)))
	binary.BigEndian.PutUint16(b, uint16(len(ulpdu)))
	copy(b[mpa.LengthLen:], ulpdu)
	if crc {
		mpa.PutCRC(b[len(b)-mpa.CRCLen:], mpa.CRC(0, b[:len(b)-mpa.CRCLen]))
	}
	return b
}

// rawSegment returns a ULPDU with an untagged header.
func rawSegment(op rdmap.Opcode, h ddp.Untagged, body []byte) []byte {
	h.ULP = rdmap.Control(op)
	b := make([]byte, ddp.UntaggedLen, ddp.UntaggedLen+len(body))
	h.Put(b)
	return append(b, body...)
}

// rawUntagged returns an untagged message of one segment.
func rawUntagged(op rdmap.Opcode, qn, msn uint32, body []byte) []byte {
	return rawSegment(op, ddp.Untagged{Last: true, QN: qn, MSN: msn}, body)
}

// rawTagged returns a tagged message of one segment.
func rawTagged(op rdmap.Opcode, stag uint32, to uint64, body []byte) []byte {
	return rawTaggedSegment(op, ddp.Tagged{Last: true, STag: stag, TO: to}, body)
}

func rawTaggedSegment(op rdmap.Opcode, h ddp.Tagged, body []byte) []byte {
	h.ULP = rdmap.Control(op)
	b := make([]byte, ddp.TaggedLen, ddp.TaggedLen+len(body))
	h.Put(b)
	return append(b, body...)
}

func rawSend(msn uint32, body []byte) []byte {
	return rawUntagged(rdmap.OpSend, ddp.QNSend, msn, body)
}

func rawImm(msn uint32, v uint64) []byte {
	return rawUntagged(rdmap.OpImmediate, ddp.QNSend, msn, binary.BigEndian.AppendUint64(nil, v))
}

func rawRead(msn uint32, r rdmap.ReadRequest) []byte {
	b := make([]byte, rdmap.ReadRequestLen)
	r.Put(b)
	return rawUntagged(rdmap.OpReadRequest, ddp.QNReadRequest, msn, b)
}

func rawAtomic(msn uint32, r rdmap.AtomicRequest) []byte {
	b := make([]byte, rdmap.AtomicRequestLen)
	r.Put(b)
	return rawUntagged(rdmap.OpAtomicRequest, ddp.QNReadRequest, msn, b)
}

func rawAtomicResponse(msn, id uint32, v uint64) []byte {
	b := make([]byte, rdmap.AtomicResponseLen)
	rdmap.AtomicResponse{ID: id, Value: v}.Put(b)
	return rawUntagged(rdmap.OpAtomicResponse, ddp.QNAtomicResponse, msn, b)
}

func rawTerminate(t rdmap.Terminate) []byte {
	return rawUntagged(rdmap.OpTerminate, ddp.QNTerminate, 1, t.Append(nil))
}

// pattern returns n bytes that vary with position and seed.
func pattern(n int, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i) ^ byte(i>>8) ^ byte(i>>16) ^ seed
	}
	return b
}

// alive verifies that a connection works both ways: the raw peer's Write is placed, and a Read
// returns it.
func (p *rawPeer) alive(mr *verbs.MR) {
	p.t.Helper()
	p.lives++
	want := pattern(mr.Len(), byte(p.lives))
	p.send(rawTagged(rdmap.OpWrite, mr.RKey(), mr.Addr(), want),
		rawRead(p.lives, rdmap.ReadRequest{SinkSTag: 0x77, SinkTO: 0x8000, Size: uint32(len(want)),
			SrcSTag: mr.RKey(), SrcTO: mr.Addr()}))
	require.Equal(p.t, rawTagged(rdmap.OpReadResponse, 0x77, 0x8000, want), p.read())
}

// untouched requires that memory from rawNIC.mr is unchanged.
func untouched(t *testing.T, mr *verbs.MR) {
	t.Helper()
	require.False(t, slices.ContainsFunc(mr.Bytes(), func(b byte) bool { return b != 0xa5 }), "memory was changed: % x",
		mr.Bytes()[:min(mr.Len(), 64)])
}
