// SPDX-License-Identifier: BSD-3-Clause

package connections

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/forward"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

var kernelDevices = []struct{ name, ip, ip6 string }{
	{"rxe0", "10.78.0.1", "fd00:78::1"},
	{"siw0", "10.77.0.1", "fd00:77::1"},
}

func TestMain(m *testing.M) { rdmatest.Main(m) }

// half is one end of a connection with the objects it needs.
type half struct {
	*testing.T
	vctx *verbs.Context
	pd   *verbs.PD
	cq   *verbs.CQ
	qp   *verbs.QP
	mr   *verbs.MR
	id   *cm.ID
}

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// newHalf creates a QP and closes everything when the test ends.
func newHalf(t *testing.T, vctx *verbs.Context, typ verbs.QPType) *half {
	t.Helper()
	h := &half{T: t, vctx: vctx}
	var err error
	h.pd, err = vctx.AllocPD()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.pd.Close()) })
	h.cq, err = vctx.CreateCQ(verbs.CQConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.cq.Close()) })
	h.qp, err = h.pd.CreateQP(verbs.QPConfig{SendCQ: h.cq, RecvCQ: h.cq, Type: typ})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.qp.Close()) })
	h.mr, err = h.pd.AllocMR(4096, verbs.AccessLocalWrite|verbs.AccessRemoteRead|verbs.AccessRemoteWrite)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.mr.Close()) })
	return h
}

// accept accepts the next request of ln, with a receive posted as id and data for the peer, and
// delivers the result.
func (h *half) accept(ln *cm.Listener, id uint64, data string) chan error {
	accepted := make(chan error, 1)
	go func() {
		req, err := ln.Accept(soon(h.T))
		if err == nil {
			err = req.BindQP(h.qp)
		}
		if err == nil {
			h.recv(id)
			h.id, err = req.Accept(soon(h.T), h.qp, cm.ConnParam{PrivateData: []byte(data)})
		}
		accepted <- err
	}()
	return accepted
}

func (h *half) recv(id uint64) {
	h.Helper()
	_, err := h.qp.PostRecv(
		[]verbs.RecvWR{{ID: id, SGL: []verbs.SGE{{Addr: h.mr.Addr(), Length: 4096, LKey: h.mr.LKey()}}}})
	require.NoError(h, err)
}

func (h *half) next() verbs.WC {
	h.Helper()
	var wcs [1]verbs.WC
	n, err := h.cq.Wait(soon(h.T), wcs[:])
	require.NoError(h, err)
	require.Equal(h, 1, n)
	return wcs[0]
}

func (h *half) send(text string) {
	h.Helper()
	n := copy(h.mr.Bytes(), text)
	_, err := h.qp.PostSend([]verbs.SendWR{{ID: 7, Opcode: verbs.WRSend, Flags: verbs.SendSignaled,
		SGL: []verbs.SGE{{Addr: h.mr.Addr(), Length: uint32(n), LKey: h.mr.LKey()}}}})
	require.NoError(h, err)
	require.Equal(h, verbs.WCSuccess, h.next().Status)
}

// device returns a kernel device. With GOVERBS_TEST_FORWARDED it is a wrapper that only forwards.
func device(t *testing.T, name string) *verbs.Device {
	rdmatest.KernelDevice(t, name)
	dev, err := verbs.DeviceByName(name)
	require.NoError(t, err)
	if os.Getenv("GOVERBS_TEST_FORWARDED") != "" {
		dev = forward.Wrap(dev)
		t.Cleanup(func() { require.NoError(t, dev.CloseShared()) })
	}
	return dev
}

func eachKernelDevice(t *testing.T, run func(t *testing.T, dev *verbs.Device, ip string)) {
	for _, d := range kernelDevices {
		t.Run(d.name, func(t *testing.T) { run(t, device(t, d.name), d.ip) })
		t.Run(d.name+"/IPv6", func(t *testing.T) { run(t, device(t, d.name), d.ip6) })
	}
}

// TestKernelConnection opens a connection, uses it, and closes it from either side.
func TestKernelConnection(t *testing.T) {
	eachKernelDevice(t, func(t *testing.T, dev *verbs.Device, ip string) {
		for _, byActive := range []bool{true, false} {
			ln, err := cm.Listen(soon(t), net.JoinHostPort(ip, "0"), cm.Config{Device: dev})
			require.NoError(t, err)
			defer func() { require.NoError(t, ln.Close()) }()
			id, err := cm.Resolve(soon(t), ln.Addr().String(), cm.Config{Device: dev})
			require.NoError(t, err)
			defer func() { require.NoError(t, id.Close()) }()
			a, b := newHalf(t, id.Context(), 0), newHalf(t, id.Context(), 0)
			require.NoError(t, id.BindQP(a.qp))
			a.recv(1)
			accepted := b.accept(ln, 2, "welcome")
			require.NoError(t, id.Connect(soon(t), a.qp, cm.ConnParam{PrivateData: []byte("hello")}))
			require.NoError(t, <-accepted)
			defer func() { require.NoError(t, b.id.Close()) }()
			t.Log(id, b.id)
			require.Equal(t, "welcome", string(id.PrivateData()[:7]))
			require.Equal(t, "hello", string(b.id.PrivateData()[:5]))
			a.send("across")
			require.EqualValues(t, 2, b.next().ID)
			require.Equal(t, "across", string(b.mr.Bytes()[:6]))
			b.send("and back")
			require.EqualValues(t, 1, a.next().ID)
			a.recv(3)
			b.recv(4)
			from, to := id, b.id
			if !byActive {
				from, to = to, from
			}
			require.NoError(t, from.Disconnect())
			for _, x := range []*cm.ID{from, to} {
				select {
				case <-x.Done():
				case <-time.After(10 * time.Second):
					require.Fail(t, "no end")
				}
			}
			require.ErrorIs(t, from.Err(), verbs.ErrClosed)
			require.ErrorIs(t, to.Err(), io.EOF)
			for _, h := range []*half{a, b} {
				require.Equal(t, verbs.WCWRFlushErr, h.next().Status)
			}
		}
	})
}

// TestKernelReject: the private data of a rejection arrives.
func TestKernelReject(t *testing.T) {
	eachKernelDevice(t, func(t *testing.T, dev *verbs.Device, ip string) {
		ln, err := cm.Listen(soon(t), net.JoinHostPort(ip, "0"), cm.Config{Device: dev})
		require.NoError(t, err)
		defer func() { require.NoError(t, ln.Close()) }()
		id, err := cm.Resolve(soon(t), ln.Addr().String(), cm.Config{Device: dev})
		require.NoError(t, err)
		defer func() { require.NoError(t, id.Close()) }()
		a := newHalf(t, id.Context(), 0)
		rejected := make(chan error, 1)
		go func() {
			req, err := ln.Accept(soon(t))
			if err == nil {
				err = req.Reject([]byte("no room"))
			}
			rejected <- err
		}()
		err = id.Connect(soon(t), a.qp, cm.ConnParam{})
		require.NoError(t, <-rejected)
		var re *cm.RejectedError
		require.True(t, errors.As(err, &re), "%v", err)
		require.Equal(t, "no room", string(re.PrivateData[:7]))
	})
}

// TestKernelRefused: a connection to a port without a listener is refused, but not by a program of
// the peer.
func TestKernelRefused(t *testing.T) {
	eachKernelDevice(t, func(t *testing.T, dev *verbs.Device, ip string) {
		id, err := cm.Resolve(soon(t), net.JoinHostPort(ip, "9"), cm.Config{Device: dev})
		require.NoError(t, err)
		defer func() { require.NoError(t, id.Close()) }()
		err = id.Connect(soon(t), newHalf(t, id.Context(), 0).qp, cm.ConnParam{})
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		require.NotErrorIs(t, err, cm.ErrRejected)
	})
}

// TestKernelWildcard: one listener serves both address families, and, if the address chooses, every
// device.
func TestKernelWildcard(t *testing.T) {
	for _, d := range kernelDevices {
		rdmatest.KernelDevice(t, d.name)
	}
	ln, err := cm.Listen(soon(t), ":0", cm.Config{})
	require.NoError(t, err)
	defer func() { require.NoError(t, ln.Close()) }()
	require.GreaterOrEqual(t, len(ln.Devices()), 2)
	_, port, err := net.SplitHostPort(ln.Addr().String())
	require.NoError(t, err)
	for _, d := range kernelDevices {
		for _, ip := range []string{d.ip, d.ip6} {
			id, err := cm.Resolve(soon(t), net.JoinHostPort(ip, port), cm.Config{})
			require.NoError(t, err)
			require.Equal(t, d.name, id.Context().Device().Name(), "whose route it is")
			rejected := make(chan error, 1)
			go func() {
				req, err := ln.Accept(soon(t))
				if err == nil && req.Context() != id.Context() {
					err = errors.New("a context of another device")
				}
				if err == nil {
					err = req.Reject([]byte(d.name))
				}
				rejected <- err
			}()
			err = id.Connect(soon(t), newHalf(t, id.Context(), 0).qp, cm.ConnParam{})
			require.NoError(t, <-rejected)
			var re *cm.RejectedError
			require.ErrorAs(t, err, &re)
			require.Equal(t, d.name, string(re.PrivateData[:4]))
			require.NoError(t, id.Close())
		}
	}
	_, err = cm.Resolve(soon(t), "127.0.0.1:9", cm.Config{})
	require.ErrorIs(t, err, verbs.ErrNoDevice)
	require.ErrorContains(t, err, "rxe0")
	require.ErrorContains(t, err, "siw0")
}

// TestKernelGivesUp: a Connect to a peer that never answers can be canceled immediately.
func TestKernelGivesUp(t *testing.T) {
	eachKernelDevice(t, func(t *testing.T, dev *verbs.Device, ip string) {
		ln, err := cm.Listen(soon(t), net.JoinHostPort(ip, "0"), cm.Config{Device: dev})
		require.NoError(t, err)
		defer func() { require.NoError(t, ln.Close()) }()
		id, err := cm.Resolve(soon(t), ln.Addr().String(), cm.Config{Device: dev})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, cancel)
		qp := newHalf(t, id.Context(), 0).qp
		began := time.Now()
		require.ErrorIs(t, id.Connect(ctx, qp, cm.ConnParam{}), context.Canceled)
		require.NoError(t, id.Close())
		require.Less(t, time.Since(began), 5*time.Second)
	})
}
