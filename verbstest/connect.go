// SPDX-License-Identifier: BSD-3-Clause

package verbstest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/asleep"
	"github.com/goverbs/goverbs/verbs"
)

var connectTests = []test{
	{"Addresses", connectAddresses},
	{"AnyAddress", connectAnyAddress},
	{"Source", connectSource},
	{"SharedContext", connectSharedContext},
	{"Auto", connectAuto},
	{"PassiveSpeaksFirst", connectPassiveSpeaksFirst},
	{"ReceivesBefore", connectReceivesBefore},
	{"Dial", connectDial},
	{"DialFails", connectDialFails},
	{"Many", connectMany},
	{"PrivateData", connectPrivateData},
	{"PrivateDataTooLong", connectPrivateDataTooLong},
	{"Reject", connectReject},
	{"AnswerTwice", connectAnswerTwice},
	{"ConnectTwice", connectTwice},
	{"WrongState", connectWrongState},
	{"NobodyListens", connectNobodyListens},
	{"BadAddress", connectBadAddress},
	{"NoDevice", connectNoDevice},
	{"CancelConnect", connectCancel},
	{"CloseDuringConnect", connectClose},
	{"CloseQPDuringConnect", connectCloseQP},
	{"CancelAccept", connectCancelAccept},
	{"CancelAcceptRequest", connectCancelAcceptRequest},
	{"Backlog", connectBacklog},
	{"ListenerClose", connectListenerClose},
	{"ListenerCloseKeepsConnections", connectListenerCloseKeeps},
	{"SeveralListeners", connectSeveralListeners},
	{"AddressInUse", connectAddressInUse},
	{"UseAfterClose", connectUseAfterClose},
}

// attempt is a Connect in progress.
type attempt struct {
	id   *cm.ID
	side *side
	done chan error
}

// dial starts connecting a new side to ln.
func (w *world) dial(ctx context.Context, ln *cm.Listener, param cm.ConnParam) *attempt {
	w.Helper()
	a := &attempt{id: w.resolve(ln), side: w.a.side(pairConfig{}, nil, [2]*verbs.CompChannel{}),
		done: make(chan error, 1)}
	a.side.id = a.id
	go func() { a.done <- a.id.Connect(ctx, a.side.qp, param) }()
	return a
}

func connectAddresses(w *world) outcome {
	id := w.resolve(w.ln)
	require.Equal(w, w.ln.Addr().String(), id.RemoteAddr().String())
	require.Nil(w, id.LocalAddr(), "not connected")
	require.Nil(w, id.QP())
	require.Nil(w, id.PrivateData())
	require.NoError(w, id.Err())
	require.Same(w, w.b.ctx, w.ln.Context())

	p := w.pair(pairConfig{})
	require.Equal(w, p.a.id.LocalAddr().String(), p.b.id.RemoteAddr().String())
	require.Equal(w, p.b.id.LocalAddr().String(), p.a.id.RemoteAddr().String())
	require.Equal(w, w.ln.Addr().String(), p.a.id.RemoteAddr().String())
	require.Same(w, p.a.qp, p.a.id.QP())
	require.Same(w, p.b.qp, p.b.id.QP())
	for _, s := range []*side{p.a, p.b} {
		require.NoError(w, s.id.Err())
		text := s.id.String()
		require.Contains(w, text, s.id.LocalAddr().String())
		require.Contains(w, text, s.id.RemoteAddr().String())
		require.Contains(w, text, s.ctx.Device().Name())
		select {
		case <-s.id.Done():
			require.Fail(w, "done before the end")
		default:
		}
	}
	return tested
}

// connectAnyAddress: a listener without a host accepts connections to every address, a listener
// with a host only connections to that address.
func connectAnyAddress(w *world) outcome {
	ln, err := cm.Listen(within(w.T), ":0", cm.Config{Context: w.b.ctx})
	require.NoError(w, err)
	w.Cleanup(func() { require.NoError(w, ln.Close()) })
	_, port, err := net.SplitHostPort(ln.Addr().String())
	require.NoError(w, err)
	host, own, err := net.SplitHostPort(w.ln.Addr().String())
	require.NoError(w, err)
	hosts := []string{host}
	if w.f.Second == "" {
		w.without("second address")
	} else {
		hosts = append(hosts, w.f.Second)
	}
	for _, host := range hosts {
		address := net.JoinHostPort(host, port)
		id, err := cm.Resolve(within(w.T), address, cm.Config{Context: w.a.ctx})
		require.NoError(w, err)
		w.closeLater(id)
		a, b := w.a.side(pairConfig{}, nil, [2]*verbs.CompChannel{}),
			w.b.side(pairConfig{}, nil, [2]*verbs.CompChannel{})
		accepted := make(chan error, 1)
		ctx := within(w.T)
		go func() {
			req, err := ln.Accept(ctx)
			if err == nil {
				b.id, err = req.Accept(ctx, b.qp, cm.ConnParam{})
			}
			accepted <- err
		}()
		require.NoError(w, id.Connect(ctx, a.qp, cm.ConnParam{}))
		require.NoError(w, closes(w.T, accepted, "Accept"))
		w.closeLater(b.id)
		require.Equal(w, address, b.id.LocalAddr().String())
		a.id = id
		w.joined(a, b).works()
	}
	for _, host := range hosts[1:] {
		id, err := cm.Resolve(within(w.T), net.JoinHostPort(host, own), cm.Config{Context: w.a.ctx})
		require.NoError(w, err)
		w.closeLater(id)
		err = id.Connect(within(w.T), w.a.side(pairConfig{}, nil, [2]*verbs.CompChannel{}).qp, cm.ConnParam{})
		var oe *cm.OpError
		require.ErrorAs(w, err, &oe)
		require.False(w, oe.Timeout(), "nobody listens on %s", host)
	}
	return tested
}

// joined returns a pair of two sides that the test connected itself.
func (w *world) joined(a, b *side) *pair {
	w.Helper()
	if w.f.ActiveFirst {
		a.run(verbs.SendWR{Opcode: verbs.WRRDMAWrite})
	}
	return &pair{world: w, a: a, b: b}
}

// connectSource: the local address can be chosen; choosing an address that this host lacks is an
// error.
func connectSource(w *world) outcome {
	first := w.pair(pairConfig{})
	local, err := netip.ParseAddrPort(first.a.id.LocalAddr().String())
	require.NoError(w, err)
	resolve := func(source netip.AddrPort) *cm.ID {
		id, err := cm.Resolve(within(w.T), w.ln.Addr().String(), cm.Config{Context: w.a.ctx, Source: source})
		require.NoError(w, err)
		w.closeLater(id)
		return id
	}
	id := resolve(netip.AddrPortFrom(local.Addr(), 0))
	a, b := w.a.side(pairConfig{}, nil, [2]*verbs.CompChannel{}), w.b.side(pairConfig{}, nil, [2]*verbs.CompChannel{})
	accepted := make(chan error, 1)
	ctx := within(w.T)
	go func() {
		req, err := w.ln.Accept(ctx)
		if err == nil {
			b.id, err = req.Accept(ctx, b.qp, cm.ConnParam{})
		}
		accepted <- err
	}()
	require.NoError(w, id.Connect(ctx, a.qp, cm.ConnParam{}))
	require.NoError(w, closes(w.T, accepted, "Accept"))
	w.closeLater(b.id)
	got, err := netip.ParseAddrPort(id.LocalAddr().String())
	require.NoError(w, err)
	require.Equal(w, local.Addr(), got.Addr())
	require.NotEqual(w, local.Port(), got.Port())

	// An address reserved for documentation (RFC 5737, RFC 3849), which no machine has.
	absent := netip.MustParseAddr("203.0.113.1")
	if local.Addr().Is6() {
		absent = netip.MustParseAddr("2001:db8:ffff::1")
	}
	cfg := cm.Config{Context: w.a.ctx, Source: netip.AddrPortFrom(absent, 0)}
	absentID, err := cm.Resolve(within(w.T), w.ln.Addr().String(), cfg)
	if err == nil {
		w.closeLater(absentID)
		err = absentID.Connect(within(w.T), w.a.side(pairConfig{}, nil, [2]*verbs.CompChannel{}).qp, cm.ConnParam{})
	}
	var oe *cm.OpError
	require.ErrorAs(w, err, &oe)
	require.False(w, oe.Timeout())
	return tested
}

// connectSharedContext: without a context in the configuration, connections use the device's shared
// one.
func connectSharedContext(w *world) outcome {
	shared := func(dev *verbs.Device) *host {
		ctx, err := dev.SharedContext()
		require.NoError(w, err)
		h := &host{T: w.T, ctx: ctx}
		h.attr, err = ctx.QueryDevice()
		require.NoError(w, err)
		h.pd = h.allocPD()
		return h
	}
	inner := *w
	inner.a, inner.b = shared(w.f.Active), shared(w.f.Passive)
	inner.ln = w.listen(cm.Config{Device: w.f.Passive})
	require.Same(w, inner.b.ctx, inner.ln.Context())
	id, err := cm.Resolve(within(w.T), inner.ln.Addr().String(), cm.Config{Device: w.f.Active})
	require.NoError(w, err)
	w.closeLater(id)
	require.Same(w, inner.a.ctx, id.Context())
	inner.pair(pairConfig{}).works()
	return tested
}

// connectAuto: the address determines the device.
func connectAuto(w *world) outcome {
	devices, err := verbs.Devices()
	require.NoError(w, err)
	if len(devices) == 0 {
		_, err := cm.Resolve(within(w.T), w.ln.Addr().String(), cm.Config{})
		requireErr(w.T, err, verbs.ErrNoDevice)
		require.ErrorContains(w, err, w.ln.Addr().String())
	}
	w.register()
	id, err := cm.Resolve(within(w.T), w.ln.Addr().String(), cm.Config{})
	require.NoError(w, err)
	w.closeLater(id)
	devices, err = verbs.Devices()
	require.NoError(w, err)
	require.Contains(w, devices, id.Context().Device(), "one of the registered devices")
	return tested
}

// connectPassiveSpeaksFirst: either side may send first. If only the active side may, the passive
// side's requests wait until it has.
func connectPassiveSpeaksFirst(w *world) outcome {
	p := w.pair(pairConfig{cold: true, before: func(p *pair) { p.a.recv(1, p.a.mem.sge(0, 100)) }})
	eager := w.kernelIWARP() // it sends immediately, when the active side may not be ready
	if eager {
		w.without("passive-first")
		p.a.ok(p.a.run(verbs.SendWR{Opcode: verbs.WRRDMAWrite}), verbs.WCRDMAWrite)
	}
	p.b.post(verbs.SendWR{ID: 2, Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGL: p.b.mem.sgl(0, 100)})
	if w.f.ActiveFirst && !eager {
		p.a.idle(p.a.rcq)
		p.b.idle(p.b.scq)
		p.a.post(verbs.SendWR{Opcode: verbs.WRRDMAWrite})
	}
	p.a.ok(p.a.received(), verbs.WCRecv)
	require.EqualValues(w, 2, p.b.ok(p.b.sent(), verbs.WCSend).ID)
	p.a.mem.holds(0, p.b.mem.Bytes()[:100])
	p.works()
	return tested
}

// connectReceivesBefore: receives posted in INIT consume the first messages, in order.
func connectReceivesBefore(w *world) outcome {
	p := w.pair(pairConfig{before: func(p *pair) {
		for i := range 3 {
			p.a.recv(uint64(10 + i))
			p.b.recv(uint64(20 + i))
		}
	}})
	for i := range 3 {
		p.a.ok(p.a.run(verbs.SendWR{Opcode: verbs.WRSend}), verbs.WCSend)
		require.EqualValues(w, 20+i, p.b.ok(p.b.received(), verbs.WCRecv).ID)
		p.b.ok(p.b.run(verbs.SendWR{Opcode: verbs.WRSend}), verbs.WCSend)
		require.EqualValues(w, 10+i, p.a.ok(p.a.received(), verbs.WCRecv).ID)
	}
	p.works()
	return tested
}

func connectDial(w *world) outcome {
	ctx := within(w.T)
	b := w.b.side(pairConfig{}, nil, [2]*verbs.CompChannel{})
	bindINIT(b)
	b.recv(1, b.mem.sge(0, 10))
	accepted := make(chan error, 1)
	go func() {
		req, err := w.ln.Accept(ctx)
		if err == nil {
			b.id, err = req.Accept(ctx, b.qp, cm.ConnParam{})
		}
		accepted <- err
	}()
	ep, err := cm.Dial(ctx, w.ln.Addr().String(), cm.Config{Context: w.a.ctx}, cm.EndpointConfig{})
	require.NoError(w, err)
	w.Cleanup(func() { require.NoError(w, ep.Close()) })
	require.NoError(w, closes(w.T, accepted, "Accept"))
	w.closeLater(b.id)
	require.Same(w, w.a.ctx, ep.ID().Context())
	require.Same(w, ep.QP(), ep.ID().QP())
	message := []byte("0123456789")
	require.NoError(w, ep.Send(ctx, message))
	b.ok(b.received(), verbs.WCRecv)
	b.mem.holds(0, message)
	return tested
}

// connectDialFails: a failing Dial closes what it created.
func connectDialFails(w *world) outcome {
	ln := w.listen(cm.Config{Context: w.b.ctx})
	address := ln.Addr().String()
	require.NoError(w, ln.Close())
	var qp *verbs.QP
	prepare := func(result error) cm.EndpointConfig {
		return cm.EndpointConfig{Prepare: func(ep *cm.Endpoint, _ *cm.ConnParam) error {
			qp = ep.QP()
			return result
		}}
	}
	_, err := cm.Dial(within(w.T), address, cm.Config{Context: w.a.ctx}, prepare(nil))
	require.Error(w, err)
	_, err = qp.Query()
	requireClosed(w.T, err)

	cause := errors.New("no connection today")
	_, err = cm.Dial(within(w.T), w.ln.Addr().String(), cm.Config{Context: w.a.ctx}, prepare(cause))
	require.ErrorIs(w, err, cause)
	_, err = qp.Query()
	requireClosed(w.T, err)
	return tested
}

// connectMany dials and accepts from many goroutines concurrently.
func connectMany(w *world) outcome {
	const count = 24
	ctx := within(w.T)
	var attempts []*attempt
	for i := range count {
		attempts = append(attempts, w.dial(ctx, w.ln, cm.ConnParam{PrivateData: []byte{byte(i + 1)}}))
	}
	accepted := make(chan error, count)
	var passive []*side
	for range count {
		b := w.b.side(pairConfig{}, nil, [2]*verbs.CompChannel{})
		passive = append(passive, b)
		go func() {
			req, err := w.ln.Accept(ctx)
			if err == nil {
				b.id, err = req.Accept(ctx, b.qp, cm.ConnParam{})
			}
			accepted <- err
		}()
	}
	for range count {
		require.NoError(w, closes(w.T, accepted, "Accept"))
	}
	sides := make(map[byte]*side)
	for _, b := range passive {
		w.closeLater(b.id)
		i := b.id.PrivateData()[0]
		require.Nil(w, sides[i])
		sides[i] = b
	}
	for i, a := range attempts {
		require.NoError(w, closes(w.T, a.done, "Connect"))
		b := sides[byte(i+1)]
		require.NotNil(w, b)
		require.Equal(w, a.id.LocalAddr().String(), b.id.RemoteAddr().String())
		b.recv(1, b.mem.sge(0, 8))
		a.side.mem.put(0, uint64(i))
		a.side.ok(a.side.run(verbs.SendWR{Opcode: verbs.WRSend, SGL: a.side.mem.sgl(0, 8)}), verbs.WCSend)
		b.ok(b.received(), verbs.WCRecv)
		require.EqualValues(w, i, b.mem.get(0))
	}
	return tested
}

// privateData requires that the peer received the same bytes, which InfiniBand pads with zeros.
func (w *world) privateData(want, got []byte) {
	w.Helper()
	if w.iwarp() {
		require.Len(w, got, len(want))
	} else {
		require.True(w, bytes.HasPrefix(got, want))
		require.Empty(w, bytes.Trim(got[len(want):], "\x00"))
		return
	}
	require.True(w, bytes.Equal(want, got), "want %x, got %x", want, got)
}

// mostPrivateData returns the maximum length of a request's private data. Longer data is refused
// before the peer is contacted, with an error that names the limit.
func (w *world) mostPrivateData() int {
	w.Helper()
	s := w.a.side(pairConfig{}, nil, [2]*verbs.CompChannel{})
	err := w.resolve(w.ln).Connect(within(w.T), s.qp, cm.ConnParam{PrivateData: make([]byte, 65536)})
	requireErr(w.T, err, verbs.ErrLimit)
	var le *verbs.LimitError
	require.ErrorAs(w, err, &le)
	require.Contains(w, le.Name, "private data")
	require.EqualValues(w, 65536, le.Value)
	require.GreaterOrEqual(w, le.Limit, uint64(48))
	return int(le.Limit)
}

func connectPrivateData(w *world) outcome {
	most := w.mostPrivateData()
	for _, c := range []struct {
		name string
		n    int
	}{{"None", 0}, {"One", 1}, {"48", 48}, {"AllButOne", most - 1}, {"Most", most}} {
		w.sub(c.name, func(w *world) outcome {
			there, back := pattern(1, c.n), pattern(2, c.n)
			p := w.pair(pairConfig{aParam: cm.ConnParam{PrivateData: there}, bParam: cm.ConnParam{PrivateData: back}})
			w.privateData(there, p.b.id.PrivateData())
			w.privateData(back, p.a.id.PrivateData())
			p.works()
			return tested
		})
	}
	// Different lengths in each direction.
	p := w.pair(pairConfig{aParam: cm.ConnParam{PrivateData: pattern(3, most)}})
	w.privateData(pattern(3, most), p.b.id.PrivateData())
	w.privateData(nil, p.a.id.PrivateData())
	return tested
}

// connectPrivateDataTooLong: the errors of the passive side name the limits of acceptance and
// rejection.
func connectPrivateDataTooLong(w *world) outcome {
	most := w.mostPrivateData()
	err := w.connectError(cm.ConnParam{PrivateData: make([]byte, most+1)})
	requireErr(w.T, err, verbs.ErrLimit)
	require.ErrorContains(w, err, fmt.Sprint(most+1))
	for name, answer := range map[string]func(req *cm.Request, s *side) error{
		"Accept": func(req *cm.Request, s *side) error {
			_, err := req.Accept(within(w.T), s.qp, cm.ConnParam{PrivateData: make([]byte, 65536)})
			return err
		},
		"Reject": func(req *cm.Request, _ *side) error { return req.Reject(make([]byte, 65536)) },
	} {
		a := w.dial(within(w.T), w.ln, cm.ConnParam{})
		req, err := w.ln.Accept(within(w.T))
		require.NoError(w, err, name)
		err = answer(req, w.b.side(pairConfig{}, nil, [2]*verbs.CompChannel{}))
		requireErr(w.T, err, verbs.ErrLimit)
		require.ErrorContains(w, err, "65536")
		require.Error(w, closes(w.T, a.done, "Connect"))
	}
	w.pair(pairConfig{}).works()
	return tested
}

func connectReject(w *world) outcome {
	most := w.mostPrivateData()
	for _, n := range []int{0, 1, most} {
		want := pattern(5, n)
		a := w.dial(within(w.T), w.ln, cm.ConnParam{PrivateData: pattern(6, 10)})
		req, err := w.ln.Accept(within(w.T))
		require.NoError(w, err)
		w.privateData(pattern(6, 10), req.PrivateData())
		require.NoError(w, req.Reject(want))
		err = closes(w.T, a.done, "Connect")
		requireErr(w.T, err, cm.ErrRejected)
		var re *cm.RejectedError
		require.ErrorAs(w, err, &re)
		w.privateData(want, re.PrivateData)
		require.Nil(w, a.id.QP())
		require.NotEqual(w, verbs.QPStateRTS, a.side.qp.State())
		requireErr(w.T, a.id.Disconnect(), verbs.ErrInvalid)
		// The QP can be used for another attempt, except on kernel siw.
		if w.kernelIWARP() {
			require.False(w, w.reset(a.side))
			a.side = w.a.side(pairConfig{}, nil, [2]*verbs.CompChannel{})
		} else if a.side.qp.State() != verbs.QPStateInit {
			require.NoError(w, a.side.modify(verbs.QPStateReset))
		}
		p := &pair{world: w, a: a.side, b: w.b.side(pairConfig{}, nil, [2]*verbs.CompChannel{})}
		p.connect(pairConfig{})
		p.works()
	}
	return tested
}

func connectAnswerTwice(w *world) outcome {
	p := w.unconnected(pairConfig{})
	spare := w.b.side(pairConfig{}, nil, [2]*verbs.CompChannel{})
	a := w.dial(within(w.T), w.ln, cm.ConnParam{})
	req, err := w.ln.Accept(within(w.T))
	require.NoError(w, err)
	p.b.id, err = req.Accept(within(w.T), p.b.qp, cm.ConnParam{})
	require.NoError(w, err)
	w.closeLater(p.b.id)
	require.NoError(w, closes(w.T, a.done, "Connect"))
	requireErr(w.T, req.Reject(nil), verbs.ErrInvalid)
	_, err = req.Accept(within(w.T), spare.qp, cm.ConnParam{})
	requireErr(w.T, err, verbs.ErrInvalid)
	p.a = a.side
	if w.f.ActiveFirst {
		p.a.run(verbs.SendWR{Opcode: verbs.WRRDMAWrite})
	}
	p.works()

	a = w.dial(within(w.T), w.ln, cm.ConnParam{})
	req, err = w.ln.Accept(within(w.T))
	require.NoError(w, err)
	require.NoError(w, req.Reject(nil))
	requireErr(w.T, req.Reject(nil), verbs.ErrInvalid)
	require.Error(w, closes(w.T, a.done, "Connect"))
	return tested
}

func connectTwice(w *world) outcome {
	p := w.pair(pairConfig{})
	spare := w.a.side(pairConfig{}, nil, [2]*verbs.CompChannel{})
	requireErr(w.T, p.a.id.Connect(within(w.T), spare.qp, cm.ConnParam{}), verbs.ErrInvalid)
	requireErr(w.T, w.resolve(w.ln).Connect(within(w.T), p.a.qp, cm.ConnParam{}), verbs.ErrState)
	p.works()
	return tested
}

// connectWrongState: a QP can be connected only in RESET or INIT.
func connectWrongState(w *world) outcome {
	s := w.a.side(pairConfig{}, nil, [2]*verbs.CompChannel{})
	require.NoError(w, s.modify(verbs.QPStateErr))
	id := w.resolve(w.ln)
	for _, err := range []error{id.BindQP(s.qp), id.Connect(within(w.T), s.qp, cm.ConnParam{})} {
		requireErr(w.T, err, verbs.ErrState)
		require.ErrorContains(w, err, "ERR")
	}
	require.NoError(w, s.modify(verbs.QPStateReset))
	require.NoError(w, id.BindQP(s.qp))
	require.NoError(w, id.BindQP(s.qp), "a QP in INIT is left alone")
	require.Equal(w, verbs.QPStateInit, s.qp.State())
	return tested
}

func connectNobodyListens(w *world) outcome {
	ln := w.listen(cm.Config{Context: w.b.ctx})
	address := ln.Addr().String()
	require.NoError(w, ln.Close())
	id, err := cm.Resolve(within(w.T), address, cm.Config{Context: w.a.ctx})
	require.NoError(w, err, "the peer is not contacted yet")
	w.closeLater(id)
	s := w.a.side(pairConfig{}, nil, [2]*verbs.CompChannel{})
	began := time.Now()
	err = id.Connect(within(w.T), s.qp, cm.ConnParam{})
	require.Less(w, time.Since(began), waitLimit/2, "refused, not timed out")
	var oe *cm.OpError
	require.ErrorAs(w, err, &oe)
	require.Equal(w, "Connect", oe.Op)
	require.Equal(w, address, oe.Addr)
	require.False(w, oe.Timeout())
	w.pair(pairConfig{}).works()
	return tested
}

func connectBadAddress(w *world) outcome {
	for _, address := range []string{"", ":", "127.0.0.1", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:nosuchservice",
		"[::1:80", ":7306", "127.0.0.1:0", "no such host:1"} {
		_, err := cm.Resolve(within(w.T), address, cm.Config{Context: w.a.ctx})
		var oe *cm.OpError
		require.ErrorAs(w, err, &oe, "Resolve %q", address)
		require.Equal(w, "Resolve", oe.Op)
		require.Equal(w, address, oe.Addr)
	}
	for _, address := range []string{"", "127.0.0.1", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:nosuchservice",
		"[::1:80"} {
		_, err := cm.Listen(within(w.T), address, cm.Config{Context: w.b.ctx})
		var oe *cm.OpError
		require.ErrorAs(w, err, &oe, "Listen %q", address)
		require.Equal(w, "Listen", oe.Op)
		require.Equal(w, address, oe.Addr)
	}
	_, err := cm.Listen(within(w.T), w.f.Listen, cm.Config{Context: w.b.ctx, Backlog: -1})
	requireErr(w.T, err, verbs.ErrInvalid)
	require.ErrorContains(w, err, "-1")
	return tested
}

func connectNoDevice(w *world) outcome {
	none := cm.Config{Device: new(verbs.Device)} // which no provider made
	_, err := cm.Resolve(within(w.T), w.ln.Addr().String(), none)
	requireErr(w.T, err, verbs.ErrNoDevice)
	require.ErrorContains(w, err, w.ln.Addr().String())
	_, err = cm.Listen(within(w.T), w.f.Listen, none)
	requireErr(w.T, err, verbs.ErrNoDevice)
	require.ErrorContains(w, err, w.f.Listen)
	return tested
}

// connectCancel cancels before the passive side has answered.
func connectCancel(w *world) outcome {
	done, cancel := context.WithCancel(context.Background())
	cancel()
	s := w.a.side(pairConfig{}, nil, [2]*verbs.CompChannel{})
	requireErr(w.T, w.resolve(w.ln).Connect(done, s.qp, cm.ConnParam{}), context.Canceled)

	ctx, cancel := context.WithCancel(context.Background())
	a := w.dial(ctx, w.ln, cm.ConnParam{PrivateData: []byte("give up")})
	req := w.nextRequest("give up")
	cancel()
	requireErr(w.T, closes(w.T, a.done, "a cancelled Connect"), context.Canceled)
	require.NotEqual(w, verbs.QPStateRTS, a.side.qp.State())
	w.answerGone(req)

	// The request is sent before that; siw itself gives up after 10 s.
	ctx, cancel = context.WithTimeout(context.Background(), min(waitLimit/10, 5*time.Second))
	defer cancel()
	a = w.dial(ctx, w.ln, cm.ConnParam{PrivateData: []byte("time out")})
	err := closes(w.T, a.done, "a Connect with a deadline")
	requireErr(w.T, err, context.DeadlineExceeded)
	var ne net.Error
	require.ErrorAs(w, err, &ne)
	require.True(w, ne.Timeout())
	w.answerGone(w.nextRequest("time out"))
	w.pair(pairConfig{}).works()
	return tested
}

// nextRequest accepts requests until one has this private data. It answers earlier ones, which
// belong to abandoned attempts.
func (w *world) nextRequest(private string) *cm.Request {
	w.Helper()
	for {
		req, err := w.ln.Accept(within(w.T))
		require.NoError(w, err)
		if bytes.HasPrefix(req.PrivateData(), []byte(private)) {
			return req
		}
		w.answerGone(req)
	}
}

// answerGone accepts a request whose peer is gone: Accept fails, or the connection ends
// immediately.
func (w *world) answerGone(req *cm.Request) {
	w.Helper()
	b := w.b.side(pairConfig{}, nil, [2]*verbs.CompChannel{})
	id, err := req.Accept(within(w.T), b.qp, cm.ConnParam{})
	if err != nil {
		var oe *cm.OpError
		require.ErrorAs(w, err, &oe)
		require.Equal(w, "Accept", oe.Op)
		return
	}
	closes(w.T, id.Done(), "the end of a connection whose peer has gone")
	require.Error(w, id.Err())
	require.NoError(w, id.Close())
}

// connectClose: closing the ID aborts its Connect.
func connectClose(w *world) outcome {
	a := w.dial(context.Background(), w.ln, cm.ConnParam{})
	req, err := w.ln.Accept(within(w.T))
	require.NoError(w, err)
	require.NoError(w, a.id.Close())
	requireClosed(w.T, closes(w.T, a.done, "a closed Connect"))
	closes(w.T, a.id.Done(), "Done of a closed ID")
	w.answerGone(req)
	return tested
}

// connectCloseQP: closing the QP aborts the Connect too.
func connectCloseQP(w *world) outcome {
	a := w.dial(context.Background(), w.ln, cm.ConnParam{})
	req, err := w.ln.Accept(within(w.T))
	require.NoError(w, err)
	require.NoError(w, a.side.qp.Close())
	requireClosed(w.T, closes(w.T, a.done, "Connect of a closed QP"))
	w.answerGone(req)
	return tested
}

func connectCancelAccept(w *world) outcome {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		_, err := w.ln.Accept(ctx)
		done <- err
	}()
	asleep.Until(w.T, 1, "cm.(*Listener).Accept", "verbstest.connectCancelAccept")
	cancel()
	requireErr(w.T, closes(w.T, done, "a cancelled Accept"), context.Canceled)
	ctx, cancel = context.WithTimeout(context.Background(), quietTime)
	defer cancel()
	_, err := w.ln.Accept(ctx)
	requireErr(w.T, err, context.DeadlineExceeded)
	w.pair(pairConfig{}).works()
	return tested
}

// connectCancelAcceptRequest: the acceptance is canceled, and both sides can be used again.
func connectCancelAcceptRequest(w *world) outcome {
	a := w.dial(within(w.T), w.ln, cm.ConnParam{})
	req, err := w.ln.Accept(within(w.T))
	require.NoError(w, err)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	b := w.b.side(pairConfig{}, nil, [2]*verbs.CompChannel{})
	_, err = req.Accept(ctx, b.qp, cm.ConnParam{})
	requireErr(w.T, err, context.Canceled)
	if err := closes(w.T, a.done, "Connect"); err == nil {
		closes(w.T, a.id.Done(), "the end of a connection that the peer gave up")
	}
	w.pair(pairConfig{}).works()
	return tested
}

// connectBacklog: Backlog requests wait, and further ones are refused.
func connectBacklog(w *world) outcome {
	const room, extra = 2, 3
	ln := w.listen(cm.Config{Context: w.b.ctx, Backlog: room})
	ctx := within(w.T)
	type result struct {
		a   *side
		err error
	}
	results := make(chan result, room+extra+1)
	dial := func() {
		a := w.dial(ctx, ln, cm.ConnParam{})
		go func() { results <- result{a.side, <-a.done} }()
	}
	for range room + extra {
		dial()
	}
	for range extra {
		r := closes(w.T, results, "a refusal")
		require.ErrorIs(w, r.err, cm.ErrRejected)
		var oe *cm.OpError
		require.ErrorAs(w, r.err, &oe)
		require.False(w, oe.Timeout(), r.err.Error())
	}
	for n := range room + 1 {
		req, err := ln.Accept(ctx)
		require.NoError(w, err)
		b := w.b.side(pairConfig{}, nil, [2]*verbs.CompChannel{})
		b.id, err = req.Accept(ctx, b.qp, cm.ConnParam{})
		require.NoError(w, err)
		w.closeLater(b.id)
		r := closes(w.T, results, "Connect")
		require.NoError(w, r.err)
		w.joined(r.a, b).works()
		if n == 0 {
			dial() // there is room for one more
		}
	}
	require.Empty(w, results)
	return tested
}

// connectListenerClose: Close unblocks Accept and refuses the waiting requests.
func connectListenerClose(w *world) outcome {
	ln := w.listen(cm.Config{Context: w.b.ctx})
	const waiters = 3
	ends := make(chan error, waiters)
	for range waiters {
		go func() {
			_, err := ln.Accept(context.Background())
			ends <- err
		}()
	}
	asleep.Until(w.T, waiters, "cm.(*Listener).Accept", "verbstest.connectListenerClose")
	require.NoError(w, ln.Close())
	for range waiters {
		requireClosed(w.T, closes(w.T, ends, "Accept of a closed listener"))
	}
	_, err := ln.Accept(context.Background())
	requireClosed(w.T, err)

	// There is room for one of two: once the other is refused, the first is waiting.
	ln = w.listen(cm.Config{Context: w.b.ctx, Backlog: 1})
	results := make(chan error, 2)
	for range 2 {
		a := w.dial(context.Background(), ln, cm.ConnParam{})
		go func() { results <- <-a.done }()
	}
	require.Error(w, closes(w.T, results, "a refusal"))
	require.NoError(w, ln.Close())
	require.Error(w, closes(w.T, results, "Connect to a closed listener"))
	w.pair(pairConfig{}).works()
	return tested
}

func connectListenerCloseKeeps(w *world) outcome {
	ln := w.listen(cm.Config{Context: w.b.ctx})
	inner := *w
	inner.ln = ln
	p := inner.pair(pairConfig{})
	// A request that Accept has returned can be answered after the listener is closed.
	a := w.dial(within(w.T), ln, cm.ConnParam{})
	req, err := ln.Accept(within(w.T))
	require.NoError(w, err)
	require.NoError(w, ln.Close())
	b := w.b.side(pairConfig{}, nil, [2]*verbs.CompChannel{})
	b.id, err = req.Accept(within(w.T), b.qp, cm.ConnParam{})
	require.NoError(w, err)
	w.closeLater(b.id)
	require.NoError(w, closes(w.T, a.done, "Connect"))
	p.works()
	return tested
}

func connectSeveralListeners(w *world) outcome {
	listeners := []*cm.Listener{w.ln, w.listen(cm.Config{Context: w.b.ctx}), w.listen(cm.Config{Context: w.b.ctx})}
	seen := make(map[string]bool)
	for _, ln := range listeners {
		require.False(w, seen[ln.Addr().String()])
		seen[ln.Addr().String()] = true
		inner := *w
		inner.ln = ln
		p := inner.pair(pairConfig{})
		require.Equal(w, ln.Addr().String(), p.a.id.RemoteAddr().String())
		p.works()
	}
	return tested
}

func connectAddressInUse(w *world) outcome {
	_, err := cm.Listen(within(w.T), w.ln.Addr().String(), cm.Config{Context: w.b.ctx})
	var oe *cm.OpError
	require.ErrorAs(w, err, &oe)
	require.Equal(w, "Listen", oe.Op)
	require.Equal(w, w.ln.Addr().String(), oe.Addr)
	require.ErrorContains(w, err, "in use")
	return tested
}

func connectUseAfterClose(w *world) outcome {
	id := w.resolve(w.ln)
	require.NoError(w, id.Close())
	s := w.a.side(pairConfig{}, nil, [2]*verbs.CompChannel{})
	requireClosed(w.T, id.Connect(within(w.T), s.qp, cm.ConnParam{}))
	closes(w.T, id.Done(), "Done of a closed ID")

	p := w.pair(pairConfig{})
	require.NoError(w, p.a.id.Close())
	closes(w.T, p.a.id.Done(), "Done of a closed ID")
	require.ErrorIs(w, p.a.id.Err(), verbs.ErrClosed)
	require.NoError(w, p.a.id.Disconnect(), "what has ended can be ended again")
	require.Equal(w, verbs.QPStateErr, p.a.qp.State(), "the QP stays, in error")
	p.a.post(verbs.SendWR{ID: 4, Opcode: verbs.WRSend})
	p.a.flushed(p.a.scq, 4)
	return tested
}
