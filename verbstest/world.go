// SPDX-License-Identifier: BSD-3-Clause

package verbstest

import (
	"context"
	"net/netip"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/verbs"
)

var (
	// waitLimit bounds every wait in the suite.
	waitLimit = slow * 10 * time.Second
	// quietTime is how long a test waits for something that must not happen.
	quietTime = slow * 20 * time.Millisecond
)

// slow multiplies every duration in the suite: on an emulated processor, GOVERBS_TEST_SLOW is set
// to more than 1.
var slow = func() time.Duration {
	n, err := strconv.Atoi(os.Getenv("GOVERBS_TEST_SLOW"))
	if err != nil || n < 1 {
		return 1
	}
	return time.Duration(n)
}()

// allRights are the rights that permit any request to use the memory.
const allRights = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic |
	verbs.AccessMWBind

// world holds the open objects of a test: a context and a PD on either side and a listener on the
// passive side. When the test ends, all are closed, and their Close must succeed.
type world struct {
	*testing.T
	f    Fabric
	a, b *host // active and passive side
	ln   *cm.Listener
	rec  *record
}

func newWorld(t *testing.T, f Fabric, rec *record) *world {
	t.Helper()
	w := &world{T: t, f: f, rec: rec, a: openHost(t, f.Active), b: openHost(t, f.Passive)}
	w.a.seed, w.b.seed = 0xa5, 0x3c
	w.a.listen, w.b.listen = f.listen(), f.listen()
	w.ln = w.listen(cm.Config{Context: w.b.ctx})
	return w
}

// listen opens a listener on the passive side.
func (w *world) listen(cfg cm.Config) *cm.Listener {
	w.Helper()
	ln, err := cm.Listen(within(w.T), w.f.Listen, cfg)
	require.NoError(w, err)
	w.Cleanup(func() { require.NoError(w, ln.Close()) })
	return ln
}

// run runs a test, or a part of one, and requires that it ended as its outcome says.
func (w *world) run(test func(w *world) outcome) {
	w.Helper()
	require.NoError(w, w.rec.check(test(w)))
}

// sub runs a subtest in the same world. The objects of the subtest are closed when it ends. What it
// records is also recorded for the whole test.
func (w *world) sub(name string, run func(w *world) outcome) {
	c := *w
	c.rec = &record{name: w.rec.name + "/" + name}
	ok := w.Run(name, func(t *testing.T) { c.with(t).run(run) })
	c.report(!ok)
	for _, l := range c.rec.lacks {
		w.rec.add(l)
	}
}

// with returns the same world for use in another test.
func (w *world) with(t *testing.T) *world {
	c, a, b := *w, *w.a, *w.b
	c.T, a.T, b.T = t, t, t
	c.a, c.b = &a, &b
	return &c
}

// iwarp reports whether the fabric is iWARP; otherwise it follows InfiniBand's rules.
func (w *world) iwarp() bool { return w.f.Active.Info().Transport == verbs.TransportIWARP }

// kernelIWARP reports whether the fabric is iWARP on a kernel device, which is siw.
func (w *world) kernelIWARP() bool { return w.iwarp() && ofKernel(w.f.Active) }

// siwBelow reports whether a device of the fabric is kernel siw, or wraps it.
func (w *world) siwBelow(dev *verbs.Device) bool { return w.overIWARP() && ofKernel(dev) }

// host is one side of a world.
type host struct {
	*testing.T
	ctx  *verbs.Context
	pd   *verbs.PD
	attr verbs.DeviceAttr
	seed byte // of the pattern in new regions; the other side's data differs
	// listen is the address of the passive side, zero if it is not an IP address.
	listen netip.Addr
}

func openHost(t *testing.T, dev *verbs.Device) *host {
	t.Helper()
	ctx, err := dev.Open()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ctx.Close()) })
	h := &host{T: t, ctx: ctx}
	h.attr, err = ctx.QueryDevice()
	require.NoError(t, err)
	h.pd = h.allocPD()
	return h
}

func (h *host) allocPD() *verbs.PD {
	h.Helper()
	pd, err := h.ctx.AllocPD()
	require.NoError(h, err)
	h.Cleanup(func() { require.NoError(h, pd.Close()) })
	return pd
}

func (h *host) createCQ(cfg verbs.CQConfig) *verbs.CQ {
	h.Helper()
	cq, err := h.ctx.CreateCQ(cfg)
	require.NoError(h, err)
	h.Cleanup(func() { require.NoError(h, cq.Close()) })
	return cq
}

func (h *host) createChannel() *verbs.CompChannel {
	h.Helper()
	ch, err := h.ctx.CreateCompChannel()
	require.NoError(h, err)
	h.Cleanup(func() { require.NoError(h, ch.Close()) })
	return ch
}

func (h *host) createQP(pd *verbs.PD, cfg verbs.QPConfig) *verbs.QP {
	h.Helper()
	qp, err := pd.CreateQP(cfg)
	require.NoError(h, err)
	h.Cleanup(func() { require.NoError(h, qp.Close()) })
	return qp
}

// within returns a context that expires after waitLimit or with the test.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	t.Cleanup(cancel)
	return ctx
}

// closes requires that ch is closed, or delivers a value, in time.
func closes[T any](t *testing.T, ch <-chan T, what string) T {
	t.Helper()
	timer := time.NewTimer(waitLimit)
	defer timer.Stop()
	select {
	case v := <-ch:
		return v
	case <-timer.C:
		require.FailNow(t, "timed out waiting for "+what)
	}
	panic("not reached")
}
