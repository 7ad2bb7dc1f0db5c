// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package fakeverbs

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const (
	psTCP = 0x106

	evAddrResolved    = 0
	evAddrError       = 1
	evRouteResolved   = 2
	evConnectRequest  = 4
	evConnectResponse = 5
	evUnreachable     = 7
	evRejected        = 8
	evEstablished     = 9
	evDisconnected    = 10
	evDeviceRemoval   = 11
	evTimewaitExit    = 15

	addr0 = 0xc0000201 // 192.0.2.1
	addr1 = 0xc6336401 // 198.51.100.1
)

// side is an event channel with an id on it.
type side struct{ ch, id object }

func newSide(t *testing.T) side {
	t.Helper()
	ch, err := callEventChannel()
	require.NoError(t, err)
	require.NoError(t, unix.SetNonblock(ch.eventFD(), true))
	t.Cleanup(ch.destroyEventChannel)
	id, err := ch.createID(psTCP)
	require.NoError(t, err)
	return side{ch, id}
}

// next reads and acknowledges the next event, and returns its contents and id.
func (s side) next(t *testing.T) (CMEvent, object) {
	t.Helper()
	event, ev, id, _, err := s.ch.getCM()
	require.NoError(t, err)
	require.NoError(t, event.ackCM())
	return ev, id
}

func (s side) expect(t *testing.T, event, status int) CMEvent {
	t.Helper()
	ev, _ := s.next(t)
	require.Equal(t, [2]int{event, status}, [2]int{ev.Event, ev.Status})
	return ev
}

func (s side) quiet(t *testing.T) {
	t.Helper()
	_, _, _, _, err := s.ch.getCM()
	require.Equal(t, syscall.EAGAIN, err)
}

func (s side) route(t *testing.T, ip uint32, port uint16) {
	t.Helper()
	require.NoError(t, s.id.resolveAddr(ip, port))
	s.expect(t, evAddrResolved, 0)
	require.NoError(t, s.id.resolveRoute())
	s.expect(t, evRouteResolved, 0)
}

// request creates a listener on a device's address, and an id that requests a connection to it.
func request(t *testing.T, dev int, data string) (client, listener side, child object, r rig) {
	t.Helper()
	r = newRig(t, dev)
	listener, client = newSide(t), newSide(t)
	ip := [...]uint32{addr0, addr1}[dev]
	require.NoError(t, listener.id.bind(ip, 7471))
	require.NoError(t, listener.id.listen(4))
	client.route(t, ip, 7471)
	require.NoError(t, client.id.connect(CMEvent{PrivateData: []byte(data), QPN: r.qp.num(), ResponderResources: 3,
		InitiatorDepth: 5, RetryCount: 7}))
	event, ev, child, from, err := listener.ch.getCM()
	require.NoError(t, err)
	require.Equal(t, listener.id, from)
	require.Equal(t, evConnectRequest, ev.Event)
	require.Equal(t, data, string(ev.PrivateData[:len(data)]))
	require.Equal(t, [2]uint8{5, 3}, [2]uint8{ev.ResponderResources, ev.InitiatorDepth}, "as the peer sees them")
	if dev == Fake0 {
		require.Len(t, ev.PrivateData, 56)
		require.Equal(t, r.qp.num(), ev.QPN)
	} else {
		require.Len(t, ev.PrivateData, len(data))
	}
	require.NoError(t, event.ackCM())
	return client, listener, child, r
}

func TestConnectOnInfiniBand(t *testing.T) {
	client, listener, child, r := request(t, Fake0, "hello")
	require.Error(t, client.id.establish(), "too early")
	require.NoError(t, child.accept(
		CMEvent{PrivateData: []byte("welcome"), QPN: 77, ResponderResources: 2, InitiatorDepth: 1}))
	ev := client.expect(t, evConnectResponse, 0)
	require.Len(t, ev.PrivateData, 196)
	require.Equal(t, "welcome", string(ev.PrivateData[:7]))
	require.Equal(t, uint32(77), ev.QPN)
	mask, dest, err := client.id.initAttr(stateRTR)
	require.NoError(t, err)
	require.Equal(t, maskRTR|1, mask)
	require.Equal(t, 77, dest)
	_, dest, err = child.initAttr(stateRTR)
	require.NoError(t, err)
	require.Equal(t, int(r.qp.num()), dest)
	listener.quiet(t)
	require.NoError(t, client.id.establish())
	listener.expect(t, evEstablished, 0)
	ids := CMIDs()
	require.Len(t, ids, 3)
	require.Equal(t, CMConnected, ids[1].State)
	require.Equal(t, ids[2].ID, ids[1].Peer)
	require.Equal(t, uint16(7471), ids[1].DstPort)
	require.Equal(t, Fake0, ids[1].Device)
	require.Equal(t, "hello", string(ids[1].Param.PrivateData))

	require.NoError(t, client.id.disconnect())
	listener.expect(t, evDisconnected, 0)
	client.quiet(t) // until the peer answers
	require.NoError(t, child.disconnect())
	client.expect(t, evDisconnected, 0)
	client.expect(t, evTimewaitExit, 0)
	listener.expect(t, evTimewaitExit, 0)
	require.Error(t, client.id.disconnect())
	for _, id := range []object{client.id, child, listener.id} {
		require.NoError(t, id.destroyID())
	}
}

func TestConnectOnIWARP(t *testing.T) {
	client, listener, child, r := request(t, Fake1, "hello")
	other := r.newQP(t)
	require.Error(t, child.accept(CMEvent{QPN: 9}), "no QP of that number")
	require.NoError(t, child.accept(CMEvent{PrivateData: []byte("welcome"), QPN: other.num(), ResponderResources: 2}))
	ev := client.expect(t, evEstablished, 0)
	require.Equal(t, "welcome", string(ev.PrivateData))
	listener.expect(t, evEstablished, 0)
	require.Error(t, client.id.establish(), "needless there")
	for _, qp := range []object{r.qp, other} {
		got, ok := QPByNum(qp.num())
		require.True(t, ok)
		require.Equal(t, uint32(stateRTS), got.State)
	}
	got, _ := QPByNum(r.qp.num())
	require.Equal(t, [2]uint8{5, 0}, [2]uint8{got.MaxDestRdAtomic, got.MaxRdAtomic},
		"ORD, which the acceptor follows, and IRD, in siw's order")
	_, err := other.postSend(WR{Opcode: opRead, NumSGE: 1})
	require.NoError(t, err)
	require.Equal(t, []string{"ibv_post_send: a Read at ORD 0 on siw: its queue jams"}, Faults())
	for range 5 {
		_, err = r.qp.postSend(WR{Opcode: opRead, NumSGE: 1, SGEs: []SGE{{0x1000, 64, 1}}})
		require.NoError(t, err)
	}
	require.Empty(t, Faults())
	_, err = r.qp.postSend(WR{Opcode: opRead, NumSGE: 1, SGEs: []SGE{{0x1000, 64, 1}}})
	require.NoError(t, err)
	require.Equal(t, []string{"ibv_post_send: a Read beyond ORD 5 on siw: until one is answered no Read of the peer's is"}, Faults())

	require.NoError(t, child.disconnect())
	client.expect(t, evDisconnected, 0)
	listener.expect(t, evDisconnected, 0)
	wcs, err := r.cq.poll(8)
	require.NoError(t, err)
	require.Len(t, wcs, 7, "flushed on both sides")
	for _, id := range []object{child, client.id, listener.id} {
		require.NoError(t, id.destroyID())
	}
}

func TestReject(t *testing.T) {
	for dev, status := range []int{28, -int(syscall.ECONNREFUSED)} {
		t.Run("", func(t *testing.T) {
			client, listener, child, _ := request(t, dev, "x")
			require.NoError(t, child.reject([]byte("no")))
			ev := client.expect(t, evRejected, status)
			require.Equal(t, "no", string(ev.PrivateData[:2]))
			require.Error(t, child.accept(CMEvent{}))
			for _, id := range []object{child, client.id, listener.id} {
				require.NoError(t, id.destroyID())
			}
		})
	}
}

func TestNobodyListens(t *testing.T) {
	r := newRig(t, Fake0)
	s := newSide(t)
	s.route(t, addr0, 7471)
	require.NoError(t, s.id.connect(CMEvent{QPN: r.qp.num()}))
	s.expect(t, evRejected, 8)
	require.NoError(t, s.id.destroyID())

	s = newSide(t)
	s.route(t, addr1, 7471)
	require.Error(t, s.id.connect(CMEvent{QPN: 9}), "no QP of that number")
	require.NoError(t, s.id.connect(CMEvent{QPN: r.qp.num()}))
	s.expect(t, evRejected, -int(syscall.ECONNREFUSED))
	require.NoError(t, s.id.destroyID())
}

func TestBacklog(t *testing.T) {
	r := newRig(t, Fake0)
	listener := newSide(t)
	require.NoError(t, listener.id.bind(0, 7471))
	require.NoError(t, listener.id.listen(1))
	var clients []side
	for range 2 {
		c := newSide(t)
		c.route(t, addr0, 7471)
		require.NoError(t, c.id.connect(CMEvent{QPN: r.qp.num()}))
		clients = append(clients, c)
	}
	clients[1].expect(t, evUnreachable, -int(syscall.ETIMEDOUT))
	require.NoError(t, listener.id.destroyID())
	clients[0].expect(t, evRejected, 28)
	for _, c := range clients {
		require.NoError(t, c.id.destroyID())
	}
}

func TestAddresses(t *testing.T) {
	Start(t)
	a, b := newSide(t), newSide(t)
	require.Equal(t, syscall.EADDRNOTAVAIL, a.id.bind(0xc0000202, 1), "another host's")
	require.Equal(t, syscall.EADDRNOTAVAIL, a.id.bind(0x08080808, 1))
	require.NoError(t, a.id.bind(addr0, 0))
	require.NotZero(t, CMIDs()[0].SrcPort)
	require.Equal(t, syscall.EADDRINUSE, b.id.bind(addr0, CMIDs()[0].SrcPort))
	require.Equal(t, syscall.ENETUNREACH, b.id.resolveAddr(0x08080808, 1))
	require.Equal(t, syscall.EINVAL, b.id.resolveRoute(), "before the address")
	SetHidden(Fake0, true)
	require.Equal(t, syscall.ENETUNREACH, b.id.resolveAddr(addr0, 1))
	SetHidden(Fake0, false)
	require.NoError(t, b.id.resolveAddr(addr0, 1))
	b.expect(t, evAddrResolved, 0)
	require.NoError(t, a.id.destroyID())
	require.NoError(t, b.id.destroyID())
}

func TestCMNextAndInject(t *testing.T) {
	Start(t)
	s := newSide(t)
	CMNext("rdma_resolve_addr", CMEvent{Event: evAddrError, Status: -19})
	require.NoError(t, s.id.resolveAddr(addr0, 1))
	s.expect(t, evAddrError, -19)
	CMNext("rdma_resolve_addr", CMEvent{Event: NoEvent})
	require.NoError(t, s.id.resolveAddr(addr0, 1))
	s.quiet(t)
	s.route(t, addr0, 1)
	CMNext("rdma_connect", CMEvent{Event: evRejected, Status: 28, PrivateData: []byte("go away")})
	require.NoError(t, s.id.connect(CMEvent{}))
	require.Equal(t, "go away", string(s.expect(t, evRejected, 28).PrivateData))
	id := CMIDs()[0].ID
	require.True(t, InjectCM(id, CMEvent{Event: evDeviceRemoval}))
	s.expect(t, evDeviceRemoval, 0)
	require.False(t, InjectCM(id+100, CMEvent{Event: evDeviceRemoval}))
	require.NoError(t, s.id.destroyID())
	require.False(t, InjectCM(id, CMEvent{Event: evDeviceRemoval}))
}

func TestDestroyIDWaitsForAcknowledgements(t *testing.T) {
	Start(t)
	s := newSide(t)
	require.NoError(t, s.id.resolveAddr(addr0, 1))
	event, _, _, _, err := s.ch.getCM()
	require.NoError(t, err)
	SetBlockLimit(10 * time.Second)
	time.AfterFunc(10*time.Millisecond, func() { event.ackCM() })
	require.NoError(t, s.id.destroyID())
	require.Empty(t, Faults())
	require.Equal(t, syscall.EINVAL, event.ackCM())
	require.Regexp(t, `^rdma_ack_cm_event: event \d+ was destroyed before$`, Faults()[0])

	s = newSide(t)
	require.NoError(t, s.id.resolveAddr(addr0, 1))
	event, _, _, _, err = s.ch.getCM()
	require.NoError(t, err)
	SetBlockLimit(50 * time.Millisecond)
	require.NoError(t, s.id.destroyID())
	require.Regexp(t, `^rdma_destroy_id: blocked on id \d+: 1 events are not acknowledged$`, Faults()[0])
	require.NoError(t, event.ackCM())
	require.Equal(t, syscall.EINVAL, s.id.destroyID())
	require.Len(t, Faults(), 1)
}

func TestChannelBeforeItsIDsIsAFault(t *testing.T) {
	Start(t)
	ch, err := callEventChannel()
	require.NoError(t, err)
	id, err := ch.createID(psTCP)
	require.NoError(t, err)
	_, err = ch.createID(1)
	require.Equal(t, syscall.EPROTONOSUPPORT, err)
	require.NoError(t, id.destroyID())
	id, err = ch.createID(psTCP)
	require.NoError(t, err)
	ch.destroyEventChannel()
	require.Regexp(t, `^rdma_destroy_event_channel: event channel \d+ is still used by 1 objects$`, Faults()[0])
	ch, err = callEventChannel()
	require.NoError(t, err)
	t.Cleanup(ch.destroyEventChannel)
	require.NoError(t, id.migrate(ch))
	require.NoError(t, id.destroyID())
}

// Destroying an id without a disconnect notifies its peer.
func TestDestroyTellsThePeer(t *testing.T) {
	for dev := range 2 {
		client, listener, child, r := request(t, dev, "x")
		require.NoError(t, child.accept(CMEvent{QPN: r.newQP(t).num()}))
		client.next(t)
		if dev == Fake0 {
			require.NoError(t, client.id.establish())
		}
		listener.expect(t, evEstablished, 0)
		require.NoError(t, child.destroyID())
		client.expect(t, evDisconnected, 0)
		require.NoError(t, client.id.destroyID())
		require.NoError(t, listener.id.destroyID())
	}
}
