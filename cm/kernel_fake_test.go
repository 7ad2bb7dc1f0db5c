// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package cm_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/internal/forward"
	"github.com/goverbs/goverbs/verbs"
)

// The tests of the files kernel_* run with a replacement of the libraries that needs no device.

// fakes are the two devices: one that follows InfiniBand, one that is like kernel siw.
var fakes = []struct{ name, ip string }{{"fake0", "192.0.2.1"}, {"fake1", "198.51.100.1"}}

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// device returns a device by its name.
func device(t *testing.T, name string) *verbs.Device {
	t.Helper()
	dev, err := verbs.DeviceByName(name)
	require.NoError(t, err)
	return dev
}

// newQP makes a QP in RESET with what it needs.
func newQP(t *testing.T, vctx *verbs.Context, typ verbs.QPType) *verbs.QP {
	t.Helper()
	pd, err := vctx.AllocPD()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pd.Close()) })
	cq, err := vctx.CreateCQ(verbs.CQConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cq.Close()) })
	qp, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq, Type: typ})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, qp.Close()) })
	return qp
}

// bench has the open objects of a test on one of them.
type bench struct {
	*testing.T
	dev  *verbs.Device
	name string // of the fake
	vctx *verbs.Context
	ln   *cm.Listener
	ip   string
}

func eachFake(t *testing.T, run func(b *bench)) {
	for _, f := range fakes {
		t.Run(f.name, func(t *testing.T) { run(newBench(t, f.name, f.ip, cm.Config{})) })
	}
}

func newBench(t *testing.T, name, ip string, cfg cm.Config) *bench {
	t.Helper()
	fakeverbs.Start(t)
	b := &bench{T: t, dev: device(t, name), name: name, ip: ip}
	if forwarded() {
		b.dev = forward.Wrap(b.dev)
		t.Cleanup(func() { require.NoError(t, b.dev.CloseShared()) })
	}
	channels := fakeverbs.Live()["event channel"]
	t.Cleanup(func() { // an attempt that was given up frees its ID in the background, and with the last ID the channel
		b.until("the end of the event channel", func() bool { return fakeverbs.Live()["event channel"] <= channels })
	})
	var err error
	b.vctx, err = b.dev.Open()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.vctx.Close()) })
	cfg.Context = b.vctx
	b.ln, err = cm.Listen(soon(t), net.JoinHostPort(ip, "0"), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.ln.Close()) })
	return b
}

func (b *bench) iwarp() bool { return b.dev.Info().Transport == verbs.TransportIWARP }

// qp makes a QP in RESET.
func (b *bench) qp(typ verbs.QPType) *verbs.QP {
	b.Helper()
	return newQP(b.T, b.vctx, typ)
}

func (b *bench) resolve(cfg cm.Config) *cm.ID {
	b.Helper()
	cfg.Context = b.vctx
	id, err := cm.Resolve(soon(b.T), b.ln.Addr().String(), cfg)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, id.Close()) })
	return id
}

// pair connects two QPs.
func (b *bench) pair(param cm.ConnParam) (active, passive *cm.ID) {
	b.Helper()
	return b.join(b.qp(0), b.qp(0), param, cm.ConnParam{})
}

// join connects two existing QPs.
func (b *bench) join(qp, other *verbs.QP, param, answer cm.ConnParam) (active, passive *cm.ID) {
	b.Helper()
	id := b.resolve(cm.Config{})
	done := make(chan error, 1)
	go func() {
		req, err := b.ln.Accept(soon(b.T))
		if err == nil {
			passive, err = req.Accept(soon(b.T), other, answer)
		}
		done <- err
	}()
	require.NoError(b, id.Connect(soon(b.T), qp, param))
	require.NoError(b, <-done)
	b.Cleanup(func() { require.NoError(b, passive.Close()) })
	return id, passive
}

// last returns librdmacm's newest id in a state.
func last(t *testing.T, state fakeverbs.CMState) (found fakeverbs.CMID) {
	t.Helper()
	for _, id := range fakeverbs.CMIDs() {
		if id.State == state {
			found = id
		}
	}
	require.NotZero(t, found.ID, "an id in state %d", state)
	return found
}

// idOf returns librdmacm's connected id of a QP.
func (b *bench) idOf(qp *verbs.QP) fakeverbs.CMID {
	b.Helper()
	for _, id := range fakeverbs.CMIDs() {
		if id.State == fakeverbs.CMConnected && id.Param.QPN == qp.Num() {
			return id
		}
	}
	require.FailNow(b, "no connected id", "QP %d", qp.Num())
	return fakeverbs.CMID{}
}

// outcome waits for the error that a call in another goroutine returns.
func (b *bench) outcome(of <-chan error) error {
	b.Helper()
	select {
	case err := <-of:
		return err
	case <-time.After(30 * time.Second):
		require.FailNow(b, "the call has not returned")
		return nil
	}
}

// until waits for a condition.
func (b *bench) until(what string, met func() bool) {
	b.Helper()
	require.Eventually(b, met, 20*time.Second, time.Millisecond, what)
}

// whenCalled runs then once librdmacm's function has been called again, and has taken an event that
// was set for it.
func (b *bench) whenCalled(function string, then func()) {
	before := fakeverbs.Calls(function)
	go func() {
		for fakeverbs.Calls(function) == before && b.Context().Err() == nil {
			time.Sleep(time.Millisecond)
		}
		then()
	}()
}

// untilCalled returns a context that whenCalled cancels.
func (b *bench) untilCalled(function string) context.Context {
	ctx, cancel := context.WithCancel(b.Context())
	b.whenCalled(function, cancel)
	return ctx
}

// expiring is a context whose deadline comes when done is closed.
type expiring struct {
	context.Context
	done chan struct{}
}

func (e expiring) Done() <-chan struct{} { return e.done }

func (e expiring) Err() error {
	select {
	case <-e.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// expiresWhenCalled returns a context whose deadline comes once the function has been called again.
func (b *bench) expiresWhenCalled(function string) context.Context {
	e := expiring{context.Background(), make(chan struct{})}
	b.whenCalled(function, func() { close(e.done) })
	return e
}

func wait(t *testing.T, ch <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(10 * time.Second):
		require.FailNow(t, "timed out waiting for "+what)
	}
}

// TestUnfaked: this package calls no function of the real libraries.
func TestUnfaked(t *testing.T) {
	fakeverbs.Start(t)
	id, err := cm.Resolve(soon(t), "192.0.2.1:1", cm.Config{Device: device(t, "fake0")})
	require.NoError(t, err)
	require.NoError(t, id.Close())
	require.NoError(t, device(t, "fake0").CloseShared())
	faked, missing := fakeverbs.Lookups()
	require.Subset(t, faked, []string{"ibv_create_qp", "rdma_connect"})
	require.Empty(t, missing)
}
