// SPDX-License-Identifier: BSD-3-Clause

package rsocket

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// raw is a hand-written peer: an endpoint that can send arbitrary messages.
type raw struct {
	t    *testing.T
	ep   *cm.Endpoint
	data connData // of the other side
}

const (
	rawHalf  = 4096 // of the buffer that raw offers
	rawTable = 0    // offsets in its memory
	rawRing  = 64
)

// rawConfig has memory for a table and a buffer, and private data that is correct except for
// change.
func rawConfig(change func(d *connData) []byte) cm.EndpointConfig {
	return cm.EndpointConfig{Memory: rawRing + 2*rawHalf, Access: verbs.AccessRemoteWrite, MessageSize: 64,
		Messages: 128, NoCredits: true, Prepare: func(ep *cm.Endpoint, p *cm.ConnParam) error {
			at, key := ep.MR().Addr(), ep.MR().RKey()
			p.PrivateData = change(&connData{credits: 64, table: entry{at + rawTable, key, 2},
				buffer: entry{at + rawRing, key, rawHalf}})
			return nil
		}}
}

func correct(d *connData) []byte { return d.append(nil) }

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// hostile is a device with a listener that uses the smallest queues, and a good connection beside
// the bad ones.
type hostile struct {
	*testing.T
	dev      *verbs.Device
	ln       *Listener
	g1, g2   *Conn
	expected byte
}

func newHostile(t *testing.T) *hostile {
	nic, err := usiw.New(usiw.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, nic.Close()) })
	h := &hostile{T: t, dev: nic.Device()}
	lc := ListenConfig{Config: Config{Device: h.dev, RecvQueue: 16, RecvBuffer: 8192, SendQueue: 16, Mappings: 2}}
	h.ln, err = lc.Listen(soon(t), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = h.ln.Close() })
	d := Dialer{Config: Config{Device: h.dev}}
	nc, err := d.Dial("tcp", h.ln.Addr().String())
	require.NoError(t, err)
	h.g1 = nc.(*Conn)
	h.g2, err = h.ln.AcceptConn()
	require.NoError(t, err)
	t.Cleanup(func() { h.end(h.g1); h.end(h.g2) })
	return h
}

// limited sets a deadline for calls that would never return if the rule under test were broken.
func limited(t *testing.T, c *Conn) {
	t.Helper()
	require.NoError(t, c.SetDeadline(time.Now().Add(30*time.Second)))
}

// end aborts a connection.
func (h *hostile) end(c *Conn) {
	_ = c.SetLinger(0)
	_ = c.Close()
	<-c.ended
}

// unharmed requires that the good connection still works.
func (h *hostile) unharmed() {
	h.Helper()
	limited(h.T, h.g1)
	limited(h.T, h.g2)
	h.expected++
	_, err := h.g1.Write([]byte{h.expected})
	require.NoError(h, err)
	var b [1]byte
	_, err = io.ReadFull(h.g2, b[:])
	require.NoError(h, err)
	require.Equal(h, h.expected, b[0])
}

// dial connects a raw peer to the listener.
func (h *hostile) dial(t *testing.T) (*raw, *Conn) {
	t.Helper()
	ep, err := cm.Dial(soon(t), h.ln.Addr().String(), cm.Config{Device: h.dev}, rawConfig(correct))
	require.NoError(t, err)
	t.Cleanup(func() { _ = ep.Close() })
	c, err := h.ln.AcceptConn()
	require.NoError(t, err)
	t.Cleanup(func() { h.end(c) })
	limited(t, c)
	d, err := parseConnData(ep.PrivateData())
	require.NoError(t, err)
	return &raw{t, ep, d}, c
}

// tell sends a message without waiting for a response.
func (r *raw) tell(m message) { r.send(binary.LittleEndian.AppendUint32(nil, uint32(m))) }

func (r *raw) send(p []byte) {
	r.t.Helper()
	_ = r.ep.Send(soon(r.t), p) // it may fail because of the previous message
}

// control returns the next message of the other side that is not a grant.
func (r *raw) control() message {
	r.t.Helper()
	for {
		var b [messageLen]byte
		_, err := r.ep.Recv(soon(r.t), b[:])
		require.NoError(r.t, err)
		if m := message(binary.LittleEndian.Uint32(b[:])); m.op() != opGrant {
			return m
		}
	}
}

// write writes to the peer's memory.
func (r *raw) write(to entry, p []byte) {
	r.t.Helper()
	at := rawRing + rawHalf
	sge, err := r.ep.MR().SGE(at, copy(r.ep.MR().Bytes()[at:], p))
	require.NoError(r.t, err)
	_, _ = r.ep.Do(soon(r.t), verbs.Write(verbs.Remote{Addr: to.addr, RKey: to.key, Length: uint64(len(p))}, sge))
}

// mapping writes a mapping to index i of the peer's area and announces it.
func (r *raw) mapping(i, offset uint64, e entry) {
	b := make([]byte, mappingLen)
	binary.LittleEndian.PutUint64(b, offset)
	e.put(b[8:], binary.LittleEndian)
	r.write(entry{addr: r.data.table.addr + tableEntries*entryLen + i*mappingLen, key: r.data.table.key}, b)
	r.tell(newMessage(opMapping, uint32(i)))
}

// publish writes an entry to index i of the peer's table.
func (r *raw) publish(i uint64, e entry) {
	b := make([]byte, entryLen)
	e.put(b, binary.LittleEndian)
	r.write(entry{addr: r.data.table.addr + i*entryLen, key: r.data.table.key}, b)
}

// TestHostileMessages: every violation terminates the connection with its error, on both sides of
// the stream, and nothing else.
func TestHostileMessages(t *testing.T) {
	h := newHostile(t)
	data := func(n uint32) message { return newMessage(opData, n) }
	for _, c := range []struct {
		name string
		do   func(r *raw)
		want Violation
	}{
		{"data of 0 bytes", func(r *raw) { r.tell(data(0)) }, EmptyData},
		{"data beyond the first half", func(r *raw) { r.tell(data(4097)) }, TooMuchData},
		{"data across the halves", func(r *raw) { r.tell(data(4000)); r.tell(data(97)) }, TooMuchData},
		{"data beyond the buffer", func(r *raw) { r.tell(data(4096)); r.tell(data(4096)); r.tell(data(1)) },
			TooMuchData},
		{"data of 2^29-1 bytes", func(r *raw) { r.tell(data(1<<29 - 1)) }, TooMuchData},
		{"17 messages of 16", func(r *raw) {
			for range 17 {
				r.tell(data(1))
			}
		}, Uncredited},
		{"credits taken back", func(r *raw) { r.tell(newMessage(opGrant, 63)) }, CreditsTakenBack},
		{"credits beyond the queue", func(r *raw) { r.tell(newMessage(opGrant, 100)) }, CreditsTakenBack},
		{"mapping 2^29-1", func(r *raw) { r.tell(newMessage(opMapping, 1<<29-1)) }, BadIndex},
		{"mapping 2 of 2", func(r *raw) { r.tell(newMessage(opMapping, 2)) }, BadIndex},
		{"mapping of nothing", func(r *raw) { r.tell(newMessage(opMapping, 1)) }, BadMemory},
		{"mapping whose memory wraps", func(r *raw) { r.mapping(1, 0, entry{^uint64(0) - 5, 1, 7}) }, BadMemory},
		{"mapping whose offsets wrap", func(r *raw) { r.mapping(0, ^uint64(0)-5, entry{4096, 1, 7}) }, BadMemory},
		{"operation 1", func(r *raw) { r.tell(newMessage(1, 1)) }, UnknownMessage},
		{"operation 2", func(r *raw) { r.tell(newMessage(2, 1)) }, UnknownMessage},
		{"operation 3", func(r *raw) { r.tell(newMessage(3, 1)) }, UnknownMessage},
		{"operation 5", func(r *raw) { r.tell(newMessage(5, 1)) }, UnknownMessage},
		{"control 3", func(r *raw) { r.tell(newMessage(opControl, 3)) }, UnknownMessage},
		{"message of 0 bytes", func(r *raw) { r.send(nil) }, UnknownMessage},
		{"message of 3 bytes", func(r *raw) { r.send([]byte{1, 2, 3}) }, UnknownMessage},
		{"data after SHUTDOWN", func(r *raw) { r.tell(newMessage(opControl, ctrlShutdown)); r.tell(data(1)) },
			DataAfterEnd},
		{"an entry that wraps", func(r *raw) {
			r.publish(1, entry{^uint64(0) - 5, 1, 7})
			r.tell(newMessage(opGrant, 64))
		}, BadMemory},
	} {
		if !t.Run(c.name, func(t *testing.T) {
			r, conn := h.dial(t)
			wrote := make(chan error, 1)
			go func() { // it waits for room and polls; nothing is read, so nothing is granted again
				_, err := conn.Write(make([]byte, 1<<20))
				wrote <- err
			}()
			c.do(r)
			err := <-wrote
			requireViolation(t, err, c.want)
			var op *net.OpError
			require.ErrorAs(t, err, &op)
			for err = nil; err == nil; { // what arrived before the violation can be read
				_, err = conn.Read(make([]byte, 1<<16))
			}
			if err != io.EOF { // SHUTDOWN arrived before
				requireViolation(t, err, c.want)
			}
			select {
			case <-r.ep.ID().Done():
			case <-soon(t).Done():
				t.Fatal("the connection has not been ended")
			}
			require.NoError(t, conn.Close())
			h.unharmed()
		}) {
			return // the others may take as long to fail
		}
	}
}

// TestHarmlessMessages: messages that C rsockets may send do not terminate a connection.
func TestHarmlessMessages(t *testing.T) {
	h := newHostile(t)
	r, conn := h.dial(t)
	r.tell(newMessage(opControl, ctrlKeepalive))
	r.tell(newMessage(opGrant, 64))
	r.tell(newMessage(opGrant, 1<<16|64)) // the 17th bit of a sum
	r.write(r.data.buffer, []byte("hello"))
	r.tell(newMessage(opData, 5))
	b := make([]byte, 5)
	_, err := io.ReadFull(conn, b)
	require.NoError(t, err)
	require.Equal(t, "hello", string(b))
	// As many messages as there are credits, followed by others, while no goroutine is inside.
	r.tell(newMessage(opControl, ctrlKeepalive))
	for range 15 {
		r.tell(newMessage(opData, 1))
	}
	for range recvReserve - 1 {
		r.tell(newMessage(opControl, ctrlKeepalive))
	}
	r.tell(newMessage(opControl, ctrlShutdown))
	rest, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.Len(t, rest, 15)
	h.unharmed()
}

// TestHostileKey: an entry with an invalid key terminates the connection of the peer that wrote it.
func TestHostileKey(t *testing.T) {
	h := newHostile(t)
	r, conn := h.dial(t)
	r.publish(1, entry{1 << 20, 0xdead00, 4096})
	r.tell(newMessage(opGrant, 64))
	_, err := conn.Write(make([]byte, rawHalf+1))
	for err == nil {
		_, err = conn.Read(make([]byte, 1)) // waits for the end of the connection
	}
	require.ErrorIs(t, err, syscall.ECONNRESET)
	var term *verbs.TerminateError
	require.ErrorAs(t, err, &term)
	h.unharmed()
}

// TestHostileTable: garbage in the table, which the peer may write, has no effect until a message
// announces it.
func TestHostileTable(t *testing.T) {
	h := newHostile(t)
	r, conn := h.dial(t)
	for range 100 {
		r.publish(0, entry{1, 2, 0xffffffff})
		r.publish(1, entry{1, 2, 0xffffffff})
	}
	_, err := conn.Write(make([]byte, rawHalf)) // fits into what the private data published
	require.NoError(t, err)
	require.NoError(t, conn.SetWriteDeadline(time.Now().Add(20*time.Millisecond)))
	_, err = conn.Write([]byte{1})
	var ne net.Error
	require.True(t, errors.As(err, &ne) && ne.Timeout(), err)
	h.unharmed()
}

// TestHostileRequest: invalid private data is rejected, and the listener continues.
func TestHostileRequest(t *testing.T) {
	h := newHostile(t)
	for name, change := range wrongData {
		_, err := cm.Dial(soon(t), h.ln.Addr().String(), cm.Config{Device: h.dev}, rawConfig(change))
		require.ErrorIs(t, err, cm.ErrRejected, name)
	}
	h.unharmed()
	h.dial(t)
}

var wrongData = map[string]func(d *connData) []byte{
	"none":        func(*connData) []byte { return nil },
	"short":       func(d *connData) []byte { return d.append(nil)[:39] },
	"version":     func(d *connData) []byte { b := d.append(nil); b[0] = 2; return b },
	"short table": func(d *connData) []byte { d.table.length = 1; return d.append(nil) },
	"no credits":  func(d *connData) []byte { d.credits = 0; return d.append(nil) },
	"no buffer":   func(d *connData) []byte { d.buffer.length = 0; return d.append(nil) },
}

// TestHostileReply: so is the private data of a peer that accepts.
func TestHostileReply(t *testing.T) {
	h := newHostile(t)
	ln, err := cm.Listen(soon(t), "127.0.0.1:0", cm.Config{Device: h.dev})
	require.NoError(t, err)
	defer ln.Close()
	d := Dialer{Config: Config{Device: h.dev}}
	for name, change := range wrongData {
		accepted := make(chan *cm.Endpoint, 1)
		go func() {
			ep, _ := ln.AcceptEndpoint(soon(t), rawConfig(change))
			accepted <- ep
		}()
		_, err := d.DialContext(soon(t), "tcp", ln.Addr().String())
		require.ErrorIs(t, err, ErrProtocol, name)
		require.NoError(t, (<-accepted).Close())
	}
}

// TestPeerDies: in every phase, waiting calls return an error.
func TestPeerDies(t *testing.T) {
	h := newHostile(t)
	ln, err := cm.Listen(soon(t), "127.0.0.1:0", cm.Config{Device: h.dev})
	require.NoError(t, err)
	defer ln.Close()
	d := Dialer{Config: Config{Device: h.dev}}

	t.Run("before it answers", func(t *testing.T) {
		ctx, cancel := context.WithCancel(soon(t))
		go func() {
			req, err := ln.Accept(soon(t))
			cancel()
			if err == nil {
				_ = req.Reject(nil)
			}
		}()
		_, err := d.DialContext(ctx, "tcp", ln.Addr().String())
		require.Error(t, err)
	})
	t.Run("by refusing", func(t *testing.T) {
		go func() {
			if req, err := ln.Accept(soon(t)); err == nil {
				_ = req.Reject(nil)
			}
		}()
		_, err := d.DialContext(soon(t), "tcp", ln.Addr().String())
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		require.ErrorIs(t, err, cm.ErrRejected)
	})
	for name, call := range map[string]func(c *Conn) error{
		"during Read":  func(c *Conn) error { _, err := c.Read(make([]byte, 1)); return err },
		"during Write": func(c *Conn) error { _, err := c.Write(make([]byte, 1<<20)); return err },
	} {
		t.Run(name, func(t *testing.T) {
			r, conn := h.dial(t)
			ended := make(chan error, 1)
			go func() { ended <- call(conn) }()
			require.Eventually(t, func() bool {
				conn.mu.Lock()
				defer conn.mu.Unlock()
				return conn.rd.waiting || conn.wr.waiting
			}, 30*time.Second, time.Millisecond)
			require.NoError(t, r.ep.ID().Abort())
			err := <-ended
			require.ErrorIs(t, err, syscall.ECONNRESET)
			require.NotErrorIs(t, err, io.EOF)
		})
	}
	t.Run("while nobody is inside", func(t *testing.T) {
		r, conn := h.dial(t)
		require.NoError(t, r.ep.ID().Abort())
		<-conn.ID().Done()
		_, err := conn.Write([]byte{1})
		for err == nil { // the first one may go to a QP that has not noticed
			_, err = conn.Read(make([]byte, 1))
		}
		require.ErrorIs(t, err, syscall.ECONNRESET)
	})
	t.Run("during Close", func(t *testing.T) {
		r, conn := h.dial(t)
		require.NoError(t, conn.SetLinger(30))
		closed := make(chan error, 1)
		go func() { closed <- conn.Close() }()
		require.Equal(t, newMessage(opControl, ctrlDisconnect), r.control())
		select {
		case <-conn.gone:
			t.Fatal("the connection ended before the peer answered")
		case <-time.After(50 * time.Millisecond):
		}
		require.NoError(t, r.ep.ID().Abort())
		require.NoError(t, <-closed)
		<-conn.ended
	})
	t.Run("by never answering DISCONNECT", func(t *testing.T) {
		r, conn := h.dial(t)
		conn.patience = 20 * time.Millisecond
		require.NoError(t, conn.Close())
		<-conn.ended
		<-r.ep.ID().Done()
	})
	h.unharmed()
}
