// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"context"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/asleep"
	"github.com/goverbs/goverbs/internal/iwarp/ddp"
	"github.com/goverbs/goverbs/internal/iwarp/mpa"
	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/verbs"
)

// TestTurnLine: three goroutines with endless work share one processor. One works at once, and the
// others follow in order of arrival.
func TestTurnLine(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var b yielder
	defer b.close()
	var turns [3]*turn
	for i := range turns {
		turns[i] = new(turn)
		turns[i].init()
	}
	first := turns[0]
	first.spend(turnBytes-1, &b)
	require.False(t, first.has, "a goroutine with little to do needs no place")
	first.end()
	first.spend(turnBytes-1, &b)
	require.False(t, first.has, "it is done each time")
	first.spend(1, &b)
	require.True(t, first.has)
	require.Zero(t, first.bytes, "the next turn has begun")
	order := make(chan int, 4)
	var waiting sync.WaitGroup
	for i := 1; i < len(turns); i++ {
		waiting.Go(func() {
			turns[i].spend(turnBytes, &b)
			order <- i
			turns[i].end()
		})
		asleep.Until(t, i, "usiw.TestTurnLine", "usiw.(*turn).spend")
	}
	require.Empty(t, order)
	first.spend(turnBytes, &b) // gives up its place, and waits behind the other two
	require.Len(t, order, 2)
	require.Equal(t, []int{1, 2}, []int{<-order, <-order})
	waiting.Wait()
	first.end()
	first.end()
	require.Zero(t, line.places)
	require.Nil(t, line.first)
}

// TestTurnProcessors changes the number of processors while goroutines are in line: as many
// continue as there are processors.
func TestTurnProcessors(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var b yielder
	b.close() // otherwise a yielding goroutine would count as asleep
	const many = 6
	var atWork atomic.Int32
	var stop atomic.Bool
	next := make(chan struct{}) // makes a working goroutine pass its place on
	var working sync.WaitGroup
	for i := range many {
		working.Go(func() {
			var t turn
			t.init()
			for !stop.Load() {
				t.spend(turnBytes, &b)
				atWork.Add(1)
				<-next
				atWork.Add(-1)
			}
			t.end()
		})
		asleep.Until(t, i+1, "usiw.TestTurnProcessors")
	}
	for _, procs := range []int{1, 3, 2, 4, 1} {
		runtime.GOMAXPROCS(procs)
		for range many {
			next <- struct{}{}
			asleep.Until(t, many, "usiw.TestTurnProcessors")
		}
		require.EqualValues(t, procs, atWork.Load())
	}
	stop.Store(true)
	close(next)
	working.Wait()
	require.Zero(t, line.places)
	require.Nil(t, line.first)
}

// writeFPDU returns an FPDU with an RDMA Write of n bytes to the start of s's region.
func (s *side) writeFPDU(n int) []byte {
	fpdu := make([]byte, mpa.LengthLen+ddp.TaggedLen, mpa.LengthLen+ddp.TaggedLen+n+mpa.CRCLen+3)
	ddp.Tagged{Last: true, ULP: rdmap.Control(rdmap.OpWrite), STag: s.mr.RKey(),
		TO: s.mr.Addr()}.Put(fpdu[mpa.LengthLen:])
	fpdu = append(fpdu, make([]byte, n)...)
	fpdu[0], fpdu[1] = byte((len(fpdu)-mpa.LengthLen)>>8), byte(len(fpdu)-mpa.LengthLen)
	fpdu = append(fpdu, make([]byte, mpa.Pad(len(fpdu)-mpa.LengthLen)+mpa.CRCLen)...)
	mpa.PutCRC(fpdu[len(fpdu)-mpa.CRCLen:], mpa.CRC(0, fpdu[:len(fpdu)-mpa.CRCLen]))
	return fpdu
}

// flooded replaces the connection's socket, until the test ends, with one that is never empty and
// never full: it delivers the same FPDU over and over, and accepts all bytes sent.
func (s *side) flooded(moved *atomic.Int64) {
	c, tcp := s.conn, s.conn.s.(*tcpStream)
	set := func(read, write func()) {
		c.rx.mu.Lock()
		defer c.rx.mu.Unlock()
		c.q.mu.Lock()
		defer c.q.mu.Unlock()
		for c.tx.busy {
			c.tx.idle.Wait()
		}
		tcp.readFn, tcp.writeFn = read, write
	}
	fpdu, at := s.writeFPDU(32<<10), 0
	read, write := tcp.readFn, tcp.writeFn
	set(func() {
		t := &tcp.rd
		for t.got, t.err = 0, nil; t.got < len(t.one); {
			n := copy(t.one[t.got:], fpdu[at:])
			at = (at + n) % len(fpdu)
			t.got += n
		}
		moved.Add(int64(t.got))
	}, func() {
		t := &tcp.wr
		t.got, t.err = len(t.one), nil
		if t.iov != nil {
			for _, v := range t.iov[:t.n] {
				t.got += int(v.Len)
			}
		}
		moved.Add(int64(t.got))
	})
	s.t.Cleanup(func() { set(read, write) })
}

// TestTurns: on one processor, connections receive or send without pause, while two goroutines that
// wait for the network exchange messages. Each message waits for one or two turns, rather than for
// a turn of every connection.
func TestTurns(t *testing.T) {
	const many = 16
	for name, begin := range map[string]func(t *testing.T, moved *atomic.Int64, stop *atomic.Bool){
		"the reader receives": func(t *testing.T, moved *atomic.Int64, _ *atomic.Bool) {
			for range many {
				a, b := twoSides(t, Config{})
				b.flooded(moved)
				a.post(verbs.WRSend, 0, b) // wakes the reader
			}
		},
		"a waiter receives": func(t *testing.T, moved *atomic.Int64, _ *atomic.Bool) {
			for range many {
				a, b := twoSides(t, Config{})
				ctx, cancel := context.WithCancel(context.Background())
				var waiting sync.WaitGroup
				waiting.Go(func() {
					var wcs [1]verbs.WC
					for err := error(nil); err == nil; {
						_, err = b.rcq.Wait(ctx, wcs[:])
					}
				})
				t.Cleanup(func() { cancel(); waiting.Wait() })
				for range 60 { // the first messages may arrive before the goroutine sleeps
					if b.keeper() == byWaiter {
						break
					}
					b.trusted()
					a.post(verbs.WRSend, 0, b)
					time.Sleep(time.Millisecond)
				}
				require.Equal(t, byWaiter, b.keeper())
				b.flooded(moved)
				a.post(verbs.WRSend, 0, b)
			}
		},
		"a sender": func(t *testing.T, moved *atomic.Int64, stop *atomic.Bool) {
			for range many {
				a, b := twoSides(t, Config{})
				a.flooded(moved)
				var posting sync.WaitGroup
				posting.Go(func() {
					sge, err := a.mr.SGE(0, 4<<20)
					var wrs [32]verbs.SendWR
					for i := range wrs {
						wrs[i] = verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGL: []verbs.SGE{sge}, RemoteAddr: b.mr.Addr(),
							RKey: b.mr.RKey()}
					}
					wrs[len(wrs)-1].Flags = verbs.SendSignaled
					var wcs [1]verbs.WC
					for err == nil && !stop.Load() {
						if _, err = a.qp.PostSend(wrs[:]); err == nil {
							_, err = a.scq.Wait(context.Background(), wcs[:])
						}
					}
				})
				t.Cleanup(func() { stop.Store(true); posting.Wait() })
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			out, in := talkers(t)
			var moved atomic.Int64
			var stop atomic.Bool
			begin(t, &moved, &stop)
			procs := runtime.GOMAXPROCS(1)
			t.Cleanup(func() { runtime.GOMAXPROCS(procs) })
			for moved.Load() < many*turnBytes { // until all have started
				time.Sleep(time.Millisecond)
			}
			var answering sync.WaitGroup
			answering.Go(func() { _, _ = io.Copy(in, in) })
			const rounds = 30
			var b [1]byte
			for i := -5; i < rounds; i++ {
				if i == 0 {
					moved.Store(0)
				}
				_, err := out.Write(b[:])
				require.NoError(t, err)
				_, err = io.ReadFull(out, b[:])
				require.NoError(t, err)
			}
			turns := moved.Load() / turnBytes / rounds
			// they still receive or send, though perhaps not in these rounds
			for before := moved.Load(); moved.Load() == before; {
				time.Sleep(time.Millisecond)
			}
			require.LessOrEqual(t, turns, int64(many), "for one message there and back")
			require.NoError(t, out.Close())
			answering.Wait()
		})
	}
}

// talkers returns the two ends of a connection.
func talkers(t *testing.T) (out, in *net.TCPConn) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	c, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	d, err := ln.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = c.Close(), d.Close() })
	return c.(*net.TCPConn), d.(*net.TCPConn)
}
