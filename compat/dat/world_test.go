// SPDX-License-Identifier: BSD-3-Clause

package dat_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/compat/dat"
	"github.com/goverbs/goverbs/compat/ibcompat"
	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// patience bounds every wait for something that must happen.
const patience = 30 * time.Second

// kernelAddr lists the addresses of the guest's devices.
var kernelAddr = map[string]string{"rxe0": "10.78.0.1", "siw0": "10.77.0.1"}

// everywhere runs a test on the user-space RNIC with and without RFC 7306, and in the guest also on
// kernel devices.
func everywhere(t *testing.T, test func(t *testing.T, dev *verbs.Device, addr netip.Addr)) {
	for name, without := range map[string]verbs.OpSet{"usiw0": 0, "usiw0-plain": ext.Operations} {
		t.Run(name, func(t *testing.T) {
			nic, err := usiw.New(usiw.Config{Name: name, Without: without})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, nic.Close()) }) // after the IAs
			dev, err := ibcompat.Wrap(nic.Device(), ibcompat.Config{})
			require.NoError(t, err)
			test(t, dev, netip.MustParseAddr("127.0.0.1"))
		})
	}
	for _, name := range []string{"rxe0", "siw0"} {
		if !slices.Contains(strings.Split(os.Getenv(rdmatest.RequireVariable), ","), name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			dev, err := verbs.DeviceByName(ibcompat.Prefix + name)
			require.NoError(t, err)
			test(t, dev, netip.MustParseAddr(kernelAddr[name]))
		})
	}
}

// side is one side of a connection.
type side struct {
	t              *testing.T
	ia             *dat.IA
	pz             *dat.PZ
	requests, recv *dat.EVD
	conn           *dat.EVD // also connection requests
	ep             *dat.EP
	lmr            *dat.LMR
	peer           *side
}

const memory = 64 << 10

// options modify what newSide creates.
type options struct {
	attr  dat.EPAttr
	qlen  int
	fresh bool // not connected
}

func newSide(t *testing.T, dev *verbs.Device, addr netip.Addr, o options) *side {
	t.Helper()
	if o.qlen == 0 {
		o.qlen = 256
	}
	s := &side{t: t}
	var err error
	s.ia, err = dat.Open("", dat.Config{Device: dev, Addr: addr})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.ia.Close(dat.CloseAbrupt)) })
	s.pz, err = s.ia.CreatePZ()
	require.NoError(t, err)
	s.requests, err = s.ia.CreateEVD(o.qlen, dat.EVDDTO)
	require.NoError(t, err)
	s.recv, err = s.ia.CreateEVD(o.qlen, dat.EVDDTO)
	require.NoError(t, err)
	s.conn, err = s.ia.CreateEVD(8, dat.EVDConnection|dat.EVDCR)
	require.NoError(t, err)
	s.ep, err = s.ia.CreateEP(s.pz, s.recv, s.requests, s.conn, o.attr)
	require.NoError(t, err)
	s.lmr, err = s.pz.AllocLMR(memory, dat.MemPrivAll|dat.MemPrivRemoteAtomic)
	require.NoError(t, err)
	return s
}

// pair returns two connected sides, each with its own IA.
func pair(t *testing.T, dev *verbs.Device, addr netip.Addr, o options) (client, server *side) {
	t.Helper()
	client, server = newSide(t, dev, addr, o), newSide(t, dev, addr, o)
	client.peer, server.peer = server, client
	connect(t, addr, client, server)
	return client, server
}

func (s *side) listen() (*dat.PSP, uint64) {
	s.t.Helper()
	psp, err := s.ia.CreatePSP(0, s.conn, dat.PSPConsumer)
	require.NoError(s.t, err)
	param, err := psp.Query()
	require.NoError(s.t, err)
	return psp, param.ConnQual
}

func connect(t *testing.T, addr netip.Addr, client, server *side) {
	t.Helper()
	psp, qual := server.listen()
	require.NoError(t, client.ep.Connect(addr, qual, patience, []byte("hello")))
	cr := wait(t, server.conn, dat.ConnectionRequestEvent).CR
	require.NoError(t, cr.CR.Accept(server.ep, []byte("welcome")))
	wait(t, client.conn, dat.ConnectionEstablished)
	wait(t, server.conn, dat.ConnectionEstablished)
	require.NoError(t, psp.Free())
	require.Equal(t, dat.EPConnected, client.ep.State())
	require.Equal(t, dat.EPConnected, server.ep.State())
}

// wait waits for the next event, which must have the given number.
func wait(t testing.TB, e *dat.EVD, number dat.EventNumber) dat.Event {
	t.Helper()
	ev, _, err := e.Wait(context.Background(), patience, 1)
	require.NoError(t, err)
	require.Equal(t, number, ev.Number, "%v: %+v %+v", ev.Number, ev.Connection, ev.DTO)
	require.Same(t, e, ev.EVD)
	return ev
}

// dto waits for the completion of a DTO.
func dto(t testing.TB, e *dat.EVD, cookie uint64) dat.DTOCompletion {
	t.Helper()
	d := wait(t, e, dat.DTOCompletionEvent).DTO
	require.Equal(t, cookie, d.Cookie)
	return d
}

// equal is like require.Equal for structs that contain handles, which it compares by identity and
// prints with their own methods. require.Equal would look for differences in everything that a
// handle refers to, including its device's memory, which takes minutes.
func equal[T comparable](t testing.TB, want, got T, about ...any) {
	t.Helper()
	if want != got {
		require.Fail(t, fmt.Sprintf("not equal:\nwant %+v\ngot  %+v", want, got), about...)
	}
}

// empty requires that an EVD has no event.
func empty(t testing.TB, e *dat.EVD) {
	t.Helper()
	ev, err := e.Dequeue()
	require.ErrorIs(t, err, dat.QueueEmpty, "%v %+v", ev.Number, ev.DTO)
}

func (s *side) segment(off, n int) []dat.LMRTriplet {
	s.t.Helper()
	seg, err := s.lmr.Segment(off, n)
	require.NoError(s.t, err)
	return []dat.LMRTriplet{seg}
}

func (s *side) remote(off, n int) dat.RMRTriplet {
	s.t.Helper()
	r, err := s.lmr.Remote(off, n)
	require.NoError(s.t, err)
	return r
}

func (s *side) bytes(off, n int) []byte { return s.lmr.Bytes()[off:][:n] }

// number returns the 8-byte word at an offset.
func (s *side) number(off int) uint64 { return binary.NativeEndian.Uint64(s.bytes(off, 8)) }

func (s *side) setNumber(off int, v uint64) { binary.NativeEndian.PutUint64(s.bytes(off, 8), v) }
