// SPDX-License-Identifier: BSD-3-Clause

package usiw_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// smallNetwork is TCP with socket buffers of about 4 KiB, so that nearly every write finds the
// socket full.
type smallNetwork struct{}

func (smallNetwork) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Control: smallBuffers}
	return small(d.DialContext(ctx, network, address))
}

func (smallNetwork) Listen(ctx context.Context, network, address string) (net.Listener, error) {
	lc := net.ListenConfig{Control: smallBuffers}
	ln, err := lc.Listen(ctx, network, address)
	return smallListener{ln}, err
}

type smallListener struct{ net.Listener }

func (l smallListener) Accept() (net.Conn, error) { return small(l.Listener.Accept()) }

// small makes the send buffer small on systems where smallBuffers does not.
func small(c net.Conn, err error) (net.Conn, error) {
	if tcp, ok := c.(*net.TCPConn); ok && err == nil {
		err = tcp.SetWriteBuffer(4096)
	}
	return c, err
}

// join connects a QP of each NIC, the first one's as the active side.
func join(a, b *rawNIC, c verbs.QPCap) (x, y *rawEnd) {
	a.t.Helper()
	x, y = a.end(c), b.end(c)
	ln := b.listen()
	id, err := cm.Resolve(soon(a.t), ln.Addr().String(), a.config())
	require.NoError(a.t, err)
	con := make(chan error, 1)
	go func() { con <- id.Connect(soon(a.t), x.qp, cm.ConnParam{}) }()
	y.id, err = b.request(ln).Accept(soon(a.t), y.qp, cm.ConnParam{})
	require.NoError(a.t, err)
	require.NoError(a.t, result(a.t, "Connect", con))
	x.id = id
	a.t.Cleanup(func() {
		within(a.t, rawWait, "closing both ends", func() {
			assert.NoError(a.t, x.id.Close())
			assert.NoError(a.t, y.id.Close())
		})
	})
	return x, y
}

// random registers memory with random contents.
func (e *rawEnd) random(size int, seed byte) *verbs.MR {
	e.t.Helper()
	mr := e.large(size)
	r := rand.NewChaCha8([32]byte{seed})
	_, err := r.Read(mr.Bytes())
	require.NoError(e.t, err)
	return mr
}

// drained collects count completions, which must all succeed, in order.
func (e *rawEnd) drained(count int) {
	e.t.Helper()
	wcs := make([]verbs.WC, 64)
	for done := 0; done < count; {
		ctx, cancel := context.WithTimeout(context.Background(), rawBulk)
		n, err := e.scq.Wait(ctx, wcs)
		cancel()
		require.NoError(e.t, err, "%d of %d", done, count)
		for i, wc := range wcs[:n] {
			require.Equal(e.t, verbs.WCSuccess, wc.Status, "request %d", wc.ID)
			require.EqualValues(e.t, done+i, wc.ID)
		}
		done += n
	}
}

// TestBigLoad: both sides post 64 MiB of Writes and Reads, mixed with atomics, at once over socket
// buffers of 4 KiB. Neither side may wait for send space while the other waits for it.
func TestBigLoad(t *testing.T) {
	const piece, pieces = 1 << 20, 32 // 32 MiB each of Writes and Reads
	cfg := usiw.Config{Network: smallNetwork{}}
	x, y := join(newRawNIC(t, cfg), newRawNIC(t, cfg), verbs.QPCap{MaxSendWR: 3 * pieces})
	type memory struct{ source, written, read, counter, results *verbs.MR }
	mem := map[*rawEnd]memory{}
	for seed, e := range []*rawEnd{x, y} {
		mem[e] = memory{e.random(piece*pieces, byte(seed)), e.large(piece * pieces), e.large(piece * pieces),
			e.words(0, 1000), e.large(8 * pieces)}
	}
	post := func(e, peer *rawEnd) {
		ours, theirs := mem[e], mem[peer]
		var wrs []verbs.SendWR
		sge := func(mr *verbs.MR, off, n int) []verbs.SGE {
			s, err := mr.SGE(off, n)
			assert.NoError(t, err)
			return []verbs.SGE{s}
		}
		for i := range pieces {
			off := uint64(i * piece)
			wrs = append(wrs,
				verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGL: sge(ours.source, i*piece, piece),
					RKey: theirs.written.RKey(), RemoteAddr: theirs.written.Addr() + off},
				verbs.SendWR{Opcode: verbs.WRRDMARead, SGL: sge(ours.read, i*piece, piece),
					RKey: theirs.source.RKey(), RemoteAddr: theirs.source.Addr() + off},
				verbs.SendWR{Opcode: verbs.WRAtomicFetchAndAdd, SGL: sge(ours.results, 8*i, 8),
					RKey: theirs.counter.RKey(), RemoteAddr: theirs.counter.Addr(), Add: 3})
		}
		for i := range wrs {
			wrs[i].ID = uint64(i)
		}
		n, err := e.qp.PostSend(wrs)
		assert.NoError(t, err)
		assert.Equal(t, len(wrs), n)
	}
	var posting sync.WaitGroup
	posting.Go(func() { post(x, y) })
	posting.Go(func() { post(y, x) })
	within(t, 5*time.Second, "posting", posting.Wait)
	x.drained(3 * pieces)
	y.drained(3 * pieces)
	// A Write completes when TCP accepts it. The last responses arrived after the peer's last
	// Writes, but perhaps before ours were placed. The response to a following empty Read shows
	// that they have been placed.
	for _, e := range []*rawEnd{x, y} {
		e.post(verbs.SendWR{Opcode: verbs.WRRDMARead})
		require.Equal(t, verbs.WCSuccess, e.sent().Status)
	}
	for e, peer := range map[*rawEnd]*rawEnd{x: y, y: x} {
		ours, theirs := mem[e], mem[peer]
		require.True(t, bytes.Equal(ours.source.Bytes(), theirs.written.Bytes()), "Writes")
		require.True(t, bytes.Equal(theirs.source.Bytes(), ours.read.Bytes()), "Reads")
		for i := range pieces {
			require.EqualValues(t, 1000+3*i, word64(ours.results.Bytes()[8*i:]), "atomic %d", i)
		}
		require.EqualValues(t, 1000+3*pieces, word64(ours.counter.Bytes()))
	}
}

// TestBigLoadSends does the same with messages that need receives, in both directions at once and
// larger than all buffers.
func TestBigLoadSends(t *testing.T) {
	const piece, pieces = 1 << 20, 8
	cfg := usiw.Config{Network: smallNetwork{}}
	x, y := join(newRawNIC(t, cfg), newRawNIC(t, cfg), verbs.QPCap{MaxSendWR: pieces, MaxRecvWR: pieces})
	type memory struct{ source, received *verbs.MR }
	mem := map[*rawEnd]memory{}
	for seed, e := range []*rawEnd{x, y} {
		m := memory{e.random(piece*pieces, byte(seed)), e.large(piece * pieces)}
		for i := range pieces {
			s, err := m.received.SGE(i*piece, piece)
			require.NoError(t, err)
			_, err = e.qp.PostRecv([]verbs.RecvWR{{ID: uint64(i), SGL: []verbs.SGE{s}}})
			require.NoError(t, err)
		}
		mem[e] = m
	}
	for _, e := range []*rawEnd{x, y} {
		for i := range pieces {
			s, err := mem[e].source.SGE(i*piece, piece)
			require.NoError(t, err)
			e.post(verbs.SendWR{ID: uint64(i), Opcode: verbs.WRSend, SGL: []verbs.SGE{s}})
		}
	}
	for _, e := range []*rawEnd{x, y} {
		e.drained(pieces)
		for i := range pieces {
			require.Equal(t, verbs.WC{ID: uint64(i), Opcode: verbs.WCRecv, ByteLen: piece, QPNum: e.qp.Num()},
				e.received())
		}
	}
	require.True(t, bytes.Equal(mem[x].source.Bytes(), mem[y].received.Bytes()))
	require.True(t, bytes.Equal(mem[y].source.Bytes(), mem[x].received.Bytes()))
}

// TestSleepingResponder: Reads and atomics complete at a responder whose application does nothing
// at all.
func TestSleepingResponder(t *testing.T) {
	const count, deep = 10000, 128
	x, y := join(newRawNIC(t, usiw.Config{}), newRawNIC(t, usiw.Config{}), verbs.QPCap{MaxSendWR: 2 * deep})
	source, counter := y.random(count*16, 9), y.words(0, 0)
	asleep, wake := make(chan struct{}), make(chan struct{})
	go func() { // the responder's application
		defer close(asleep)
		<-wake
	}()
	sink, results := x.large(count*16), x.large(count*8)
	wrs := make([]verbs.SendWR, 0, 2*deep)
	sgl := make([]verbs.SGE, 2*deep)
	for posted := 0; posted < count; {
		wrs = wrs[:0]
		for i := posted; i < min(posted+deep, count); i++ {
			k := len(wrs)
			var err error
			sgl[k], err = sink.SGE(16*i, 16)
			require.NoError(t, err)
			sgl[k+1], err = results.SGE(8*i, 8)
			require.NoError(t, err)
			wrs = append(wrs,
				verbs.SendWR{ID: uint64(k), Opcode: verbs.WRRDMARead, SGL: sgl[k : k+1], RKey: source.RKey(),
					RemoteAddr: source.Addr() + uint64(16*i)},
				verbs.SendWR{ID: uint64(k + 1), Opcode: verbs.WRMaskedAtomicFetchAndAdd, SGL: sgl[k+1 : k+2],
					RKey: counter.RKey(), RemoteAddr: counter.Addr(), Add: 1})
		}
		x.post(wrs...)
		x.drained(len(wrs))
		posted += len(wrs) / 2
	}
	close(wake)
	<-asleep
	require.True(t, bytes.Equal(source.Bytes(), sink.Bytes()))
	for i := range count {
		require.EqualValues(t, i, word64(results.Bytes()[8*i:]))
	}
	require.EqualValues(t, count, word64(counter.Bytes()))
	y.idle(y.scq)
	y.idle(y.rcq)
}

// TestAtomicContention: 8 clients on separate NICs and the local CPU add to the same word.
func TestAtomicContention(t *testing.T) {
	const clients, count, deep = 8, 2000, 64
	server := newRawNIC(t, usiw.Config{})
	word := server.words(0x40, 0)
	local := counterAt(word.Bytes())
	shared := newRawNIC(t, usiw.Config{})
	stop := make(chan struct{})
	var adding, running sync.WaitGroup
	var added uint64
	halt := sync.OnceFunc(func() {
		close(stop)
		adding.Wait()
	})
	t.Cleanup(halt) // before the word is freed
	adding.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			for range 100 {
				atomic.AddUint64(local, 1)
				added++
			}
			time.Sleep(20 * time.Microsecond)
		}
	})
	var returned [clients][]uint64
	for i := range clients {
		n := shared
		if i%2 == 0 {
			n = newRawNIC(t, usiw.Config{})
		}
		e, _ := join(n, server, verbs.QPCap{MaxSendWR: deep})
		results := e.large(8 * deep)
		running.Go(func() {
			sgl := make([]verbs.SGE, deep)
			wcs := make([]verbs.WC, deep)
			for k := range sgl {
				sgl[k], _ = results.SGE(8*k, 8)
			}
			ctx, cancel := context.WithTimeout(context.Background(), rawBulk)
			defer cancel()
			for posted, done := 0, 0; done < count; {
				for ; posted < count && posted-done < deep; posted++ {
					k := posted % deep
					wr := verbs.SendWR{ID: uint64(k), Opcode: verbs.WRAtomicFetchAndAdd, SGL: sgl[k : k+1],
						RKey: word.RKey(), RemoteAddr: word.Addr(), Add: 1 << 32}
					if _, err := e.qp.PostSend([]verbs.SendWR{wr}); !assert.NoError(t, err) {
						return
					}
				}
				m, err := e.scq.Wait(ctx, wcs)
				if !assert.NoError(t, err) {
					return
				}
				for _, wc := range wcs[:m] {
					if !assert.Equal(t, verbs.WCSuccess, wc.Status) {
						return
					}
					returned[i] = append(returned[i], binary.NativeEndian.Uint64(results.Bytes()[8*wc.ID:]))
				}
				done += m
			}
		})
	}
	within(t, rawBulk, "the clients", running.Wait)
	halt()
	// The clients count in the upper half of the word, the CPU in the lower.
	require.EqualValues(t, clients*count, atomic.LoadUint64(local)>>32)
	require.Equal(t, added, atomic.LoadUint64(local)&(1<<32-1))
	// No value was returned twice, and the values of each client increase.
	seen := make(map[uint64]bool, clients*count)
	for i := range returned {
		require.Len(t, returned[i], count)
		for k, v := range returned[i] {
			require.False(t, seen[v>>32], "%#x twice", v)
			seen[v>>32] = true
			require.True(t, k == 0 || v > returned[i][k-1])
		}
	}
}
