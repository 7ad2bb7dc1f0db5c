// SPDX-License-Identifier: BSD-3-Clause

package usiw_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// The benchmarks run both ends of a connection in one process; some measure the host's bare TCP for
// comparison. docs/performance.md has figures between two processes and describes how to measure
// them.

// benchMemory is the size of the memory that each end cycles through when it sends and receives.
const benchMemory = 4 << 20

// end is one end of a connection, with a region of benchMemory bytes.
type end struct {
	scq, rcq *verbs.CQ
	qp       *verbs.QP
	mr       *verbs.MR
	id       *cm.ID
	wcs      [64]verbs.WC
	sgl      [1]verbs.SGE
	wr       [1]verbs.SendWR
	recv     [1]verbs.RecvWR
	at       int
}

func newBenchEnd(c *verbs.Context) (*end, error) {
	e := &end{}
	pd, err := c.AllocPD()
	if err != nil {
		return nil, err
	}
	access := verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic
	if e.mr, err = pd.AllocMR(benchMemory, access); err != nil {
		return nil, err
	}
	touch(e.mr.Bytes())
	if e.scq, err = c.CreateCQ(verbs.CQConfig{}); err != nil {
		return nil, err
	}
	if e.rcq, err = c.CreateCQ(verbs.CQConfig{}); err != nil {
		return nil, err
	}
	e.qp, err = pd.CreateQP(verbs.QPConfig{SendCQ: e.scq, RecvCQ: e.rcq})
	return e, err
}

// listen posts receives for messages without data.
func (e *end) listen() error {
	_, err := e.qp.PostRecv(make([]verbs.RecvWR, 8))
	return err
}

// endPair is a connection; its ends share a NIC.
type endPair struct{ a, p *end }

// connectEnds connects two ends in this process and closes the connection when the test ends.
func connectEnds(tb testing.TB, cfg usiw.Config) (active, passive *end) {
	tb.Helper()
	pair := connectPairs(tb, cfg, 1)[0]
	return pair.a, pair.p
}

// connectPairs makes n connections.
func connectPairs(tb testing.TB, cfg usiw.Config, n int) []endPair {
	tb.Helper()
	ctx := context.Background()
	nic, err := usiw.New(cfg)
	require.NoError(tb, err)
	ln, err := cm.Listen(ctx, "127.0.0.1:0", cm.Config{Device: nic.Device()})
	require.NoError(tb, err)
	pairs := make([]endPair, n)
	for i := range pairs {
		accepted := make(chan error, 1)
		go func() {
			accepted <- func() error {
				r, err := ln.Accept(ctx)
				if err != nil {
					return err
				}
				e, err := newBenchEnd(r.Context())
				if err != nil {
					return err
				}
				if err := errors.Join(r.BindQP(e.qp), e.listen()); err != nil {
					return err
				}
				e.id, err = r.Accept(ctx, e.qp, cm.ConnParam{})
				pairs[i].p = e
				return err
			}()
		}()
		id, err := cm.Resolve(ctx, ln.Addr().String(), cm.Config{Device: nic.Device()})
		require.NoError(tb, err)
		e, err := newBenchEnd(id.Context())
		require.NoError(tb, err)
		require.NoError(tb, id.BindQP(e.qp))
		require.NoError(tb, e.listen())
		require.NoError(tb, id.Connect(ctx, e.qp, cm.ConnParam{}))
		e.id, pairs[i].a = id, e
		require.NoError(tb, <-accepted)
	}
	tb.Cleanup(func() {
		for _, p := range pairs {
			require.NoError(tb, p.a.id.Close())
			require.NoError(tb, p.p.id.Close())
		}
		require.NoError(tb, ln.Close())
		v, err := nic.Device().SharedContext()
		require.NoError(tb, err)
		require.NoError(tb, v.CloseAll())
		require.NoError(tb, nic.Close())
	})
	return pairs
}

// next fills in a request for the next bytes of the region, to or from the same offset in the other
// end's region.
func (e *end) next(op verbs.WROpcode, flags verbs.SendFlags, size int, to *end) []verbs.SendWR {
	if e.at+size > benchMemory {
		e.at = 0
	}
	e.sgl[0] = verbs.SGE{Addr: e.mr.Addr() + uint64(e.at), Length: uint32(size), LKey: e.mr.LKey()}
	e.wr[0] = verbs.SendWR{Opcode: op, Flags: flags, SGL: e.sgl[:], RemoteAddr: to.mr.Addr() + uint64(e.at),
		RKey: to.mr.RKey()}
	e.at += size
	return e.wr[:]
}

// wait sleeps until there are completions, and polls them.
func (e *end) wait(cq *verbs.CQ, most int) (int, error) {
	n, err := cq.Wait(context.Background(), e.wcs[:most])
	for i := range n {
		err = errors.Join(err, e.wcs[i].Err())
	}
	return n, err
}

// receive waits for a message without data and posts the receive again.
func (e *end) receive() error {
	if _, err := e.wait(e.rcq, 1); err != nil {
		return err
	}
	_, err := e.qp.PostRecv(e.recv[:])
	return err
}

const (
	benchMessage = 1 << 20
	benchDepth   = 4 // Writes in progress on a connection
)

// BenchmarkWrite measures a stream of RDMA Writes of 1 MiB, four in progress on each connection,
// until all are placed. With an MTU of 1460 the FPDUs are as large as on Ethernet.
func BenchmarkWrite(b *testing.B) {
	for _, c := range []struct{ conns, mtu int }{{1, 0}, {1, 1460}, {4, 0}} {
		for _, crc := range []usiw.Policy{usiw.On, usiw.Off} {
			name := fmt.Sprintf("conns=%d/crc=%v", c.conns, crc)
			if c.mtu != 0 {
				name = fmt.Sprintf("mtu=%d/crc=%v", c.mtu, crc)
			}
			b.Run(name, func(b *testing.B) {
				pairs := connectPairs(b, usiw.Config{CRC: crc, MTU: c.mtu}, c.conns)
				benchStream(b, c.conns, func(i int, messages <-chan struct{}) error {
					a, p := pairs[i].a, pairs[i].p
					progress := 0
					for range messages {
						if progress == benchDepth {
							n, err := a.wait(a.scq, benchDepth)
							if err != nil {
								return err
							}
							progress -= n
						}
						if _, err := a.qp.PostSend(
							a.next(verbs.WRRDMAWrite, verbs.SendSignaled, benchMessage, p)); err != nil {
							return err
						}
						progress++
					}
					// A completed Read shows that everything before it is in place.
					if _, err := a.qp.PostSend(a.next(verbs.WRRDMARead, verbs.SendSignaled, 8, p)); err != nil {
						return err
					}
					for progress++; progress > 0; {
						n, err := a.wait(a.scq, progress)
						if err != nil {
							return err
						}
						progress -= n
					}
					return nil
				})
			})
		}
	}
}

// BenchmarkTCPStream measures bare TCP with messages and memory of the same size.
func BenchmarkTCPStream(b *testing.B) {
	for _, conns := range []int{1, 4} {
		b.Run(fmt.Sprintf("conns=%d", conns), func(b *testing.B) {
			benchStream(b, conns, func(_ int, messages <-chan struct{}) error {
				out, in, err := tcpPair()
				if err != nil {
					return err
				}
				defer out.Close()
				defer in.Close()
				received := make(chan error, 1)
				go func() {
					mem, at := make([]byte, benchMemory), 0
					for {
						if _, err := io.ReadFull(in, mem[at:at+benchMessage]); err != nil {
							received <- err
							return
						}
						at = (at + benchMessage) % benchMemory
					}
				}()
				mem, at := make([]byte, benchMemory), 0
				touch(mem)
				for range messages {
					if _, err := out.Write(mem[at : at+benchMessage]); err != nil {
						return err
					}
					at = (at + benchMessage) % benchMemory
				}
				if err := out.(*net.TCPConn).CloseWrite(); err != nil {
					return err
				}
				if err := <-received; err != io.EOF {
					return err
				}
				return nil
			})
		})
	}
}

// touch fills memory to give it pages of its own: pages never written are all mapped to the same
// zero page, which is always in the processor's cache.
func touch(mem []byte) {
	for i := range mem {
		mem[i] = byte(i)
	}
}

// benchStream runs send in a goroutine for each connection. send sends a message for each element
// of the channel and returns when they have arrived.
func benchStream(b *testing.B, conns int, send func(i int, messages <-chan struct{}) error) {
	b.Helper()
	messages := make(chan struct{})
	errs := make([]error, conns)
	var senders sync.WaitGroup
	for i := range conns {
		senders.Go(func() {
			if errs[i] = send(i, messages); errs[i] != nil {
				for range messages { // keeps senders from waiting for this goroutine
				}
			}
		})
	}
	b.ReportAllocs()
	b.SetBytes(benchMessage)
	start := time.Now()
	for b.Loop() {
		messages <- struct{}{}
	}
	close(messages)
	senders.Wait()
	b.ReportMetric(float64(b.N)*benchMessage/1e6/time.Since(start).Seconds(), "MB/s")
	require.NoError(b, errors.Join(errs...))
}

func tcpPair() (out, in net.Conn, err error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer ln.Close()
	if out, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		return nil, nil, err
	}
	if in, err = ln.Accept(); err != nil {
		out.Close()
	}
	return out, in, err
}

// BenchmarkPingPong measures half the round trip of a 64-byte RDMA Write with immediate, with
// goroutines that sleep at once and with goroutines that first poll for up to 50 us.
func BenchmarkPingPong(b *testing.B) {
	for _, mode := range []struct {
		name string
		spin time.Duration
	}{{"go", 0}, {"spin", 50 * time.Microsecond}} {
		b.Run(mode.name, func(b *testing.B) {
			a, p := connectEnds(b, usiw.Config{Spin: mode.spin})
			gone := make(chan error, 1)
			go func() {
				for {
					err := p.receive()
					if err == nil {
						_, err = p.qp.PostSend(p.next(verbs.WRRDMAWriteWithImm, 0, 64, a))
					}
					if err != nil {
						gone <- err
						return
					}
				}
			}()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := a.qp.PostSend(a.next(verbs.WRRDMAWriteWithImm, 0, 64, p)); err != nil {
					b.Fatal(err)
				}
				if err := a.receive(); err != nil {
					b.Fatal(err)
				}
			}
			reportOneWay(b)
			require.NoError(b, a.id.Close())
			require.ErrorIs(b, <-gone, verbs.WCWRFlushErr)
		})
	}
}

// BenchmarkTCPPingPong does the same over bare TCP.
func BenchmarkTCPPingPong(b *testing.B) {
	c, peer, err := tcpPair()
	require.NoError(b, err)
	defer peer.Close()
	gone := make(chan error, 1)
	go func() {
		buf := make([]byte, 64)
		for {
			_, err := io.ReadFull(peer, buf)
			if err == nil {
				_, err = peer.Write(buf)
			}
			if err != nil {
				gone <- err
				return
			}
		}
	}()
	buf := make([]byte, 64)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Write(buf); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, buf); err != nil {
			b.Fatal(err)
		}
	}
	reportOneWay(b)
	require.NoError(b, c.Close())
	require.Equal(b, io.EOF, <-gone)
}

func reportOneWay(b *testing.B) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/1e3/float64(b.N)/2, "us")
}

// BenchmarkFetchAdd keeps fetch-and-adds in progress: it reposts as many as have completed, as one
// list.
func BenchmarkFetchAdd(b *testing.B) {
	for _, depth := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("depth=%d", depth), func(b *testing.B) {
			a, p := connectEnds(b, usiw.Config{})
			wrs := make([]verbs.SendWR, depth)
			for i := range wrs {
				sge, err := a.mr.SGE(8*i, 8)
				require.NoError(b, err)
				wrs[i] = verbs.SendWR{Opcode: verbs.WRAtomicFetchAndAdd, Flags: verbs.SendSignaled,
					SGL: []verbs.SGE{sge}, Add: 1, RemoteAddr: p.mr.Addr(), RKey: p.mr.RKey()}
			}
			b.ReportAllocs()
			free, done := depth, 0
			for b.Loop() {
				if _, err := a.qp.PostSend(wrs[:free]); err != nil {
					b.Fatal(err)
				}
				var err error
				if free, err = a.wait(a.scq, len(a.wcs)); err != nil {
					b.Fatal(err)
				}
				done += free
			}
			b.ReportMetric(float64(done)/b.Elapsed().Seconds(), "ops/s")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(done), "ns/op")
			for left := depth - free; left > 0; {
				n, err := a.wait(a.scq, len(a.wcs))
				require.NoError(b, err)
				left -= n
			}
		})
	}
}

// BenchmarkPost measures posting a list of 16 RDMA Writes of 64 bytes and polling their
// completions. The system call dominates.
func BenchmarkPost(b *testing.B) {
	a, p := connectEnds(b, usiw.Config{})
	const list = 16
	wrs := make([]verbs.SendWR, list)
	for i := range wrs {
		wrs[i] = a.next(verbs.WRRDMAWrite, 0, 64, p)[0]
		wrs[i].SGL = []verbs.SGE{a.sgl[0]}
	}
	wrs[list-1].Flags = verbs.SendSignaled
	b.ReportAllocs()
	for b.Loop() {
		if _, err := a.qp.PostSend(wrs); err != nil {
			b.Fatal(err)
		}
		if _, err := a.wait(a.scq, 1); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/list, "ns/WR")
}
