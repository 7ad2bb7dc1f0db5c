// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package interop

import (
	"bytes"
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// rights are all rights that a region of the kernel's siw can have.
const rights = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead

// memorySize is the size of the region on either side of a link.
const memorySize = 1<<20 + 8192

// linkConfig configures a link; zero = the default.
type linkConfig struct {
	kernelActive bool         // the kernel connects to the user-space RNIC instead of vice versa
	kernels      bool         // the kernel replaces the user-space RNIC too
	nic          usiw.Config  // of the user-space RNIC
	user, kernel cm.ConnParam //
	memory       int          // default: memorySize
}

// link is a connection between the user-space RNIC and the kernel's siw, both driven by the test.
type link struct {
	t            *testing.T
	user, kernel *side
}

// side is one end of a link.
type side struct {
	t        *testing.T
	ctx      *verbs.Context
	pd       *verbs.PD
	scq, rcq *verbs.CQ
	qp       *verbs.QP
	mem      *verbs.MR
	id       *cm.ID
	memory   int
}

// newSide opens a device.
func newSide(t *testing.T, dev *verbs.Device, memory int) *side {
	t.Helper()
	ctx, err := dev.Open()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, ctx.Close()) })
	return &side{t: t, ctx: ctx, memory: memory}
}

// kernelSide opens the kernel's device.
func kernelSide(t *testing.T, memory int) *side {
	t.Helper()
	dev, err := verbs.DeviceByName(kernelDevice)
	require.NoError(t, err)
	return newSide(t, dev, memory)
}

// link connects a new RNIC at the place with the kernel.
func (p place) link(t *testing.T, cfg linkConfig) *link {
	t.Helper()
	if cfg.memory == 0 {
		cfg.memory = memorySize
	}
	l := &link{t: t, kernel: kernelSide(t, cfg.memory)}
	if cfg.kernels {
		l.user = kernelSide(t, cfg.memory)
	} else {
		l.user = newSide(t, p.nic(t, cfg.nic), cfg.memory)
	}
	active, passive := l.user, l.kernel
	activeParam, passiveParam, host := cfg.user, cfg.kernel, kernelHost
	if cfg.kernelActive {
		active, passive = passive, active
		activeParam, passiveParam, host = passiveParam, activeParam, p.host
	}
	ln := passive.listen(host)
	active.resolve(ln.Addr().String())
	passive.open()
	ctx := soon(t)
	connected, accepted := make(chan error, 1), make(chan error, 1)
	go func() { connected <- active.id.Connect(ctx, active.qp, activeParam) }()
	go func() {
		req, err := ln.Accept(ctx)
		if err == nil {
			passive.id, err = req.Accept(ctx, passive.qp, passiveParam)
		}
		accepted <- err
	}()
	require.NoError(t, result(t, "Connect", connected))
	require.NoError(t, result(t, "Accept", accepted)) // may take until the RNIC sends another empty Write
	t.Cleanup(func() { assert.NoError(t, passive.id.Close()) })
	return l
}

// openTime is how long siw may take to notice the first message.
const openTime = 500 * time.Millisecond

// listen opens a listener at a host, with any port.
func (s *side) listen(host string) *cm.Listener {
	s.t.Helper()
	ln, err := cm.Listen(soon(s.t), anyPort(host), cm.Config{Context: s.ctx})
	require.NoError(s.t, err)
	s.t.Cleanup(func() { assert.NoError(s.t, ln.Close()) })
	return ln
}

// resolve creates an ID for a connection to address, and a QP for it in INIT.
func (s *side) resolve(address string) {
	s.t.Helper()
	var err error
	s.id, err = cm.Resolve(soon(s.t), address, cm.Config{Context: s.ctx})
	require.NoError(s.t, err)
	s.open()
	s.t.Cleanup(func() { assert.NoError(s.t, s.id.Close()) }) // before the QP, as cleanups run in reverse order
	require.NoError(s.t, s.id.BindQP(s.qp))
}

// open creates the objects of a side.
func (s *side) open() {
	s.t.Helper()
	closes := func(c interface{ Close() error }) { s.t.Cleanup(func() { assert.NoError(s.t, c.Close()) }) }
	var err error
	s.pd, err = s.ctx.AllocPD()
	require.NoError(s.t, err)
	closes(s.pd)
	s.scq, err = s.ctx.CreateCQ(verbs.CQConfig{CQE: 256})
	require.NoError(s.t, err)
	closes(s.scq)
	s.rcq, err = s.ctx.CreateCQ(verbs.CQConfig{CQE: 256})
	require.NoError(s.t, err)
	closes(s.rcq)
	s.mem = s.region(s.pd, s.memory, rights)
	s.qp, err = s.pd.CreateQP(verbs.QPConfig{SendCQ: s.scq, RecvCQ: s.rcq,
		Cap: verbs.QPCap{MaxSendWR: 128, MaxRecvWR: 128, MaxSendSGE: 2, MaxRecvSGE: 2}})
	require.NoError(s.t, err)
	closes(s.qp)
}

// region registers memory.
func (s *side) region(pd *verbs.PD, n int, access verbs.AccessFlags) *verbs.MR {
	s.t.Helper()
	mr, err := pd.AllocMR(n, access)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { assert.NoError(s.t, mr.Close()) })
	return mr
}

// sgl returns a list with one element for n bytes at off of the side's region, empty for n = 0.
func (s *side) sgl(off, n int) []verbs.SGE {
	s.t.Helper()
	if n == 0 {
		return nil
	}
	sge, err := s.mem.SGE(off, n)
	require.NoError(s.t, err)
	return []verbs.SGE{sge}
}

// at turns wr into a request on the other side's region.
func (s *side) at(wr verbs.SendWR, off int) verbs.SendWR {
	wr.RemoteAddr, wr.RKey = s.mem.Addr()+uint64(off), s.mem.RKey()
	return wr
}

// post posts requests, signalled.
func (s *side) post(wrs ...verbs.SendWR) {
	s.t.Helper()
	for i := range wrs {
		wrs[i].Flags |= verbs.SendSignaled
	}
	n, err := s.qp.PostSend(wrs)
	require.NoError(s.t, err)
	require.Equal(s.t, len(wrs), n)
}

// recv posts a receive.
func (s *side) recv(id uint64, sgl []verbs.SGE) {
	s.t.Helper()
	n, err := s.qp.PostRecv([]verbs.RecvWR{{ID: id, SGL: sgl}})
	require.NoError(s.t, err)
	require.Equal(s.t, 1, n)
}

// next waits for a completion.
func (s *side) next(cq *verbs.CQ) verbs.WC {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), waitLimit)
	defer cancel()
	var wcs [1]verbs.WC
	n, err := cq.Wait(ctx, wcs[:])
	require.NoError(s.t, err)
	require.Equal(s.t, 1, n)
	return wcs[0]
}

func (s *side) sent() verbs.WC     { s.t.Helper(); return s.next(s.scq) }
func (s *side) received() verbs.WC { s.t.Helper(); return s.next(s.rcq) }

// run posts a request and waits for its completion.
func (s *side) run(wr verbs.SendWR) verbs.WC {
	s.t.Helper()
	s.post(wr)
	return s.sent()
}

// ok requires a successful completion of a kind.
func (s *side) ok(wc verbs.WC, op verbs.WCOpcode) verbs.WC {
	s.t.Helper()
	require.Equal(s.t, verbs.WCSuccess, wc.Status, "%v: %v", wc.Status, s.qp.Err())
	require.Equal(s.t, op, wc.Opcode)
	return wc
}

// ended waits for the end of the connection and returns its reason.
func (s *side) ended() error {
	s.t.Helper()
	result(s.t, "the end of the connection", s.id.Done())
	return s.id.Err()
}

// fill writes a pattern with a long period into b.
func fill(b []byte, seed uint64) {
	_, _ = rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16)}).Read(b)
}

// guard is the value of the bytes around those that a transfer may change.
const guard = 0xee

// blank prepares n bytes at off of the side's region, and some around them, for a transfer.
func (s *side) blank(off, n int) {
	b := s.mem.Bytes()[max(off-64, 0):min(off+n+64, s.mem.Len())]
	for i := range b {
		b[i] = guard
	}
}

// holds requires that the bytes at off equal want, and that those around them are unchanged since
// blank.
func (s *side) holds(off int, want []byte) {
	s.t.Helper()
	b := s.mem.Bytes()
	if !bytes.Equal(want, b[off:off+len(want)]) {
		i := 0
		for want[i] == b[off+i] {
			i++
		}
		require.FailNow(s.t, "wrong content", "byte %d of %d is %#x, not %#x", i, len(want), b[off+i], want[i])
	}
	end := off + len(want)
	for i, c := range b[max(off-64, 0):off] {
		require.EqualValues(s.t, guard, c, "byte %d before the data", i)
	}
	for i, c := range b[end:min(end+64, len(b))] {
		require.EqualValues(s.t, guard, c, "byte %d behind the data", i)
	}
}
