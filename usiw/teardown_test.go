// SPDX-License-Identifier: BSD-3-Clause

package usiw_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/iwarp/ddp"
	"github.com/goverbs/goverbs/internal/iwarp/mpa"
	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// finished waits until the connection has ended.
func (e *rawEnd) finished() {
	e.t.Helper()
	select {
	case <-e.id.Done():
	case <-soon(e.t).Done():
		require.FailNow(e.t, "the connection has not ended")
	}
	require.Equal(e.t, verbs.QPStateErr, e.qp.State())
}

// large registers memory for large messages.
func (e *rawEnd) large(size int) *verbs.MR {
	e.t.Helper()
	mr, err := e.pd.AllocMR(size, rawAccess)
	require.NoError(e.t, err)
	copy(mr.Bytes(), pattern(min(size, 1<<16), 0x5a))
	return mr
}

// flood posts up to count Sends of a whole region, as many as the queue accepts, and returns how
// many. Their IDs continue from call to call.
func (e *rawEnd) flood(mr *verbs.MR, count int) int {
	e.t.Helper()
	for i := range count {
		began := time.Now()
		_, err := e.qp.PostSend([]verbs.SendWR{{ID: e.flooded, Opcode: verbs.WRSend, SGL: []verbs.SGE{e.sge(mr)}}})
		require.Less(e.t, time.Since(began), rawWait, "PostSend blocks")
		if errors.Is(err, verbs.ErrQueueFull) {
			return i
		}
		require.NoError(e.t, err)
		e.flooded++
	}
	return count
}

// sendsDone collects count completions of Sends in order, and returns how many succeeded; the rest
// were flushed.
func (e *rawEnd) sendsDone(count int) (succeeded int) {
	e.t.Helper()
	for i := range count {
		wc := e.sent()
		require.EqualValues(e.t, i, wc.ID)
		if wc.Status == verbs.WCSuccess {
			require.Equal(e.t, i, succeeded, "a success behind a failure")
			succeeded++
			continue
		}
		require.Equal(e.t, verbs.WCWRFlushErr, wc.Status)
	}
	return succeeded
}

// sends reads whole FPDUs of Sends of size bytes up to the FIN and returns how many messages were
// complete. The stream must end after a whole FPDU.
func (p *rawPeer) sends(content []byte) (whole int) {
	p.t.Helper()
	got := 0
	for msn := uint32(1); ; {
		require.NoError(p.t, p.conn.SetReadDeadline(time.Now().Add(rawWait)))
		var length [mpa.LengthLen]byte
		if _, err := io.ReadFull(p.conn, length[:]); err != nil {
			require.Equal(p.t, io.EOF, err, "after %d messages and %d bytes", whole, got)
			return whole
		}
		n := int(binary.BigEndian.Uint16(length[:]))
		b := append(length[:], p.bytes(mpa.FPDULen(n)-mpa.LengthLen)...)
		require.True(p.t, mpa.CheckMarked(b))
		h, err := ddp.ParseUntagged(b[mpa.LengthLen:])
		require.NoError(p.t, err)
		body := b[mpa.LengthLen+ddp.UntaggedLen:][:n-ddp.UntaggedLen]
		require.Equal(p.t, ddp.Untagged{Last: got+len(body) == len(content), ULP: rdmap.Control(rdmap.OpSend),
			MSN: msn, MO: uint32(got)}, h)
		require.True(p.t, bytes.Equal(content[got:got+len(body)], body), "data of message %d", msn)
		if got += len(body); h.Last {
			got, msn, whole = 0, msn+1, whole+1
		}
	}
}

// TestTeardownFIN: the peer ends its direction in every phase of an established connection; the NIC
// ends the other one, without a Terminate, and everything is flushed.
func TestTeardownFIN(t *testing.T) {
	n := newRawNIC(t, usiw.Config{})
	t.Run("idle", func(t *testing.T) {
		v := newFaultEnv(n.as(t), rawOpts{})
		v.recv(8, 8)
		v.p.shut()
		v.p.eof()
		v.ended(io.EOF)
		for id := uint64(1); id <= 2; id++ {
			require.Equal(t, verbs.WC{ID: id, Status: verbs.WCWRFlushErr, QPNum: v.qp.Num()}, v.received())
		}
		// Requests posted now are flushed at once.
		v.recv(8)
		v.post(verbs.SendWR{ID: 7, Opcode: verbs.WRSend})
		require.Equal(t, verbs.WC{ID: 3, Status: verbs.WCWRFlushErr, QPNum: v.qp.Num()}, v.received())
		require.Equal(t, verbs.WC{ID: 7, Status: verbs.WCWRFlushErr, QPNum: v.qp.Num()}, v.sent())
	})
	t.Run("right behind messages", func(t *testing.T) {
		v := newFaultEnv(n.as(t), rawOpts{})
		buf := v.recv(8, 8)[0]
		v.p.send(rawTagged(rdmap.OpWrite, v.all.RKey(), v.all.Addr(), eight), rawSend(1, eight))
		v.p.close()
		v.ended(io.EOF)
		require.Equal(t, verbs.WC{ID: 1, Opcode: verbs.WCRecv, ByteLen: 8, QPNum: v.qp.Num()}, v.received())
		require.Equal(t, verbs.WC{ID: 2, Status: verbs.WCWRFlushErr, QPNum: v.qp.Num()}, v.received())
		require.Equal(t, eight, buf)
		require.Equal(t, eight, v.all.Bytes()[:8])
	})
	t.Run("inside of a message", func(t *testing.T) {
		v := newFaultEnv(n.as(t), rawOpts{})
		v.recv(8, 8)
		v.p.send(rawSegment(rdmap.OpSend, ddp.Untagged{MSN: 1}, eight[:4]))
		v.p.shut()
		v.p.eof()
		v.ended(io.EOF)
		for id := uint64(1); id <= 2; id++ {
			require.Equal(t, verbs.WC{ID: id, Status: verbs.WCWRFlushErr, QPNum: v.qp.Num()}, v.received())
		}
	})
	t.Run("instead of answers", func(t *testing.T) {
		v := newFaultEnv(n.as(t), rawOpts{})
		v.reads(8)
		v.atomics(2)
		v.p.shut()
		v.p.eof()
		v.ended(io.EOF)
		for range 3 {
			require.Equal(t, verbs.WCWRFlushErr, v.sent().Status)
		}
		v.idle(v.scq)
		v.intact()
	})
	t.Run("while we send", func(t *testing.T) {
		const count = 32
		e, p := n.as(t).passive(rawOpts{})
		mr := e.large(1 << 20)
		require.Equal(t, count, e.flood(mr, count))
		p.shut()
		whole := p.sends(mr.Bytes())
		p.close()
		e.ended(io.EOF)
		// Completed Sends have arrived. A message that was cut off after a segment is not complete.
		require.LessOrEqual(t, e.sendsDone(count), whole)
	})
	t.Run("while we answer", func(t *testing.T) {
		e, p := n.as(t).passive(rawOpts{})
		mr := e.large(32 << 20)
		p.send(rawRead(1, fetch(mr, 0, 32<<20)))
		p.read()
		p.shut()
		for {
			require.NoError(t, p.conn.SetReadDeadline(time.Now().Add(rawWait)))
			var length [mpa.LengthLen]byte
			if _, err := io.ReadFull(p.conn, length[:]); err != nil {
				require.Equal(t, io.EOF, err)
				break
			}
			p.bytes(mpa.FPDULen(int(binary.BigEndian.Uint16(length[:]))) - mpa.LengthLen)
		}
		p.close()
		e.ended(io.EOF)
	})
	_, other := n.passive(rawOpts{})
	other.alive(n.mr(64, 0x1000, rawAccess))
}

// TestTeardownRST resets the connection in the same phases.
func TestTeardownRST(t *testing.T) {
	n := newRawNIC(t, usiw.Config{})
	for _, c := range []struct {
		name string
		do   func(v *faultEnv)
	}{
		{"idle", func(*faultEnv) {}},
		{"inside of an FPDU", func(v *faultEnv) { v.p.write(rawFPDU(rawSend(1, eight), true)[:10]) }},
		{"instead of answers", func(v *faultEnv) { v.reads(8); v.atomics(2) }},
		{"while we send", func(v *faultEnv) { v.flood(v.large(1<<20), 32) }},
		{"while we answer", func(v *faultEnv) {
			v.p.send(rawRead(1, fetch(v.large(16<<20), 0, 16<<20)))
			v.p.read()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := newFaultEnv(n.as(t), rawOpts{})
			v.recv(8)
			c.do(v)
			v.p.reset()
			v.finished()
			require.Error(t, v.qp.Err())
			require.NotErrorIs(t, v.qp.Err(), io.EOF)
			require.NotErrorIs(t, v.qp.Err(), verbs.ErrClosed)
			var reset *net.OpError
			require.ErrorAs(t, v.qp.Err(), &reset)
			ev := v.event()
			require.Equal(t, verbs.EventQPFatal, ev.Type)
			require.Equal(t, v.qp.Err(), ev.Err)
			require.Equal(t, verbs.WCWRFlushErr, v.received().Status)
			v.intact()
		})
	}
	_, other := n.passive(rawOpts{})
	other.alive(n.mr(64, 0x1000, rawAccess))
}

// TestTeardownDisconnect disconnects from our side, with uncooperative peers.
func TestTeardownDisconnect(t *testing.T) {
	t.Parallel()
	const timeout = 300 * time.Millisecond
	for _, c := range []struct {
		name    string
		prepare func(e *rawEnd, p *rawPeer) (posted int)
		peer    func(e *rawEnd, p *rawPeer)
		slow    bool // the peer does not end its direction
	}{
		{"idle peer that closes", func(*rawEnd, *rawPeer) int { return 0 }, func(_ *rawEnd, p *rawPeer) {
			p.eof()
			p.close()
		}, false},
		{"idle peer that does not close", func(*rawEnd, *rawPeer) int { return 0 },
			func(_ *rawEnd, p *rawPeer) { p.eof() }, true},
		{"peer that never reads", func(e *rawEnd, _ *rawPeer) int { return e.flood(e.large(1<<20), 64) },
			func(*rawEnd, *rawPeer) {}, true},
		{"peer that owes answers", func(e *rawEnd, p *rawPeer) int {
			mr := e.large(8)
			for i := range 3 {
				e.post(verbs.SendWR{ID: uint64(i), Opcode: verbs.WRRDMARead, SGL: []verbs.SGE{e.sge(mr)}})
				p.read()
			}
			return 3
		}, func(_ *rawEnd, p *rawPeer) { p.eof(); p.close() }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := usiw.Config{CloseTimeout: timeout}
			if !c.slow {
				cfg.CloseTimeout = rawWait
			}
			e, p := newRawNIC(t, cfg).passive(rawOpts{})
			e.recv(8)
			posted := c.prepare(e, p)
			within(t, rawWait, "Disconnect", func() { require.NoError(t, e.id.Disconnect()) })
			// The completions are available.
			wcs := make([]verbs.WC, posted+1)
			k, err := e.scq.Poll(wcs)
			require.NoError(t, err)
			require.Equal(t, posted, k)
			for i, wc := range wcs[:k] {
				require.EqualValues(t, i, wc.ID)
			}
			k, err = e.rcq.Poll(wcs[:1])
			require.NoError(t, err)
			require.Equal(t, 1, k)
			require.Equal(t, verbs.WCWRFlushErr, wcs[0].Status)
			e.ended(verbs.ErrClosed)
			c.peer(e, p)
			began := time.Now()
			within(t, timeout+time.Second, "Close", func() { require.NoError(t, e.id.Close()) })
			if !c.slow {
				require.Less(t, time.Since(began), rawWait/2, "nothing is to be waited for")
			}
		})
	}
}

// TestTeardownClose closes objects while others wait for them: every wait ends within CloseTimeout
// plus a second.
func TestTeardownClose(t *testing.T) {
	t.Parallel()
	const timeout = 300 * time.Millisecond
	cfg := usiw.Config{CloseTimeout: timeout}
	t.Run("ID", func(t *testing.T) {
		e, p := newRawNIC(t, cfg).passive(rawOpts{})
		mr := e.large(1 << 20)
		posted := e.flood(mr, 64) // the peer does not read
		e.recv(8)
		waiting := make(chan verbs.WC, 1)
		go func() {
			var wcs [1]verbs.WC
			ctx, cancel := context.WithTimeout(context.Background(), rawWait)
			defer cancel()
			_, _ = e.rcq.Wait(ctx, wcs[:])
			waiting <- wcs[0]
		}()
		within(t, timeout+time.Second, "ID.Close", func() { require.NoError(t, e.id.Close()) })
		require.Equal(t, verbs.WCWRFlushErr, result(t, "CQ.Wait", waiting).Status)
		require.Less(t, e.sendsDone(posted), posted)
		_ = p
	})
	t.Run("QP", func(t *testing.T) {
		e, _ := newRawNIC(t, cfg).passive(rawOpts{})
		e.flood(e.large(1<<20), 64)
		within(t, timeout+time.Second, "QP.Close", func() { require.NoError(t, e.qp.Close()) })
		require.ErrorIs(t, e.id.Err(), verbs.ErrClosed)
		_, err := e.qp.PostSend([]verbs.SendWR{{Opcode: verbs.WRSend}})
		require.ErrorIs(t, err, verbs.ErrClosed)
		within(t, timeout+time.Second, "ID.Close", func() { require.NoError(t, e.id.Close()) })
	})
	t.Run("NIC", func(t *testing.T) {
		n := newRawNIC(t, cfg)
		e, _ := n.passive(rawOpts{})
		e.flood(e.large(1<<20), 64)
		idle, _ := n.active(rawOpts{})
		ln := n.listen()
		c := make(chan error, 1)
		go func() {
			_, err := ln.Accept(context.Background())
			c <- err
		}()
		within(t, timeout+time.Second, "NIC.Close", func() { require.NoError(t, n.nic.Close()) })
		require.ErrorIs(t, result(t, "Accept", c), verbs.ErrClosed)
		e.ended(verbs.ErrClosed)
		idle.ended(verbs.ErrClosed)
	})
	t.Run("Connect in progress", func(t *testing.T) {
		n := newRawNIC(t, cfg)
		ln := rawListen(t)
		id, err := cm.Resolve(soon(t), ln.Addr().String(), n.config())
		require.NoError(t, err)
		e := n.end(verbs.QPCap{})
		c := make(chan error, 1)
		go func() { c <- id.Connect(context.Background(), e.qp, cm.ConnParam{}) }()
		p := rawAccept(t, ln)
		p.frame()
		within(t, time.Second, "ID.Close", func() { require.NoError(t, id.Close()) })
		require.ErrorIs(t, result(t, "Connect", c), verbs.ErrClosed)
		p.gone()
	})
	t.Run("QP of a Connect in progress", func(t *testing.T) {
		n := newRawNIC(t, cfg)
		ln := rawListen(t)
		e := n.end(verbs.QPCap{})
		c := e.goConnect(context.Background(), ln, cm.ConnParam{})
		p := rawAccept(t, ln)
		p.frame()
		within(t, time.Second, "QP.Close", func() { require.NoError(t, e.qp.Close()) })
		require.ErrorIs(t, result(t, "Connect", c).err, verbs.ErrClosed)
		p.gone()
	})
	t.Run("listener with requests that nobody has taken", func(t *testing.T) {
		// There is room for all but one: once that one has been rejected, the others are waiting.
		const waiting = 3
		n := newRawNIC(t, cfg)
		few := n.config()
		few.Backlog = waiting
		ln, err := cm.Listen(soon(t), "127.0.0.1:0", few)
		require.NoError(t, err)
		refused := make(chan error, waiting+1)
		for range waiting + 1 {
			p := rawDial(t, ln.Addr())
			p.sendFrame(rawRequest())
			go func() { refused <- p.refused() }()
		}
		silent := rawDial(t, ln.Addr())
		require.NoError(t, result(t, "the one for which there is no room", refused))
		done := make(chan error, 1)
		go func() { done <- ln.Close() }()
		for range waiting {
			require.NoError(t, result(t, "those who waited", refused))
		}
		silent.gone()
		require.NoError(t, result(t, "Listener.Close", done))
	})
}

// refused reads the NIC's rejection of a request, up to its FIN, and closes the connection. It may
// be called from any goroutine.
func (p *rawPeer) refused() error {
	if err := p.conn.SetReadDeadline(time.Now().Add(rawWait)); err != nil {
		return err
	}
	f, err := mpa.ReadFrame(p.conn)
	if err != nil {
		return err
	}
	if !f.Reject || !f.HasEnhanced {
		return fmt.Errorf("not refused: %+v", f)
	}
	rest, err := io.ReadAll(io.LimitReader(p.conn, 1<<10))
	if err != nil || len(rest) > 0 {
		return fmt.Errorf("%d bytes and %v behind the refusal", len(rest), err)
	}
	return p.conn.Close()
}

// TestTeardownLosesNothing disconnects as soon as 64 MiB of Sends have completed: the peer, which
// reads slowly and keeps sending, receives every byte.
func TestTeardownLosesNothing(t *testing.T) {
	for _, chatty := range []bool{false, true} {
		name := "silent peer"
		if chatty {
			name = "peer that goes on sending"
		}
		t.Run(name, func(t *testing.T) {
			const size = 1 << 20
			count := 64
			if chatty {
				count = 24
			}
			n := newRawNIC(t, usiw.Config{})
			e, p := n.passive(rawOpts{})
			mr := e.large(size)
			target := e.large(1 << 16)
			got := make(chan int, 1)
			go func() {
				time.Sleep(50 * time.Millisecond)
				got <- p.sends(mr.Bytes())
			}()
			stop, stopped := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(stopped)
				fpdu := rawFPDU(rawTagged(rdmap.OpWrite, target.RKey(), target.Addr(), make([]byte, 1<<15)), true)
				for rest := fpdu; chatty; {
					select {
					case <-stop:
						return
					default:
					}
					// The NIC accepts everything at all times, even while it is closing the
					// connection.
					_ = p.conn.SetWriteDeadline(time.Now().Add(rawWait))
					k, err := p.conn.Write(rest)
					if err != nil {
						return
					}
					if rest = rest[k:]; len(rest) == 0 {
						rest = fpdu
					}
				}
			}()
			require.Equal(t, count, e.flood(mr, count))
			require.Equal(t, count, e.sendsDone(count))
			within(t, rawWait, "Disconnect", func() { require.NoError(t, e.id.Disconnect()) })
			require.Equal(t, count, result(t, "the peer's count", got))
			close(stop)
			<-stopped
			p.close()
			within(t, rawWait, "Close", func() { require.NoError(t, e.id.Close()) })
		})
	}
}
