// SPDX-License-Identifier: BSD-3-Clause

package cm_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/usiw/usiwtest"
	"github.com/goverbs/goverbs/verbs"
)

// secret must not appear in any log, in any form.
const secret = "hunter2 is my password"

// printed prints v in every way that programs do. Any goroutine of the test may call it.
func printed(t testing.TB, v any) string {
	t.Helper()
	var b bytes.Buffer
	for _, verb := range "vsqxXdobceEfFgGtUT" {
		for _, flags := range []string{"", "+", "#"} {
			fmt.Fprintf(&b, "%"+flags+string(verb)+"\n", v)
		}
	}
	fmt.Fprintln(&b, v)
	for _, h := range []slog.Handler{slog.NewTextHandler(&b, nil), slog.NewJSONHandler(&b, nil)} {
		slog.New(h).Info("x", "v", v, slog.Group("g", "v", v))
		slog.New(h).With("v", v).Info("x", "in", struct{ V any }{v})
	}
	for _, v := range []any{v, []any{v}, map[string]any{"v": v}, struct{ V any }{v}} {
		js, err := json.Marshal(v)
		if err != nil {
			t.Errorf("%T: %v", v, err)
		}
		b.Write(js)
		fmt.Fprintf(&b, "%v %+v %#v %s\n", v, v, v, v)
	}
	for _, bad := range []string{"PANIC", "panicked"} {
		if strings.Contains(b.String(), bad) {
			t.Errorf("%T: %s", v, &b)
		}
	}
	return b.String()
}

// requireNoSecret requires that a text does not contain the secret as text, in hexadecimal, in
// base64 or as a list of numbers. Any goroutine of the test may call it.
func requireNoSecret(t testing.TB, text string) {
	t.Helper()
	part := []byte(secret)[:6]
	for _, form := range []string{string(part), hex.EncodeToString(part), base64.StdEncoding.EncodeToString(part),
		strings.Trim(fmt.Sprint(part), "[]"), strings.ReplaceAll(strings.Trim(fmt.Sprint(part), "[]"), " ", ",")} {
		if strings.Contains(strings.ToLower(text), strings.ToLower(form)) {
			t.Errorf("%q is in %s", form, text)
		}
	}
}

// handlesOf returns everything of a pair that can be printed.
func handlesOf(t testing.TB, p *usiwtest.Pair) map[string]any {
	t.Helper()
	a := p.A
	ch, err := a.Context.CreateCompChannel()
	require.NoError(t, err)
	srq, err := a.PD.CreateSRQ(verbs.SRQAttr{})
	require.NoError(t, err)
	mw, err := a.PD.AllocMW(verbs.MWType2)
	require.NoError(t, err)
	ln, err := cm.Listen(t.Context(), "print:0", cm.Config{Device: a.NIC.Device()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ln.Close()) })
	d, err := verbs.NewDispatcher(a.RecvCQ, verbs.DispatcherConfig{})
	require.NoError(t, err)
	sge, err := a.MR.SGE(0, 8)
	require.NoError(t, err)
	return map[string]any{"Device": a.NIC.Device(), "Context": a.Context, "PD": a.PD, "MR": a.MR, "MW": mw,
		"CompChannel": ch, "CQ": a.SendCQ, "QP": a.QP, "SRQ": srq, "ID": a.ID, "Listener": ln, "NIC": a.NIC,
		"Dispatcher": d, "Wire": p.Wire, "Link": p.Link, "Direction": p.Link.ToDialer,
		"Config": cm.Config{Context: a.Context}, "End": a, "Pair": p, "CQConfig": verbs.CQConfig{Channel: ch},
		"QPConfig": verbs.QPConfig{SendCQ: a.SendCQ, RecvCQ: a.RecvCQ, SRQ: srq},
		"AsyncEvent": verbs.AsyncEvent{Type: verbs.EventQPFatal, QP: a.QP, CQ: a.SendCQ, SRQ: srq,
			Err: verbs.ErrClosed},
		"SendWR": verbs.SendWR{Opcode: verbs.WRBindMW, SGL: []verbs.SGE{sge},
			Bind: &verbs.MWBind{MW: mw, MR: a.MR}},
		"RecvWR":      verbs.RecvWR{SGL: []verbs.SGE{sge}},
		"usiw.Config": usiw.Config{Network: p.Wire}}
}

// TestPrintDuringUse: every handle can be printed, in every way, while other goroutines use and
// close it. Its memory contents are never shown.
func TestPrintDuringUse(t *testing.T) {
	p := usiwtest.Connect(t, usiwtest.PairConfig{AParam: cm.ConnParam{PrivateData: []byte(secret)}})
	copy(p.A.MR.Bytes(), secret)
	handles := handlesOf(t, p)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	rounds := make(chan struct{}, 1000) // of the goroutines that print
	var using, printing sync.WaitGroup
	stop := make(chan struct{})
	loop := func(f func() error) {
		using.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := f(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	loop(func() error { // children come and go
		mr, err := p.A.PD.RegMR(make([]byte, 64), verbs.AccessLocalWrite)
		if err != nil {
			return err
		}
		_ = mr.String()
		return mr.Close()
	})
	loop(func() error {
		cq, err := p.A.Context.CreateCQ(verbs.CQConfig{})
		if err != nil {
			return err
		}
		defer cq.Close()
		qp, err := p.A.PD.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq})
		if err != nil {
			return err
		}
		return qp.Close()
	})
	sge, err := p.A.MR.SGE(0, 32)
	require.NoError(t, err)
	loop(func() error { // and data move
		_, err := p.A.Do(ctx, verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGL: []verbs.SGE{sge}, RemoteAddr: p.B.MR.Addr(),
			RKey: p.B.MR.RKey()})
		return err
	})
	loop(func() error {
		id, err := cm.Resolve(ctx, handles["Listener"].(*cm.Listener).Addr().String(), cm.Config{Context: p.A.Context})
		if err != nil {
			return err
		}
		_ = id.String()
		return id.Close()
	})
	for range 2 {
		printing.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				for _, h := range handles {
					requireNoSecret(t, printed(t, h))
				}
				select {
				case rounds <- struct{}{}:
				default:
				}
			}
		})
	}
	for range 4 {
		<-rounds
	}
	close(stop)
	using.Wait()
	printing.Wait()

	// And while everything is being closed.
	stop = make(chan struct{})
	for range 2 {
		printing.Go(func() {
			for done := false; !done; {
				select {
				case <-stop:
					done = true // one round more
				default:
				}
				for _, h := range handles {
					printed(t, h)
				}
			}
		})
	}
	require.NoError(t, handles["Listener"].(*cm.Listener).Close())
	require.NoError(t, p.Close())
	close(stop)
	printing.Wait()
	for name, h := range handles {
		text := printed(t, h)
		requireNoSecret(t, text)
		if _, ok := h.(fmt.Formatter); ok && name != "Device" && name != "Config" && name != "usiw.Config" &&
			!strings.HasPrefix(reflect.TypeOf(h).String(), "*usiwtest") {
			require.Contains(t, text, "closed", name)
		}
	}
}

// TestPrintTexts: the texts of the handles.
func TestPrintTexts(t *testing.T) {
	p := usiwtest.Connect(t, usiwtest.PairConfig{A: usiw.Config{Name: "prn0"}, B: usiw.Config{Name: "prn1"}})
	a := p.A
	ids := fmt.Sprintf(`{"device":"prn0","state":"established","local":"%v","remote":"%v","qp_num":%d}`,
		a.ID.LocalAddr(), a.ID.RemoteAddr(), a.QP.Num())
	for _, c := range []struct {
		v          any
		text, json string
	}{
		{a.NIC.Device(), "prn0 (usiw)",
			fmt.Sprintf(`{"device":"prn0","provider":"usiw","node_type":%q,"transport":%q,"node_guid":%q}`,
				verbs.NodeRNIC, verbs.TransportIWARP, a.NIC.Device().Info().NodeGUID)},
		{a.PD, "PD(device=prn0 state=open)", `{"device":"prn0","state":"open"}`},
		{a.Context, "Context(device=prn0 state=open shared=false phys_port_cnt=1)", ""},
		{a.SendCQ, "CQ(device=prn0 state=open cqe=256 own_channel=true)", ""},
		{a.QP, fmt.Sprintf("QP(device=prn0 qp_num=%d type=RC state=RTS max_send_wr=128 max_send_sge=1 max_recv_wr=128 max_recv_sge=1 max_inline_data=0)",
			a.QP.Num()), ""},
		{a.ID, fmt.Sprintf("ID(device=prn0 state=established local=%v remote=%v qp_num=%d)", a.ID.LocalAddr(),
			a.ID.RemoteAddr(), a.QP.Num()), ids},
		{a.MR, fmt.Sprintf("MR(device=prn0 state=open addr=%#x length=%d lkey=%#x rkey=%#x access=LOCAL_WRITE|REMOTE_WRITE|REMOTE_READ|REMOTE_ATOMIC|MW_BIND)",
			a.MR.Addr(), a.MR.Len(), a.MR.LKey(), a.MR.RKey()), ""},
		{cm.Config{},
			`Config(device=auto own_context=false source="" port_space="PortSpace(0x0)" tos=0 ack_timeout=0 reuse_addr=false af_only=false backlog=0)`, ""}, {cm.ConnParam{PrivateData: []byte(secret), RetryCount: 3},
			"ConnParam(private_data_len=22 initiator_depth=0 responder_resources=0 retry_count=3 rnr_retry_count=0 min_rnr_timer=0)", ""},
		{&cm.RejectedError{PrivateData: []byte(secret)}, "connection rejected by the peer (22 bytes of private data)",
			""},
	} {
		require.Equal(t, c.text, fmt.Sprint(c.v))
		requireNoSecret(t, printed(t, c.v))
		if c.json != "" {
			js, err := json.Marshal(c.v)
			require.NoError(t, err)
			require.Equal(t, c.json, string(js))
		}
	}
	require.NoError(t, a.ID.Disconnect())
	<-a.ID.Done()
	require.Contains(t, a.QP.String(), "state=ERR")
	require.Contains(t, a.ID.String(), "state=ended")
	require.NoError(t, a.ID.Close())
	require.Contains(t, a.ID.String(), "state=closed")
}

// TestPrintNothing: nil and zero values are printed too.
func TestPrintNothing(t *testing.T) {
	for _, v := range []any{(*verbs.Device)(nil), new(verbs.Device), (*verbs.Context)(nil), new(verbs.Context),
		(*verbs.PD)(nil), new(verbs.PD), (*verbs.MR)(nil), new(verbs.MR), (*verbs.MW)(nil), new(verbs.MW),
		(*verbs.CompChannel)(nil), new(verbs.CompChannel), (*verbs.CQ)(nil), new(verbs.CQ), (*verbs.QP)(nil),
		new(verbs.QP), (*verbs.SRQ)(nil), new(verbs.SRQ), (*verbs.AH)(nil),
		new(verbs.AH), (*cm.ID)(nil), new(cm.ID),
		(*cm.Listener)(nil), new(cm.Listener), (*cm.Request)(nil), new(cm.Request), (*cm.Multicast)(nil),
		new(cm.Multicast), (*usiw.NIC)(nil),
		new(usiw.NIC), new(usiwtest.Wire), (*cm.Endpoint)(nil), new(cm.Endpoint), (*verbs.Dispatcher)(nil),
		new(verbs.Dispatcher), (*usiwtest.Link)(nil), new(usiwtest.Link), (*usiwtest.Direction)(nil),
		new(usiwtest.Direction)} {
		text := printed(t, v)
		js, err := json.Marshal(v)
		require.NoError(t, err)
		if _, ok := v.(*usiwtest.Wire); !ok {
			require.True(t, strings.HasPrefix(text, "no "), text)
			require.Equal(t, "null", string(js))
		}
	}
	for _, v := range []any{cm.Config{}, cm.ConnParam{}, cm.Datagram{}, verbs.SendWR{}, verbs.RecvWR{}, verbs.SGE{},
		verbs.WC{}, verbs.MWBind{}, verbs.UDDest{}, verbs.AsyncEvent{}, usiw.Config{}, usiw.Packet{},
		cm.EndpointConfig{}, verbs.SendWR{Opcode: verbs.WRBindMW}, verbs.SendWR{UD: &verbs.UDDest{}}} {
		printed(t, v)
	}
}

// TestPrintRequest: a request is shown as it arrives, without the private data of the peer.
func TestPrintRequest(t *testing.T) {
	nic, err := usiw.New(usiw.Config{Name: "prn2", Network: usiwtest.NewWire()})
	require.NoError(t, err)
	defer nic.Close()
	cfg := cm.Config{Device: nic.Device()}
	defer func() { require.NoError(t, nic.Device().CloseShared()) }()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	ln, err := cm.Listen(ctx, "a:0", cfg)
	require.NoError(t, err)
	defer ln.Close()
	require.Equal(t, fmt.Sprintf("Listener(devices=[prn2] state=open local=%v)", ln.Addr()), ln.String())
	id, err := cm.Resolve(ctx, ln.Addr().String(), cfg)
	require.NoError(t, err)
	defer id.Close()
	require.Contains(t, id.String(), `state=idle local="" remote=a:`)
	vctx := id.Context()
	pd, err := vctx.AllocPD()
	require.NoError(t, err)
	defer pd.Close()
	cq, err := vctx.CreateCQ(verbs.CQConfig{})
	require.NoError(t, err)
	defer cq.Close()
	qp, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq})
	require.NoError(t, err)
	defer qp.Close()
	refused := make(chan error, 1)
	go func() { refused <- id.Connect(ctx, qp, cm.ConnParam{PrivateData: []byte(secret)}) }()
	req, err := ln.Accept(ctx)
	require.NoError(t, err)
	require.Equal(t, secret, string(req.PrivateData()))
	require.Contains(t, id.String(), "state=connecting")
	for _, state := range []string{"waiting", "answered"} {
		require.Equal(t, fmt.Sprintf("Request(device=prn2 state=%s local=%v remote=%v)", state, req.LocalAddr(),
			req.RemoteAddr()), req.String())
		requireNoSecret(t, printed(t, req))
		if state == "waiting" {
			require.NoError(t, req.Reject([]byte(secret)))
		}
	}
	err = <-refused
	require.ErrorIs(t, err, cm.ErrRejected)
	requireNoSecret(t, printed(t, err))
	require.NotContains(t, printed(t, id), "state=established")
}

// TestPrintEndpoint: an endpoint can be printed from Prepare on, without what it sends and
// receives.
func TestPrintEndpoint(t *testing.T) {
	nic, err := usiw.New(usiw.Config{Name: "prn3", Network: usiwtest.NewWire()})
	require.NoError(t, err)
	defer nic.Close()
	defer func() { require.NoError(t, nic.Device().CloseShared()) }()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	ln, err := cm.Listen(ctx, "a:0", cm.Config{Device: nic.Device()})
	require.NoError(t, err)
	defer ln.Close()
	stop := make(chan struct{})
	var printing sync.WaitGroup
	begin := func(ep *cm.Endpoint) {
		printing.Go(func() {
			for done := false; !done; {
				select {
				case <-stop:
					done = true
				default:
				}
				requireNoSecret(t, printed(t, ep))
			}
		})
	}
	cfg := cm.EndpointConfig{Memory: 64, Param: cm.ConnParam{PrivateData: []byte(secret)},
		Prepare: func(ep *cm.Endpoint, _ *cm.ConnParam) error {
			if !strings.Contains(ep.String(), "state=preparing") && !strings.Contains(ep.String(), "state=idle") {
				t.Error(ep)
			}
			begin(ep)
			return nil
		}}
	requireNoSecret(t, printed(t, cfg))
	served := make(chan error, 1)
	go func() {
		ep, err := ln.AcceptEndpoint(ctx, cfg)
		if err == nil {
			_, err = ep.Recv(ctx, make([]byte, 64))
			err = errors.Join(err, ep.Close())
		}
		served <- err
	}()
	ep, err := cm.Dial(ctx, ln.Addr().String(), cm.Config{Device: nic.Device()}, cfg)
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintf(
		"Endpoint(device=prn3 state=established local=%v remote=%v qp_num=%d memory=64 message_size=4096 messages=16)",
		ep.ID().LocalAddr(), ep.ID().RemoteAddr(), ep.QP().Num()), ep.String())
	require.NoError(t, ep.Send(ctx, []byte(secret)))
	require.NoError(t, <-served)
	require.NoError(t, ep.Close())
	close(stop)
	printing.Wait()
	require.Contains(t, ep.String(), "state=closed")
}

// TestPrintEveryField: every configuration field that is set is shown.
func TestPrintEveryField(t *testing.T) {
	for _, zero := range []any{cm.ConnParam{}, cm.Datagram{}, usiw.Config{}, verbs.SGE{}, cm.Config{},
		cm.EndpointConfig{}} {
		typ := reflect.TypeOf(zero)
		for i := range typ.NumField() {
			v := reflect.New(typ).Elem()
			f := v.Field(i)
			switch f.Interface().(type) {
			case netip.Addr:
				f.Set(reflect.ValueOf(netip.MustParseAddr("192.0.2.1")))
			case netip.AddrPort:
				f.Set(reflect.ValueOf(netip.MustParseAddrPort("192.0.2.1:1")))
			case *verbs.Device:
				f.Set(reflect.ValueOf(new(verbs.Device)))
			case usiw.Network:
				f.Set(reflect.ValueOf(usiwtest.NewWire()))
			case cm.ConnParam:
				f.Set(reflect.ValueOf(cm.ConnParam{RetryCount: 1}))
			case verbs.QPCap:
				f.Set(reflect.ValueOf(verbs.QPCap{MaxSendWR: 1}))
			case verbs.AHAttr:
				f.Set(reflect.ValueOf(verbs.AHAttr{PortNum: 1}))
			default:
				switch f.Kind() {
				case reflect.String:
					f.SetString("x")
				case reflect.Slice:
					f.Set(reflect.MakeSlice(f.Type(), 1, 1))
				case reflect.Int, reflect.Int64:
					f.SetInt(1)
				case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
					f.SetUint(2)
				case reflect.Bool:
					f.SetBool(true)
				default:
					continue // a handle, an interface of the program
				}
			}
			require.NotEqual(t, fmt.Sprint(zero), fmt.Sprint(v.Interface()), "%v.%s is not shown", typ,
				typ.Field(i).Name)
		}
	}
}
