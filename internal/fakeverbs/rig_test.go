// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package fakeverbs

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// rig holds one of each object on a device.
type rig struct{ ctx, pd, ch, cq, qp object }

func open(t *testing.T, dev int) object {
	t.Helper()
	devices, err := callDevices()
	require.NoError(t, err)
	require.Len(t, devices, 2)
	ctx, err := devices[dev].open()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ctx.closeDevice()) })
	return ctx
}

func newRig(t *testing.T, dev int) rig {
	t.Helper()
	Start(t)
	r := rig{ctx: open(t, dev)}
	var err error
	r.pd, err = r.ctx.allocPD()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.pd.deallocPD()) })
	r.ch, err = r.ctx.createChannel()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.ch.destroyChannel()) })
	r.cq, err = r.ctx.createCQ(16, r.ch)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.cq.destroyCQ()) })
	r.qp = r.newQP(t)
	return r
}

func (r rig) newQP(t *testing.T) object {
	t.Helper()
	qp, err := r.pd.createQP(qptRC, r.cq, r.cq, 8)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, qp.destroyQP()) })
	return qp
}

const (
	qptRC = 2
	qptUD = 4

	stateReset = 0
	stateInit  = 1
	stateRTR   = 2
	stateRTS   = 3
	stateErr   = 6

	maskState = 1
	maskInit  = 1<<4 | 1<<5 | 1<<3
	maskRTR   = 1<<7 | 1<<8 | 1<<20 | 1<<12 | 1<<17 | 1<<15
	maskRTS   = 1<<9 | 1<<10 | 1<<11 | 1<<16 | 1<<13

	opWrite        = 0
	opWriteWithImm = 1
	opSend         = 2
	opRead         = 4

	signaled = 1 << 1
	fence    = 1 << 0
	inline   = 1 << 3

	statusFlush = 5

	wcWrite = 1
	wcRead  = 2
	wcRecv  = 128
)

func (r rig) up(t *testing.T) {
	t.Helper()
	require.NoError(t, r.qp.modify(stateInit, maskInit))
	require.NoError(t, r.qp.modify(stateRTR, maskRTR))
	require.NoError(t, r.qp.modify(stateRTS, maskRTS))
}

// readable reports whether a descriptor is readable.
func readable(t *testing.T, fd int) bool {
	t.Helper()
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(p, 0)
	require.NoError(t, err)
	return n == 1
}

// record acts as a test that misuses the package.
type record struct {
	cleanup []func()
	errors  []string
}

func (r *record) Helper()          {}
func (r *record) Cleanup(f func()) { r.cleanup = append(r.cleanup, f) }
func (r *record) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

func (r *record) end() []string {
	for i := len(r.cleanup) - 1; i >= 0; i-- {
		r.cleanup[i]()
	}
	return r.errors
}
