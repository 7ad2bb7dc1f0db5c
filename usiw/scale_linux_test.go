// SPDX-License-Identifier: BSD-3-Clause

package usiw_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/race"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// scaleServer is the environment variable that makes the test binary the passive process of a scale
// test: it prints its address, serves until its standard input ends, and prints its resource usage.
const scaleServer = "GOVERBS_SCALE_SERVER"

// scaleAccess grants the peer every access.
const scaleAccess = verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic

// usage is the memory and the number of goroutines and files that a process uses.
type usage struct {
	Goroutines int
	Files      int
	Memory     uint64 // bytes of heap and stacks in use
}

func measure() usage {
	runtime.GC()
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		panic(err)
	}
	return usage{Goroutines: runtime.NumGoroutine(), Files: len(files), Memory: m.HeapInuse + m.StackInuse}
}

// scaleSide is one process: one NIC, one PD, one CQ and one region for all connections.
type scaleSide struct {
	nic *usiw.NIC
	v   *verbs.Context
	pd  *verbs.PD
	cq  *verbs.CQ
	mr  *verbs.MR
}

func newScaleSide() (s *scaleSide, err error) { return newScaleSideOf(usiw.Config{}) }

func newScaleSideOf(cfg usiw.Config) (s *scaleSide, err error) {
	s = &scaleSide{}
	if s.nic, err = usiw.New(cfg); err != nil {
		return nil, err
	}
	if s.v, err = s.nic.Device().SharedContext(); err != nil {
		return nil, err
	}
	if s.pd, err = s.v.AllocPD(); err != nil {
		return nil, err
	}
	if s.cq, err = s.v.CreateCQ(verbs.CQConfig{CQE: 1 << 20}); err != nil {
		return nil, err
	}
	s.mr, err = s.pd.AllocMR(1<<20, scaleAccess)
	return s, err
}

func (s *scaleSide) qp() (*verbs.QP, error) {
	return s.pd.CreateQP(verbs.QPConfig{SendCQ: s.cq, RecvCQ: s.cq, Cap: verbs.QPCap{MaxSendWR: 16, MaxRecvWR: 16}})
}

func (s *scaleSide) close() error { return errors.Join(s.v.CloseAll(), s.nic.Close()) }

// scaleRegion is what the passive side sends when it accepts.
type scaleRegion struct {
	Addr uint64
	Key  uint32
}

// TestScaleServer is not a test but the passive process that the tests below start.
func TestScaleServer(t *testing.T) {
	if os.Getenv(scaleServer) == "" {
		return // run as part of the suite: the tests below assert everything
	}
	// The first use of the network opens descriptors of the runtime that stay open.
	first, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, first.Close())
	before := measure()
	s, err := newScaleSide()
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ln, err := cm.Listen(ctx, "127.0.0.1:0", cm.Config{Device: s.nic.Device(), Backlog: 1024})
	require.NoError(t, err)
	region, err := json.Marshal(scaleRegion{Addr: s.mr.Addr(), Key: s.mr.RKey()})
	require.NoError(t, err)
	var g errgroup.Group
	g.Go(func() error {
		for {
			r, err := ln.Accept(ctx)
			if err != nil {
				return nil
			}
			g.Go(func() error {
				qp, err := s.qp()
				if err != nil {
					return err
				}
				id, err := r.Accept(ctx, qp, cm.ConnParam{PrivateData: region})
				if err != nil {
					return errors.Join(err, qp.Close())
				}
				<-id.Done()
				return errors.Join(id.Close(), qp.Close())
			})
		}
	})
	fmt.Println(ln.Addr())
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() { // each line requests the usage
		if err := json.NewEncoder(os.Stdout).Encode(measure()); err != nil {
			t.Fatal(err)
		}
	}
	require.NoError(t, ln.Close())
	cancel()
	require.NoError(t, g.Wait())
	require.NoError(t, s.close())
	settled(t, before, measure)
}

// scalePeer is the test's view of the passive process.
type scalePeer struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	addr string
}

func startScalePeer(t *testing.T) *scalePeer {
	p := &scalePeer{cmd: exec.Command(os.Args[0], "-test.run=^TestScaleServer$", "-test.count=1")}
	p.cmd.Env = append(os.Environ(), scaleServer+"=1")
	p.cmd.Stderr = os.Stderr
	var err error
	p.in, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	p.out = bufio.NewReader(out)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
	})
	line, err := p.out.ReadString('\n')
	require.NoError(t, err)
	p.addr = line[:len(line)-1]
	return p
}

func (p *scalePeer) usage(t *testing.T) (u usage) {
	_, err := io.WriteString(p.in, "\n")
	require.NoError(t, err)
	line, err := p.out.ReadBytes('\n')
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(line, &u))
	return u
}

// end lets the process exit; the process itself checks that nothing is left over.
func (p *scalePeer) end(t *testing.T) {
	require.NoError(t, p.in.Close())
	rest, err := io.ReadAll(p.out)
	require.NoError(t, err)
	require.NoError(t, p.cmd.Wait(), "%s", rest)
}

// connection is one of many.
type connection struct {
	id     *cm.ID
	qp     *verbs.QP
	region scaleRegion
}

func (s *scaleSide) connect(ctx context.Context, addr string) (*connection, error) {
	c := &connection{}
	var err error
	if c.id, err = cm.Resolve(ctx, addr, cm.Config{Device: s.nic.Device()}); err != nil {
		return nil, err
	}
	if c.qp, err = s.qp(); err != nil {
		return nil, err
	}
	if err := c.id.Connect(ctx, c.qp, cm.ConnParam{}); err != nil {
		return nil, err
	}
	return c, json.Unmarshal(c.id.PrivateData(), &c.region)
}

// connectAll makes n connections, a few at once.
func (s *scaleSide) connectAll(t *testing.T, addr string, n int) []*connection {
	all := make([]*connection, n)
	g, ctx := errgroup.WithContext(context.Background())
	g.SetLimit(32)
	for i := range all {
		g.Go(func() (err error) {
			all[i], err = s.connect(ctx, addr)
			return err
		})
	}
	require.NoError(t, g.Wait())
	return all
}

// closeAll closes connections, a few at once, because each close waits for the peer's.
func closeAll(t *testing.T, all []*connection) {
	var g errgroup.Group
	g.SetLimit(64)
	for _, c := range all {
		g.Go(func() error { return errors.Join(c.id.Close(), c.qp.Close()) })
	}
	require.NoError(t, g.Wait())
}

// settled waits until a process uses no more goroutines and files than before.
func settled(t *testing.T, before usage, now func() usage) {
	var u usage
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if u = now(); u.Goroutines <= before.Goroutines && u.Files <= before.Files {
			return
		}
	}
	t.Fatalf("before: %+v, after: %+v", before, u)
}

// TestScaleOperations makes 1,000 connections between two processes, performs 100 operations on
// each, and closes them, all of it twice. No goroutine, descriptor or memory is left over in either
// process. A process retains some memory for reuse after the first or second round; if the second
// round needs more memory than the first, there is a third.
func TestScaleOperations(t *testing.T) {
	const connections, operations = 1000, 100
	needFiles(t, connections+200)
	peer := startScalePeer(t)
	s, err := newScaleSide()
	require.NoError(t, err)
	before, peerBefore := measure(), peer.usage(t)
	const slack = 1 << 20
	active, passive := []uint64{before.Memory}, []uint64{peerBefore.Memory}
	grows := func(m []uint64) bool { // in every round after the first
		for i := 2; i < len(m); i++ {
			if m[i] < m[i-1]+slack {
				return false
			}
		}
		return true
	}
	for round := 0; round < 2 || round == 2 && (grows(active) || grows(passive)); round++ {
		all := s.connectAll(t, peer.addr, connections)
		s.operate(t, all, operations, uint64(round)*connections*operations/4)
		closeAll(t, all)
		clear(all)
		settled(t, before, measure)
		settled(t, peerBefore, func() usage { return peer.usage(t) })
		active, passive = append(active, measure().Memory), append(passive, peer.usage(t).Memory)
	}
	for name, m := range map[string][]uint64{"active": active, "passive": passive} {
		t.Logf("%s process: bytes before, after %d connections, after as many again: %d", name, connections, m)
		require.Less(t, m[1], m[0]+8<<20, "%s: memory is left", name)
		require.False(t, grows(m), "%s: memory is left by each connection: %d", name, m)
	}
	require.NoError(t, s.close())
	peer.end(t)
}

// operate performs operations on each connection, a quarter of them fetch-and-adds on one word,
// which must hold added beforehand.
func (s *scaleSide) operate(t *testing.T, all []*connection, operations int, added uint64) {
	for i, c := range all {
		sge, err := s.mr.SGE(i%1000*1024, 64)
		require.NoError(t, err)
		word, err := s.mr.SGE(i%1000*1024+64, 8)
		require.NoError(t, err)
		remote := c.region.Addr + uint64(i%1000*1024)
		wrs := []verbs.SendWR{
			{Opcode: verbs.WRRDMAWrite, SGL: []verbs.SGE{sge}, RemoteAddr: remote, RKey: c.region.Key},
			{Opcode: verbs.WRRDMARead, SGL: []verbs.SGE{sge}, RemoteAddr: remote, RKey: c.region.Key},
			{Opcode: verbs.WRAtomicFetchAndAdd, Add: 1, SGL: []verbs.SGE{word}, RemoteAddr: c.region.Addr + 1<<20 - 8,
				RKey: c.region.Key},
			{Opcode: verbs.WRRDMARead, Flags: verbs.SendSignaled, SGL: []verbs.SGE{sge}, RemoteAddr: remote,
				RKey: c.region.Key},
		}
		for range operations / len(wrs) {
			s.run(t, c, wrs)
		}
	}
	word, err := s.mr.SGE(0, 8)
	require.NoError(t, err)
	c := all[0]
	s.run(t, c, []verbs.SendWR{{Opcode: verbs.WRAtomicFetchAndAdd, Flags: verbs.SendSignaled, SGL: []verbs.SGE{word},
		RemoteAddr: c.region.Addr + 1<<20 - 8, RKey: c.region.Key}})
	require.EqualValues(t, added+uint64(len(all)*operations/4), binary.NativeEndian.Uint64(s.mr.Bytes()))
}

// run posts a list whose last request is signalled, and requires it to succeed.
func (s *scaleSide) run(t *testing.T, c *connection, wrs []verbs.SendWR) {
	_, err := c.qp.PostSend(wrs)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var wc [1]verbs.WC
	_, err = s.cq.Wait(ctx, wc[:])
	require.NoError(t, err)
	require.Equal(t, verbs.WCSuccess, wc[0].Status)
}

// needFiles raises the soft limit of open files to the hard one and fails if that is less than n.
func needFiles(t *testing.T, n int) int {
	var l unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &l))
	if l.Cur < l.Max {
		l.Cur = l.Max
		require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &l))
	}
	t.Logf("RLIMIT_NOFILE is %d", l.Cur)
	if l.Cur < uint64(n) {
		t.Fatalf("RLIMIT_NOFILE is %d, the test needs %d", l.Cur, n)
	}
	return int(min(l.Cur, 1<<30))
}

// TestScaleIdle makes 10,000 connections between two processes, or as many as the limit on open
// files allows, and reports the memory cost of an idle one.
func TestScaleIdle(t *testing.T) {
	limit := needFiles(t, 5200)
	connections := min(10000, limit-200)
	if race.Enabled {
		connections = 500 // the race detector needs memory and time itself, so the figures mean nothing
	}
	peer := startScalePeer(t)
	s, err := newScaleSide()
	require.NoError(t, err)
	before, peerBefore := measure(), peer.usage(t)
	began := time.Now()
	all := s.connectAll(t, peer.addr, connections)
	took := time.Since(began)
	with, peerWith := measure(), peer.usage(t)
	t.Logf("%d connections in %v; per idle connection: active %d bytes, passive %d bytes (heap and stacks)",
		connections, took.Round(time.Millisecond), (with.Memory-before.Memory)/uint64(connections),
		(peerWith.Memory-peerBefore.Memory)/uint64(connections))
	if !race.Enabled {
		require.Less(t, (with.Memory-before.Memory)/uint64(connections), uint64(16<<10), "active")
		require.Less(t, (peerWith.Memory-peerBefore.Memory)/uint64(connections), uint64(16<<10), "passive")
	}
	closeAll(t, all)
	clear(all)
	settled(t, before, measure)
	settled(t, peerBefore, func() usage { return peer.usage(t) })
	require.NoError(t, s.close())
	peer.end(t)
}
