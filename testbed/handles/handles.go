// SPDX-License-Identifier: BSD-3-Clause

// Package handles misuses every handle: it uses them after Close, closes them twice, during a wait,
// and before the objects that depend on them. It runs on every provider, because using a freed C
// object would crash.
package handles

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/asleep"
	"github.com/goverbs/goverbs/verbs"
)

// limit bounds every wait.
const limit = 30 * time.Second

// handle is one object under test. Its parents precede it.
type handle struct {
	name  string
	value interface{ Close() error }
	busy  bool // other objects depend on it
}

// world holds one object of every kind, some of them connected.
type world struct {
	*testing.T
	dev     *verbs.Device
	listen  string
	handles []*handle

	ctx     *verbs.Context
	pd      *verbs.PD
	mr      *verbs.MR
	ch      *verbs.CompChannel
	cq      *verbs.CQ // for CQ.Wait
	shared  *verbs.CQ // of ch
	qp      *verbs.QP
	ln      *cm.Listener
	id      *cm.ID      // of qp
	request *cm.Request // answered by far
}

func (w *world) add(name string, busy bool, value interface{ Close() error }) {
	w.handles = append(w.handles, &handle{name, value, busy})
	w.Cleanup(func() { require.NoError(w, value.Close()) })
}

// made requires that an object was created, or that the device does not support this kind of
// object.
func (w *world) made(err error) bool {
	w.Helper()
	if errors.Is(err, verbs.ErrNotSupported) {
		return false
	}
	require.NoError(w, err)
	return true
}

// within returns a context for one call.
func (w *world) within() context.Context {
	ctx, cancel := context.WithTimeout(w.Context(), limit)
	w.Cleanup(cancel)
	return ctx
}

func (w *world) createQP(srq *verbs.SRQ) *verbs.QP {
	w.Helper()
	qp, err := w.pd.CreateQP(verbs.QPConfig{SendCQ: w.cq, RecvCQ: w.shared, SRQ: srq})
	require.NoError(w, err)
	return qp
}

func newWorld(t *testing.T, dev *verbs.Device, listen string) *world {
	t.Helper()
	w := &world{T: t, dev: dev, listen: listen}
	var err error
	w.ctx, err = dev.Open()
	require.NoError(w, err)
	w.add("Context", true, w.ctx)
	w.ch, err = w.ctx.CreateCompChannel()
	require.NoError(w, err)
	w.add("CompChannel", true, w.ch)
	w.cq, err = w.ctx.CreateCQ(verbs.CQConfig{})
	require.NoError(w, err)
	w.add("CQ", true, w.cq)
	w.shared, err = w.ctx.CreateCQ(verbs.CQConfig{Channel: w.ch})
	require.NoError(w, err)
	w.add("CQ of a channel", true, w.shared)
	w.pd, err = w.ctx.AllocPD()
	require.NoError(w, err)
	w.add("PD", true, w.pd)
	w.mr, err = w.pd.AllocMR(4096, verbs.AccessLocalWrite|verbs.AccessRemoteRead|verbs.AccessRemoteWrite)
	require.NoError(w, err)
	w.add("MR", false, w.mr)
	for _, typ := range []verbs.MWType{verbs.MWType1, verbs.MWType2} {
		if mw, err := w.pd.AllocMW(typ); w.made(err) {
			w.add("MW", false, mw)
		}
	}
	if srq, err := w.pd.CreateSRQ(verbs.SRQAttr{}); w.made(err) {
		w.add("SRQ", true, srq)
		w.add("QP of an SRQ", false, w.createQP(srq))
	}
	if path, ok := w.path(); ok {
		if ah, err := w.pd.CreateAH(path); w.made(err) {
			w.add("AH", false, ah)
		}
	}
	w.qp = w.createQP(nil)
	w.add("QP", false, w.qp)
	w.connect()
	return w
}

// path returns a path to the device itself, if it has reachable GIDs.
func (w *world) path() (verbs.AHAttr, bool) {
	gids, err := w.ctx.GIDs(1)
	if !w.made(err) || w.dev.Info().Transport == verbs.TransportIWARP {
		return verbs.AHAttr{}, false
	}
	require.NotEmpty(w, gids)
	return verbs.AHAttr{IsGlobal: true, PortNum: 1,
		GRH: verbs.GlobalRoute{DGID: gids[0].GID, SGIDIndex: uint8(gids[0].Index), HopLimit: 64}}, true
}

// connect creates a listener, a connection to it, and an unconnected ID.
func (w *world) connect() {
	w.Helper()
	var err error
	w.ln, err = cm.Listen(w.within(), w.listen, cm.Config{Context: w.ctx})
	require.NoError(w, err)
	w.add("Listener", false, w.ln)
	fresh, err := cm.Resolve(w.within(), w.ln.Addr().String(), cm.Config{Context: w.ctx})
	require.NoError(w, err)
	w.add("ID", false, fresh)
	w.id, err = cm.Resolve(w.within(), w.ln.Addr().String(), cm.Config{Context: w.ctx})
	require.NoError(w, err)
	w.add("connected ID", false, w.id)
	far := w.createQP(nil)
	w.add("accepted QP", false, far)
	connected := make(chan error, 1)
	go func() { connected <- w.id.Connect(w.within(), w.qp, cm.ConnParam{}) }()
	w.request, err = w.ln.Accept(w.within())
	require.NoError(w, err)
	id, err := w.request.Accept(w.within(), far, cm.ConnParam{})
	require.NoError(w, err)
	w.add("accepted ID", false, id)
	require.NoError(w, w.returns(connected, "Connect"))
}

// returns requires that a call returns.
func (w *world) returns(ch <-chan error, what string) error {
	w.Helper()
	select {
	case err := <-ch:
		return err
	case <-time.After(limit):
		require.FailNow(w, what+" does not return")
	}
	panic("not reached")
}

// Run runs the tests on a device that connects to itself.
func Run(t *testing.T, dev *verbs.Device, listen string) {
	t.Run("ParentsFirst", func(t *testing.T) { newWorld(t, dev, listen).parentsFirst() })
	t.Run("UseAfterClose", func(t *testing.T) { newWorld(t, dev, listen).useAfterClose() })
	t.Run("UseDuringClose", func(t *testing.T) { newWorld(t, dev, listen).useDuringClose() })
	t.Run("CloseDuringWait", func(t *testing.T) { newWorld(t, dev, listen).closeDuringWait() })
	t.Run("CloseAll", func(t *testing.T) { newWorld(t, dev, listen).closeAll() })
}

// parentsFirst: no object can be closed before those that depend on it, and the refusal has no
// effect.
func (w *world) parentsFirst() {
	for range 2 {
		for _, h := range w.handles {
			if h.busy {
				require.ErrorIs(w, h.value.Close(), verbs.ErrBusy, h.name)
			}
		}
	}
	_, err := w.ctx.QueryDevice()
	require.NoError(w, err)
	n, err := w.qp.PostRecv([]verbs.RecvWR{{ID: 1}})
	require.NoError(w, err)
	require.Equal(w, 1, n)
	require.NoError(w, w.cq.ReqNotify(false))
}

// closeInOrder closes everything, children first, each object three times.
func (w *world) closeInOrder() {
	for i := len(w.handles) - 1; i >= 0; i-- {
		for range 3 {
			require.NoError(w, w.handles[i].value.Close(), w.handles[i].name)
		}
	}
}

// useAfterClose calls every method of every closed handle.
func (w *world) useAfterClose() {
	w.closeInOrder()
	for _, h := range w.handles {
		calls := w.callAll(h, func(name string, err error) {
			if want, ok := exceptions[name]; ok {
				if want != nil {
					require.ErrorIs(w, err, want, "%s: %s", h.name, name)
				}
				return
			}
			if !errors.Is(err, verbs.ErrNotSupported) { // some calls find this out before they use the handle
				require.ErrorIs(w, err, verbs.ErrClosed, "%s: %s", h.name, name)
			}
		})
		_, window := h.value.(*verbs.MW)
		_, path := h.value.(*verbs.AH)
		require.Equal(w, window || path, calls == 0, "%s has methods that can fail", h.name)
	}
	w.closeInOrder()
	// A request has no Close: it ends when it is answered.
	require.ErrorIs(w, w.request.Reject(nil), verbs.ErrInvalid)
	_, err := w.request.Accept(w.within(), w.qp, cm.ConnParam{})
	require.ErrorIs(w, err, verbs.ErrClosed)
	require.ErrorIs(w, w.request.BindQP(w.qp), verbs.ErrClosed)
	w.callAll(&handle{name: "Request"}, func(string, error) {})
}

// exceptions lists methods that do not use the device, or check their arguments first, with their
// results.
var exceptions = map[string]error{
	"ID.Err":          nil,
	"ID.Disconnect":   nil, // it is idempotent
	"ID.Abort":        nil, // as Disconnect
	"ID.CloseContext": nil, // as Close
	"QP.Err":          nil,
	"QP.Cause":        nil, // the argument is not a completion

	"CompChannel.Release": nil, // as Close
	"CQ.Wait":             nil,
	"CQ.WaitSolicited":    nil,
}

// callAll calls all methods of a handle with dummy arguments.
func (w *world) callAll(h *handle, judge func(name string, err error)) (calls int) {
	v := reflect.ValueOf(h.value)
	if h.value == nil {
		v = reflect.ValueOf(w.request)
	}
	for i := range v.NumMethod() {
		m := v.Type().Method(i)
		switch m.Name {
		case "Close", "CloseAll":
			continue
		case "Format", "MarshalJSON": // a closed handle is printed like any other
			js, err := json.Marshal(h.value)
			require.NoError(w, err, h.name)
			require.NotEmpty(w, fmt.Sprintf("%+v %s", v.Interface(), js))
			continue
		}
		var args []reflect.Value
		for k := range v.Method(i).Type().NumIn() {
			args = append(args, w.argument(v.Method(i).Type().In(k)))
		}
		done := make(chan []reflect.Value, 1)
		go func() { done <- v.Method(i).Call(args) }()
		var out []reflect.Value
		select {
		case out = <-done:
		case <-time.After(limit):
			require.FailNow(w, h.name+": "+m.Name+" does not return")
		}
		if len(out) == 0 || out[len(out)-1].Type() != reflect.TypeFor[error]() {
			continue
		}
		calls++
		err, _ := out[len(out)-1].Interface().(error)
		judge(v.Type().Elem().Name()+"."+m.Name, err)
	}
	return calls
}

// argument returns an argument: a context that is never done, a closed QP, a multicast address, a
// slice with one element, or the zero value.
func (w *world) argument(t reflect.Type) reflect.Value {
	switch {
	case t == reflect.TypeFor[context.Context]():
		return reflect.ValueOf(context.Background())
	case t == reflect.TypeFor[*verbs.QP]():
		return reflect.ValueOf(w.qp)
	case t == reflect.TypeFor[netip.Addr]():
		return reflect.ValueOf(netip.MustParseAddr("239.1.2.3"))
	case t.Kind() == reflect.Slice:
		return reflect.MakeSlice(t, 1, 1)
	}
	return reflect.Zero(t)
}

// useDuringClose closes all objects while goroutines call their methods.
func (w *world) useDuringClose() {
	stop := make(chan struct{})
	ended := make(chan error, len(w.handles))
	for _, h := range w.handles {
		go func() {
			for {
				select {
				case <-stop:
					ended <- nil
					return
				default:
					w.pound(h.value)
				}
			}
		}()
	}
	time.Sleep(10 * time.Millisecond)
	for i := len(w.handles) - 1; i >= 0; i-- {
		// A goroutine may be holding a child of this object.
		h := w.handles[i]
		require.Eventually(w, func() bool {
			err := h.value.Close()
			if !errors.Is(err, verbs.ErrBusy) {
				require.NoError(w, err, h.name)
			}
			return err == nil
		}, limit, time.Millisecond, h.name)
	}
	close(stop)
	for range w.handles {
		require.NoError(w, w.returns(ended, "a call"))
	}
}

// pound calls methods that neither wait nor leave anything open.
func (w *world) pound(value any) {
	_ = fmt.Sprintf("%+v", value)
	switch v := value.(type) {
	case *verbs.Context:
		_, _ = v.QueryDevice()
		_, _ = v.QueryPort(1)
		if pd, err := v.AllocPD(); err == nil {
			_ = pd.Close()
		}
	case *verbs.CompChannel:
		if cq, err := w.ctx.CreateCQ(verbs.CQConfig{Channel: v}); err == nil {
			_ = cq.Close()
		}
	case *verbs.CQ:
		var wcs [1]verbs.WC
		_, _ = v.Poll(wcs[:])
		_ = v.ReqNotify(false)
	case *verbs.PD:
		if mr, err := v.AllocMR(64, 0); err == nil {
			_ = mr.Close()
		}
	case *verbs.MR:
		_, _ = v.SGE(0, 8)
		_ = v.RKey()
	case *verbs.MW:
		_ = v.NextRKey()
	case *verbs.SRQ:
		_, _ = v.Query()
		_, _ = v.PostRecv([]verbs.RecvWR{{}})
	case *verbs.AH:
		_ = v.Attr()
	case *verbs.QP:
		_, _ = v.Query()
		_, _ = v.PostRecv([]verbs.RecvWR{{}})
		_, _ = v.PostSend([]verbs.SendWR{{Opcode: verbs.WRSend}})
	case *cm.Listener:
		_ = v.Addr()
	case *cm.ID:
		_ = v.String()
		_ = v.Err()
	}
	time.Sleep(50 * time.Microsecond) // emulated processors are few and slow
}

// closeDuringWait: closing a handle makes its waiting calls return ErrClosed.
func (w *world) closeDuringWait() {
	waits := []struct {
		name string
		wait func(ctx context.Context) error
	}{
		{"Listener", func(ctx context.Context) error { _, err := w.ln.Accept(ctx); return err }},
		{"CQ", func(ctx context.Context) error { var wcs [1]verbs.WC; return w.drain(ctx, wcs[:]) }},
		{"CompChannel", func(ctx context.Context) error {
			for {
				if _, err := w.ch.Wait(ctx); err != nil {
					return err
				}
			}
		}},
		{"Context", func(ctx context.Context) error {
			for {
				if _, err := w.ctx.WaitEvent(ctx); err != nil {
					return err
				}
			}
		}},
		{"Connect", w.connectToSilence()},
	}
	ends := make([]chan error, len(waits))
	for i, c := range waits {
		ends[i] = make(chan error, 1)
		go func() { ends[i] <- c.wait(context.Background()) }()
	}
	asleep.Until(w.T, len(waits), "handles.(*world).closeDuringWait")
	w.closeInOrder()
	select {
	case <-w.id.Done():
	case <-time.After(limit):
		require.Fail(w, "Done of a closed ID")
	}
	require.Error(w, w.id.Err())
	for i, c := range waits {
		require.ErrorIs(w, w.returns(ends[i], "a wait on "+c.name), verbs.ErrClosed, c.name)
	}
}

// drain polls for completions until an error.
func (w *world) drain(ctx context.Context, wcs []verbs.WC) error {
	for {
		if _, err := w.cq.Wait(ctx, wcs); err != nil {
			return err
		}
	}
}

// connectToSilence returns a call of Connect that remains unanswered until its ID is closed.
func (w *world) connectToSilence() func(context.Context) error {
	ln, err := cm.Listen(w.within(), w.listen, cm.Config{Context: w.ctx})
	require.NoError(w, err)
	w.Cleanup(func() { require.NoError(w, ln.Close()) })
	w.handles = append([]*handle{}, w.handles...)
	id, err := cm.Resolve(w.within(), ln.Addr().String(), cm.Config{Context: w.ctx})
	require.NoError(w, err)
	qp := w.createQP(nil)
	w.add("waiting QP", false, qp)
	w.add("waiting ID", false, id)
	w.add("silent Listener", false, ln)
	// The listener is closed after the ID, so that the call is not ended by a rejection.
	n := len(w.handles)
	w.handles[n-1], w.handles[n-2] = w.handles[n-2], w.handles[n-1]
	return func(ctx context.Context) error { return id.Connect(ctx, qp, cm.ConnParam{}) }
}

// closeAll closes the objects of package verbs through their context; connections end with their
// QPs.
func (w *world) closeAll() {
	require.NoError(w, w.ctx.CloseAll())
	require.NoError(w, w.ctx.CloseAll())
	select {
	case <-w.id.Done():
	case <-time.After(limit):
		require.Fail(w, "a connection without its QP goes on")
	}
	require.Error(w, w.id.Err())
	_, err := w.ctx.AllocPD()
	require.ErrorIs(w, err, verbs.ErrClosed)
	w.closeInOrder()
}
