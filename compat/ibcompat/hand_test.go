// SPDX-License-Identifier: BSD-3-Clause

package ibcompat_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/compat/ibcompat"
	"github.com/goverbs/goverbs/compat/ibcompat/internal/wire"
	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/internal/iwarp/mpa"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/usiw/usiwtest"
	"github.com/goverbs/goverbs/verbs"
)

var home = netip.MustParseAddr("127.0.0.1")

const (
	initMask = verbs.QPAttrState | verbs.QPAttrPKeyIndex | verbs.QPAttrPort | verbs.QPAttrAccessFlags
	rtrMask  = verbs.QPAttrState | verbs.QPAttrAV | verbs.QPAttrPathMTU | verbs.QPAttrDestQPN | verbs.QPAttrRQPSN |
		verbs.QPAttrMaxDestRdAtomic | verbs.QPAttrMinRNRTimer
	rtsMask = verbs.QPAttrState | verbs.QPAttrTimeout | verbs.QPAttrRetryCnt | verbs.QPAttrRNRRetry |
		verbs.QPAttrSQPSN | verbs.QPAttrMaxRdAtomic
)

// toINIT moves a QP to INIT.
func (e *end) toINIT() {
	e.Helper()
	require.NoError(e, e.qp.Modify(verbs.QPAttr{State: verbs.QPStateInit, PortNum: 1,
		AccessFlags: verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic}, initMask))
}

// rtr returns the RTR attributes for a peer at the loopback address.
func (e *end) rtr(number uint32) verbs.QPAttr {
	e.Helper()
	row, err := e.ctx.ChooseGID(1, home)
	require.NoError(e, err)
	require.Equal(e, home, row.GID.Addr())
	return e.rtrBy(row, number)
}

// rtrBy returns the RTR attributes for a peer at the address of a GID table entry.
func (e *end) rtrBy(row verbs.GIDEntry, number uint32) verbs.QPAttr {
	return verbs.QPAttr{State: verbs.QPStateRTR, PathMTU: verbs.MTU1024, DestQPNum: number, RQPSN: 7,
		MaxDestRdAtomic: 4, MinRNRTimer: 12,
		AH: verbs.AHAttr{IsGlobal: true, PortNum: 1,
			GRH: verbs.GlobalRoute{DGID: row.GID, SGIDIndex: uint8(row.Index), HopLimit: 1}}}
}

var rts = verbs.QPAttr{State: verbs.QPStateRTS, SQPSN: 7, Timeout: 8, RetryCnt: 1, RNRRetry: 7, MaxRdAtomic: 4}

// toRTS moves a QP from INIT to RTS.
func (e *end) toRTS(number uint32) {
	e.Helper()
	require.NoError(e, e.qp.Modify(e.rtr(number), rtrMask))
	require.NoError(e, e.qp.Modify(rts, rtsMask))
	require.Equal(e, verbs.QPStateRTS, e.qp.State())
}

// handPair returns two QPs in INIT. a has the smaller number, so a calls and b waits.
func handPair(t testing.TB, one, other *verbs.Context) (a, b *end) {
	t.Helper()
	a, b = newEnd(t, one, verbs.QPConfig{}), newEnd(t, other, verbs.QPConfig{})
	if a.qp.Num() > b.qp.Num() {
		a, b = b, a
	}
	a.toINIT()
	b.toINIT()
	return a, b
}

// works requires that every operation works from one end to the other.
func works(t testing.TB, a, b *end) {
	t.Helper()
	b.put(1024, 40)
	a.put(64, 7)
	b.recv(70)
	a.post(verbs.SendImm(1, a.sgl(64, 8)...), a.on(ext.FetchAddWR(verbs.Remote{Length: 8}, 2), 72, b, 1024),
		verbs.Read(verbs.Remote{Addr: b.mr.Addr() + 1024, Length: 1 << 30, RKey: b.mr.RKey()}, a.sgl(80, 8)...))
	a.ends(verbs.WCSuccess, 0, 0, 0)
	b.ends(verbs.WCSuccess, 70)
	require.Equal(t, []uint64{40, 42, 7}, []uint64{a.word(72), a.word(80), b.word(2048)})
}

// TestHand checks that QPs brought up by Modify work in both directions, whichever comes first.
func TestHand(t *testing.T) {
	overIWARP(t, func(t *testing.T, _ bool, active, passive *verbs.Context) {
		for name, ctxs := range map[string][2]*verbs.Context{"two devices": {active, passive},
			"one device": {passive, passive}} {
			for _, callerFirst := range []bool{true, false} {
				t.Run(fmt.Sprint(name, callerFirst), func(t *testing.T) {
					a, b := handPair(t, ctxs[0], ctxs[1])
					require.Equal(t, ctxs[0] != ctxs[1], a.qp.Num()>>17 != b.qp.Num()>>17,
						"each device has a port of its own")
					first, second := a, b
					if !callerFirst {
						first, second = b, a
					}
					first.toRTS(second.qp.Num())
					first.post(verbs.Send(first.sgl(0, 8)...)) // waits for the peer, and for its receive
					time.Sleep(20 * time.Millisecond)
					second.toRTS(first.qp.Num())
					second.recv(5)
					first.ends(verbs.WCSuccess, 0)
					second.ends(verbs.WCSuccess, 5)
					works(t, a, b)
					works(t, b, a)
				})
			}
		}
	})
}

// TestHandIPv6 checks GIDs that are IPv6 addresses, of the loopback and of other interfaces,
// including link-local ones, which are valid only on their own interface. Addresses on which nobody
// can listen yet (tentative ones, RFC 4862 section 5.4) are skipped.
func TestHandIPv6(t *testing.T) {
	ln, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		rdmatest.AgainWithIPv6(t, err)
		return
	}
	require.NoError(t, ln.Close())
	_, one := newIWARP(t, 0, ibcompat.Config{})
	_, other := newIWARP(t, ext.Operations, ibcompat.Config{})
	left, right := open(t, one), open(t, other)
	rows, err := left.GIDs(1)
	require.NoError(t, err)
	loopback := false
	for _, row := range rows {
		if row.GID.Addr().Is4() {
			continue
		}
		loopback = loopback || row.GID.Addr().IsLoopback()
		at := net.TCPAddr{IP: row.GID[:]}
		if row.GID.Addr().IsLinkLocalUnicast() {
			at.Zone = row.NetDev
		}
		ln, err := net.ListenTCP("tcp6", &at)
		if err != nil && !row.GID.Addr().IsLoopback() {
			t.Log(err)
			continue
		}
		require.NoError(t, err)
		require.NoError(t, ln.Close())
		t.Run(row.GID.Addr().String(), func(t *testing.T) {
			a, b := handPair(t, left, right)
			// both devices are on this host, and have the same table
			require.NoError(t, b.qp.Modify(b.rtrBy(row, a.qp.Num()), rtrMask))
			require.NoError(t, a.qp.Modify(a.rtrBy(row, b.qp.Num()), rtrMask))
			require.NoError(t, b.qp.Modify(rts, rtsMask))
			require.NoError(t, a.qp.Modify(rts, rtsMask))
			works(t, a, b)
			works(t, b, a)

			c, d := handPair(t, left, right)
			attr := c.rtrBy(row, d.qp.Num())
			attr.AH.GRH.DGID = verbs.GIDFromAddr(home)
			require.ErrorIs(t, c.qp.Modify(attr, rtrMask), verbs.ErrInvalid, "from IPv6 to IPv4")
		})
	}
	require.True(t, loopback, "%v", rows)
}

// TestHandMany checks that QPs of several devices that are brought up concurrently find each other,
// and so do the requests they already have. They can also be closed concurrently.
func TestHandMany(t *testing.T) {
	var ctxs []*verbs.Context
	for _, without := range []verbs.OpSet{0, ext.Operations, 0} {
		_, dev := newIWARP(t, without, ibcompat.Config{})
		ctxs = append(ctxs, open(t, dev))
	}
	const pairs = 20
	var ends [2 * pairs]*end
	for i := range pairs {
		ends[2*i], ends[2*i+1] = handPair(t, ctxs[rand.IntN(len(ctxs))], ctxs[rand.IntN(len(ctxs))])
	}
	all := func(do func(e, peer *end)) {
		var done sync.WaitGroup
		for _, i := range rand.Perm(len(ends)) {
			done.Go(func() {
				time.Sleep(time.Duration(rand.IntN(10)) * time.Millisecond)
				do(ends[i], ends[i^1])
			})
		}
		done.Wait()
	}
	all(func(e, peer *end) {
		forever := rts
		forever.Timeout = 0
		require.NoError(e, e.qp.Modify(e.rtr(peer.qp.Num()), rtrMask))
		require.NoError(e, e.qp.Modify(forever, rtsMask))
		e.recv(1)
		e.post(verbs.SendWR{ID: 2, Opcode: verbs.WRSend, Flags: verbs.SendSignaled})
		require.ElementsMatch(e, []uint64{1, 2}, []uint64{e.wait().ID, e.wait().ID})
	})
	for i := range pairs {
		works(t, ends[2*i], ends[2*i+1])
	}
	all(func(e, _ *end) { require.NoError(e, e.qp.Close()) })
}

// TestHandQuery checks that a query returns the attributes that the program set.
func TestHandQuery(t *testing.T) {
	_, dev := newIWARP(t, ext.Operations, ibcompat.Config{})
	ctx := open(t, dev)
	a, b := handPair(t, ctx, ctx)
	want := a.rtr(b.qp.Num())
	require.NoError(t, a.qp.Modify(want, rtrMask))
	got, err := a.qp.Query()
	require.NoError(t, err)
	require.Equal(t, verbs.QPStateRTR, got.State)
	require.NoError(t, a.qp.Modify(rts, rtsMask))
	got, err = a.qp.Query()
	require.NoError(t, err)
	want.State, want.CurState, want.PortNum, want.Cap = verbs.QPStateRTS, verbs.QPStateRTS, 1, a.qp.Cap()
	want.SQPSN, want.Timeout, want.RetryCnt, want.RNRRetry, want.MaxRdAtomic = rts.SQPSN, rts.Timeout, rts.RetryCnt,
		rts.RNRRetry, rts.MaxRdAtomic
	want.AccessFlags = verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic
	require.Equal(t, want, got)

	// After a reset nothing is left of them.
	require.NoError(t, a.qp.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPAttrState))
	got, err = a.qp.Query()
	require.NoError(t, err)
	require.Zero(t, got.DestQPNum)
	require.Zero(t, got.AH)
}

// TestHandFails checks that the first request of a QP without a peer fails, with a reason. Without
// a request the QP keeps waiting.
func TestHandFails(t *testing.T) {
	// a QP number with the last port is the larger one, so that QP does not call
	const last = ibcompat.RendezvousPorts - 1
	base := taken(t, last, 1) // its listener accepts connections and sends nothing
	for _, c := range []struct {
		name   string
		reason error
		number func(t *testing.T, a, b *end) uint32 // the one passed to a
		caller bool
	}{
		{"no such QP", ibcompat.ErrWrongQP, func(t *testing.T, a, b *end) uint32 {
			b.toRTS(a.qp.Num())
			return b.qp.Num() ^ 1<<12
		}, true},
		{"a QP that waits for another one", ibcompat.ErrWrongQP, func(t *testing.T, a, b *end) uint32 {
			b.toRTS(2)
			return b.qp.Num()
		}, true},
		{"a number without a port", ibcompat.ErrWrongQP, func(*testing.T, *end, *end) uint32 { return 1<<24 - 1 },
			true},
		{"nobody listens", ibcompat.ErrPeerAbsent, func(t *testing.T, a, b *end) uint32 { return (last-1)<<17 | 1<<16 },
			true},
		{"the peer stays in INIT", ibcompat.ErrWrongQP, func(t *testing.T, a, b *end) uint32 {
			return b.qp.Num()
		}, true},
		{"nobody calls", ibcompat.ErrPeerAbsent, func(t *testing.T, a, b *end) uint32 { return 2 }, false},
		{"the address does not answer", ibcompat.ErrNoAnswer, func(t *testing.T, a, b *end) uint32 {
			return last<<17 | 1<<16
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, dev := newIWARP(t, 0, ibcompat.Config{Rendezvous: base})
			a, b := handPair(t, open(t, dev), open(t, dev))
			if !c.caller {
				a, b = b, a
			}
			idle := newEnd(t, a.ctx, verbs.QPConfig{})
			idle.toINIT()
			number := c.number(t, a, b)
			a.toRTS(number)
			idle.toRTS(number)
			a.recv(1)
			a.post(verbs.Send(a.sgl(0, 8)...), verbs.SendWR{ID: 2, Opcode: verbs.WRSend})
			wc := a.wait()
			require.EqualValues(t, 0, wc.ID)
			require.Equal(t, verbs.WCRetryExcErr.String(), wc.Status.String())
			cause := a.qp.Cause(&wc)
			for _, err := range []error{a.qp.Err(), cause} {
				require.ErrorIs(t, err, verbs.WCRetryExcErr)
				var hand *ibcompat.HandError
				require.ErrorAs(t, err, &hand)
				require.Equal(t, c.reason, hand.Reason, "%v", err)
				require.ErrorIs(t, err, c.reason)
				require.Equal(t, ibcompat.HandName{GID: verbs.GIDFromAddr(home), QPN: a.qp.Num()}, hand.Local)
				require.Equal(t, ibcompat.HandName{GID: verbs.GIDFromAddr(home), QPN: number}, hand.Remote)
				require.ErrorContains(t, err, fmt.Sprintf("127.0.0.1 QP 0x%06x", number))
			}
			flushed := []verbs.WC{a.wait(), a.wait()}
			require.ElementsMatch(t, []uint64{1, 2}, []uint64{flushed[0].ID, flushed[1].ID})
			require.Equal(t, verbs.QPStateErr, a.qp.State())
			a.post(verbs.SendWR{ID: 3, Opcode: verbs.WRSend})
			a.ends(verbs.WCWRFlushErr, 3)
			require.Equal(t, verbs.QPStateRTS, idle.qp.State())
			require.NoError(t, idle.qp.Err())
		})
	}
}

// TestHandGone checks that a QP notices that its peer is gone through its next request.
func TestHandGone(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, e *end){
		"close": func(t *testing.T, e *end) { require.NoError(t, e.qp.Close()) },
		"error": func(t *testing.T, e *end) {
			require.NoError(t, e.qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState))
		},
		"reset": func(t *testing.T, e *end) {
			require.NoError(t, e.qp.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPAttrState))
		},
	} {
		t.Run(name, func(t *testing.T) {
			overIWARP(t, func(t *testing.T, _ bool, active, passive *verbs.Context) {
				for _, caller := range []bool{true, false} {
					a, b := handPair(t, active, passive)
					a.toRTS(b.qp.Num())
					b.toRTS(a.qp.Num())
					works(t, a, b)
					if !caller {
						a, b = b, a
					}
					end(t, b)
					a.recv(1)
					time.Sleep(20 * time.Millisecond)
					require.Equal(t, verbs.QPStateRTS, a.qp.State())
					require.NoError(t, a.qp.Err())
					a.post(verbs.SendWR{ID: 2, Opcode: verbs.WRSend}, verbs.SendWR{ID: 3, Opcode: verbs.WRSend})
					a.ends(verbs.WCRetryExcErr, 2)
					flushed := []verbs.WC{a.wait(), a.wait()}
					require.ElementsMatch(t, []uint64{1, 3}, []uint64{flushed[0].ID, flushed[1].ID})
					require.Equal(t, verbs.WCWRFlushErr, flushed[0].Status)
					require.ErrorIs(t, a.qp.Err(), io.EOF)
					a.post(verbs.SendWR{ID: 4, Opcode: verbs.WRSend})
					a.ends(verbs.WCWRFlushErr, 4)
				}
			})
		})
	}
}

// TestHandLeaves checks that a QP that calls or waits can be closed, and reset and used again.
func TestHandLeaves(t *testing.T) {
	_, dev := newIWARP(t, 0, ibcompat.Config{})
	left, right := open(t, dev), open(t, dev)
	for _, caller := range []bool{true, false} {
		a, b := handPair(t, left, right)
		if !caller {
			a, b = b, a
		}
		for range 3 {
			a.toRTS(b.qp.Num())
			a.recv(1)
			a.post(verbs.Send(a.sgl(0, 8)...))
			time.Sleep(10 * time.Millisecond)
			require.NoError(t, a.qp.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPAttrState))
			a.toINIT()
		}
		a.toRTS(b.qp.Num())
		b.toRTS(a.qp.Num())
		works(t, a, b)

		c, d := handPair(t, left, right)
		if !caller {
			c, d = d, c
		}
		c.toRTS(d.qp.Num())
		c.post(verbs.Send(c.sgl(0, 8)...))
		require.NoError(t, c.qp.Close())
		c.ends(verbs.WCWRFlushErr, 0)
	}
}

// TestHandInvalid checks that Modify refuses an invalid path to a peer, without side effects.
func TestHandInvalid(t *testing.T) {
	_, dev := newIWARP(t, 0, ibcompat.Config{})
	ctx := open(t, dev)
	a, b := handPair(t, ctx, ctx)
	gid := func(address string) func(attr *verbs.QPAttr) {
		return func(attr *verbs.QPAttr) { attr.AH.GRH.DGID = verbs.GIDFromAddr(netip.MustParseAddr(address)) }
	}
	for name, c := range map[string]struct {
		err    error
		change func(attr *verbs.QPAttr)
	}{
		"a path without GRH":         {verbs.ErrInvalid, func(attr *verbs.QPAttr) { attr.AH.IsGlobal = false }},
		"port_num 2":                 {verbs.ErrInvalid, func(attr *verbs.QPAttr) { attr.AH.PortNum = 2 }},
		"path_mtu":                   {verbs.ErrInvalid, func(attr *verbs.QPAttr) { attr.PathMTU = 6 }},
		"max_dest_rd_atomic 129":     {verbs.ErrInvalid, func(attr *verbs.QPAttr) { attr.MaxDestRdAtomic = 129 }},
		"index 255":                  {verbs.ErrNoGID, func(attr *verbs.QPAttr) { attr.AH.GRH.SGIDIndex = 255 }},
		"DGID 0.0.0.0":               {verbs.ErrInvalid, gid("0.0.0.0")},
		"DGID ::":                    {verbs.ErrInvalid, gid("::")},
		"DGID 224.0.0.1":             {verbs.ErrInvalid, gid("224.0.0.1")},
		"DGID ::1 cannot be reached": {verbs.ErrInvalid, gid("::1")},
		"dest_qp_num":                {verbs.ErrInvalid, func(attr *verbs.QPAttr) { attr.DestQPNum = 1 << 24 }},
	} {
		attr := a.rtr(b.qp.Num())
		c.change(&attr)
		err := a.qp.Modify(attr, rtrMask)
		require.ErrorIs(t, err, c.err, name)
		require.ErrorContains(t, err, name)
		require.Equal(t, verbs.QPStateInit, a.qp.State(), name)
	}
	a.toRTS(b.qp.Num())
	b.toRTS(a.qp.Num())
	works(t, a, b)
}

// TestHandManaged checks that a QP being connected by a connection manager cannot be brought up
// manually, and vice versa.
func TestHandManaged(t *testing.T) {
	_, dev := newIWARP(t, 0, ibcompat.Config{})
	ctx := open(t, dev)
	quiet, err := cm.Listen(soon(t), "127.0.0.1:0", cm.Config{Context: ctx})
	require.NoError(t, err)
	defer func() { require.NoError(t, quiet.Close()) }()
	a, b := handPair(t, ctx, ctx)
	id, err := cm.Resolve(soon(t), quiet.Addr().String(), cm.Config{Context: ctx})
	require.NoError(t, err)
	connecting, stop := context.WithCancel(soon(t))
	done := make(chan error, 1)
	go func() { done <- id.Connect(connecting, a.qp, cm.ConnParam{}) }()
	_, err = quiet.Accept(soon(t)) // from here on it is being connected
	require.NoError(t, err)
	require.ErrorIs(t, a.qp.Modify(a.rtr(b.qp.Num()), rtrMask), verbs.ErrState)
	stop()
	require.ErrorIs(t, <-done, context.Canceled)
	require.NoError(t, id.Close())
	a.toRTS(b.qp.Num())
	b.toRTS(a.qp.Num())
	works(t, a, b)
	again, err := cm.Resolve(soon(t), quiet.Addr().String(), cm.Config{Context: ctx})
	require.NoError(t, err)
	require.ErrorIs(t, again.Connect(soon(t), a.qp, cm.ConnParam{}), verbs.ErrState)
	require.NoError(t, again.Close())
	works(t, b, a)
}

// taken occupies n consecutive ports, starting skip ports after the returned one.
func taken(t *testing.T, skip, n int) uint16 {
	t.Helper()
search:
	for range 100 {
		base := 10000 + rand.N(10000)
		var all []net.Listener
		for i := range n {
			ln, err := net.Listen("tcp", ":"+strconv.Itoa(base+skip+i))
			if err != nil {
				for _, ln := range all {
					ln.Close()
				}
				continue search
			}
			all = append(all, ln)
		}
		t.Cleanup(func() {
			for _, ln := range all {
				ln.Close()
			}
		})
		return uint16(base)
	}
	require.FailNow(t, "no free ports")
	return 0
}

// TestHandPorts checks that a device takes the first free port. One that finds none cannot bring up
// QPs manually, but supports others.
func TestHandPorts(t *testing.T) {
	const most = 1<<16 - ibcompat.RendezvousPorts
	in, _ := newIWARP(t, 0, ibcompat.Config{})
	_, err := ibcompat.Wrap(in, ibcompat.Config{Rendezvous: most + 1})
	require.ErrorIs(t, err, verbs.ErrLimit)
	require.ErrorContains(t, err, "Config.Rendezvous: 65410")
	_, err = ibcompat.Wrap(in, ibcompat.Config{Rendezvous: most})
	require.NoError(t, err)

	_, some := newIWARP(t, 0, ibcompat.Config{Rendezvous: taken(t, 0, 9)})
	a := newEnd(t, open(t, some), verbs.QPConfig{})
	require.GreaterOrEqual(t, a.qp.Num()>>17, uint32(9))

	base := taken(t, 0, ibcompat.RendezvousPorts)
	_, none := newIWARP(t, 0, ibcompat.Config{Rendezvous: base})
	ctx := open(t, none)
	c, d := handPair(t, ctx, ctx)
	for _, e := range []*end{c, d} {
		err := e.qp.Modify(e.rtr(c.qp.Num()^d.qp.Num()^e.qp.Num()), rtrMask)
		var rendezvous *ibcompat.RendezvousError
		require.ErrorAs(t, err, &rendezvous)
		require.Equal(t, ibcompat.RendezvousError{First: base, Last: base + ibcompat.RendezvousPorts - 1,
			Reason: rendezvous.Reason}, *rendezvous)
		require.ErrorContains(t, err, "in use")
		require.Equal(t, verbs.QPStateInit, e.qp.State())
	}
	e, f := connect(t, ctx, ctx, verbs.QPConfig{})
	works(t, e, f)
}

// TestHandReserved checks that from its first QP on a device listens on its port, so that no other
// program, of any user, can listen there on one of the host's addresses and answer in its place.
// Two sockets with SO_REUSEADDR, which net.Listen sets, can share a port as long as neither
// listens.
func TestHandReserved(t *testing.T) {
	_, dev := newIWARP(t, 0, ibcompat.Config{})
	ctx := open(t, dev)
	e := newEnd(t, ctx, verbs.QPConfig{})
	port := strconv.Itoa(ibcompat.DefaultRendezvous + int(e.qp.Num()>>17))
	listens := func(host string) error {
		ln, err := net.Listen("tcp", net.JoinHostPort(host, port))
		if err == nil {
			require.NoError(t, ln.Close())
		}
		return err
	}
	hosts := []string{"127.0.0.1", "127.0.0.2", "0.0.0.0"}
	for _, host := range hosts {
		require.ErrorIs(t, listens(host), syscall.EADDRINUSE, host)
	}
	require.NoError(t, ctx.CloseAll())
	for _, host := range hosts {
		require.NoError(t, listens(host), host)
	}
}

// TestHandGIDs checks that a device has the addresses of the host, or its own.
func TestHandGIDs(t *testing.T) {
	wrapped := func(cfg usiw.Config) *verbs.Context {
		nic, err := usiw.New(cfg)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, nic.Close()) })
		dev, err := ibcompat.Wrap(nic.Device(), ibcompat.Config{})
		require.NoError(t, err)
		return open(t, dev)
	}
	rows, err := wrapped(usiw.Config{}).GIDs(1)
	require.NoError(t, err)
	found := false
	for _, row := range rows {
		require.Equal(t, verbs.GIDTypeRoCEv2, row.Type)
		require.NotEmpty(t, row.NetDev)
		found = found || row.GID == verbs.GIDFromAddr(home)
	}
	require.True(t, found, "%v", rows)

	one := wrapped(usiw.Config{Addr: netip.MustParseAddr("127.0.0.2")})
	rows, err = one.GIDs(1)
	require.NoError(t, err)
	require.Len(t, rows, 1)
	require.Equal(t, "::ffff:127.0.0.2", netip.AddrFrom16(rows[0].GID).String())
	key, err := one.QueryPKey(1, 0)
	require.NoError(t, err)
	require.EqualValues(t, 0xffff, key)

	inMemory := wrapped(usiw.Config{Network: usiwtest.NewWire()})
	_, err = inMemory.GIDs(1)
	require.ErrorIs(t, err, verbs.ErrNotSupported)
	_, err = inMemory.ChooseGID(1, home)
	require.ErrorIs(t, err, verbs.ErrNotSupported)
}

// TestHandCrowd checks that strangers cannot keep a QP from its peer, at the same address or
// another: callers that never pause, send garbage and stay connected, and others that send nothing.
func TestHandCrowd(t *testing.T) {
	_, dev := newIWARP(t, 0, ibcompat.Config{})
	left, right := open(t, dev), open(t, dev)
	first := newEnd(t, right, verbs.QPConfig{})
	port := ibcompat.DefaultRendezvous + int(first.qp.Num()>>17)
	dial := func(from string) (net.Conn, error) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		return d.DialContext(soon(t), "tcp", net.JoinHostPort(home.String(), strconv.Itoa(port)))
	}
	for range 200 {
		nc, err := dial("127.0.0.2")
		require.NoError(t, err)
		defer nc.Close()
	}
	malformed := mpa.Frame{Rev: mpa.Rev2, HasEnhanced: true, Enhanced: mpa.Enhanced{PeerToPeer: true, RTRWrite: true},
		PrivateData: (&wire.Greeting{Flags: wire.FlagHand, Private: make([]byte, wire.CallLen)}).Append(nil)}
	frame, err := malformed.Append(nil)
	require.NoError(t, err)
	stop := make(chan struct{})
	var strangers sync.WaitGroup
	for _, from := range []string{"127.0.0.1", "127.0.0.2"} {
		strangers.Go(func() {
			var open [100]net.Conn
			for i := 0; ; i++ {
				select {
				case <-stop:
					for _, nc := range open[:min(i, len(open))] {
						nc.Close()
					}
					return
				default:
				}
				nc, err := dial(from)
				if err != nil {
					i--
					continue
				}
				_, _ = nc.Write(frame)
				if old := open[i%len(open)]; old != nil {
					old.Close()
				}
				open[i%len(open)] = nc
			}
		})
	}
	defer strangers.Wait()
	defer close(stop)
	for range 20 {
		a, b := handPair(t, left, right)
		a.toRTS(b.qp.Num())
		b.toRTS(a.qp.Num())
		works(t, a, b)
	}
}

// callOf returns the call of one QP at the loopback address to another, with the PSNs of rtr and
// rts.
func callOf(from, to uint32) wire.Call {
	gid := verbs.GIDFromAddr(home)
	return wire.Call{From: wire.Name{GID: gid, QPN: from}, To: wire.Name{GID: gid, QPN: to},
		FromPSN: wire.KnownPSN(rts.SQPSN), ToPSN: wire.KnownPSN(rts.SQPSN)}
}

// caller calls a QP from the inner device, and returns the resulting error.
func caller(t *testing.T, in *verbs.Context, number uint32, private []byte) error {
	t.Helper()
	e := newEnd(t, in, verbs.QPConfig{})
	port := strconv.Itoa(ibcompat.DefaultRendezvous + int(number>>17))
	id, err := cm.Resolve(soon(t), "127.0.0.1:"+port, cm.Config{Context: in})
	require.NoError(t, err)
	defer func() { require.NoError(t, id.Close()) }()
	return id.Connect(soon(t), e.qp, cm.ConnParam{PrivateData: private})
}

// refusalOf returns the reason in a refusal.
func refusalOf(t *testing.T, err error) wire.Refusal {
	t.Helper()
	var rejected *cm.RejectedError
	require.ErrorAs(t, err, &rejected)
	g, err := wire.ParseGreeting(rejected.PrivateData)
	require.NoError(t, err)
	require.Equal(t, uint16(wire.FlagEngine|wire.FlagHand), g.Flags)
	r, err := wire.ParseRefusal(g.Private)
	require.NoError(t, err)
	return r
}

// answerOf returns the answer of a QP's device to a call from an address.
func answerOf(t *testing.T, in *verbs.Context, from string, number uint32, private []byte) error {
	t.Helper()
	e := newEnd(t, in, verbs.QPConfig{})
	at := net.JoinHostPort(home.String(), strconv.Itoa(ibcompat.DefaultRendezvous+int(number>>17)))
	id, err := cm.Resolve(soon(t), at, cm.Config{Context: in, Source: netip.AddrPortFrom(netip.MustParseAddr(from), 0)})
	require.NoError(t, err)
	defer func() { require.NoError(t, id.Close()) }()
	return id.Connect(soon(t), e.qp, cm.ConnParam{PrivateData: private})
}

func privateOf(call wire.Call) []byte {
	return (&wire.Greeting{Flags: wire.FlagHand, Private: call.Append(nil)}).Append(nil)
}

// TestHandHostile checks that a caller that is not the QP's peer is refused and does not disturb
// the QP. All refusals are the same, so they reveal nothing: not which QP numbers exist, nor the
// states of QPs, nor which parts of a call were right.
func TestHandHostile(t *testing.T) {
	in, dev := newIWARP(t, 0, ibcompat.Config{})
	below, left, right := open(t, in), open(t, dev), open(t, dev)
	a, b := handPair(t, left, right)
	b.toRTS(a.qp.Num())
	number := b.qp.Num()
	with := func(change func(c *wire.Call)) []byte {
		c := callOf(a.qp.Num(), number)
		change(&c)
		return privateOf(c)
	}
	hermit, early, failed, caller1 := newEnd(t, b.ctx, verbs.QPConfig{}), newEnd(t, b.ctx, verbs.QPConfig{}),
		newEnd(t, b.ctx, verbs.QPConfig{}), newEnd(t, b.ctx, verbs.QPConfig{})
	for _, e := range []*end{hermit, early, failed, caller1} {
		e.toINIT()
	}
	require.NoError(t, early.qp.Modify(early.rtr(2), rtrMask))
	failed.toRTS(2)
	require.NoError(t, failed.qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState))
	const larger = 1<<24 - 2
	caller1.toRTS(larger)
	to := func(e *end) func(c *wire.Call) { return func(c *wire.Call) { c.From.QPN, c.To.QPN = 2, e.qp.Num() } }
	for _, c := range []struct {
		name    string
		from    string
		private []byte
	}{
		{"nothing", "", nil},
		{"another greeting", "", (&wire.Greeting{Private: with(func(*wire.Call) {})[wire.GreetingLen:]}).Append(nil)},
		{"a short call", "", (&wire.Greeting{Flags: wire.FlagHand, Private: make([]byte, wire.CallLen-1)}).Append(nil)},
		{"zeros", "", (&wire.Greeting{Flags: wire.FlagHand, Private: make([]byte, wire.CallLen)}).Append(nil)},
		{"no such QP", "", with(func(c *wire.Call) { c.To.QPN ^= 1 << 10 })},
		{"a QP in INIT", "", with(to(hermit))},
		{"a QP in ERR", "", with(to(failed))},
		{"a QP that calls", "", with(func(c *wire.Call) { c.From.QPN, c.To.QPN = larger, caller1.qp.Num() })},
		{"another caller", "", with(func(c *wire.Call) { c.From.QPN ^= 1 })},
		{"a caller elsewhere", "", with(func(c *wire.Call) { c.From.GID[15]++ })},
		{"another address of ours", "", with(func(c *wire.Call) { c.To.GID[15]++ })},
		{"from another address", "127.0.0.2", with(func(*wire.Call) {})},
		{"wrong PSNs", "", with(func(c *wire.Call) { c.FromPSN.Value++; c.ToPSN.Value++ })},
		{"no PSNs", "", with(func(c *wire.Call) { c.FromPSN, c.ToPSN = wire.PSN{}, wire.PSN{} })},
		{"what a QP in RTR does not know", "", with(func(c *wire.Call) { to(early)(c); c.FromPSN.Value++ })},
	} {
		if c.from == "" {
			c.from = home.String()
		}
		err := answerOf(t, below, c.from, number, c.private)
		require.Equal(t, wire.NoQP, refusalOf(t, err), c.name)
		var rejected *cm.RejectedError
		require.ErrorAs(t, err, &rejected)
		require.Equal(t, (&wire.Greeting{Flags: wire.FlagEngine | wire.FlagHand,
			Private: []byte{byte(wire.NoQP)}}).Append(nil), rejected.PrivateData, c.name)
	}
	// Silent streams occupy nothing.
	for range 200 {
		nc, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(ibcompat.DefaultRendezvous+int(number>>17)))
		require.NoError(t, err)
		defer nc.Close()
	}
	require.Equal(t, verbs.QPStateRTS, b.qp.State())
	a.toRTS(number)
	works(t, a, b)
	require.Equal(t, wire.Taken, refusalOf(t, caller(t, below, number, with(func(*wire.Call) {}))))
	require.Equal(t, wire.NoQP,
		refusalOf(t, caller(t, below, number, with(func(c *wire.Call) { c.FromPSN.Value++; c.ToPSN.Value++ }))))
	works(t, b, a)

	// A QP that calls the calling QP has compared the names wrongly.
	c, d := handPair(t, left, right)
	require.NoError(t, c.qp.Modify(c.rtr(d.qp.Num()), rtrMask))
	other := newEnd(t, c.ctx, verbs.QPConfig{})
	other.toINIT()
	require.NoError(t, other.qp.Modify(other.rtr(2), rtrMask)) // so that its device listens
	wrong := callOf(d.qp.Num(), c.qp.Num())
	require.Equal(t, wire.NoQP,
		refusalOf(t, caller(t, below, c.qp.Num(),
			(&wire.Greeting{Flags: wire.FlagHand, Private: wrong.Append(nil)}).Append(nil))))
}

// TestHandTrials checks that a call that ends before its hello, however it ends, leaves the QP
// free, and its requests waiting. The same holds for a call that the peer has silently given up:
// its next call replaces it. After the hello, further calls are refused.
func TestHandTrials(t *testing.T) {
	in, dev := newIWARP(t, 0, ibcompat.Config{})
	below, left, right := open(t, in), open(t, dev), open(t, dev)
	for name, ends := range map[string]func(r *raw){
		"closes":         func(r *raw) { require.NoError(r, r.id.Close()) },
		"aborts":         func(r *raw) { require.NoError(r, r.id.Abort()) },
		"is silent":      func(*raw) {},
		"says no hello":  func(r *raw) { r.say(make([]byte, wire.HelloLen)) },
		"says too much":  func(r *raw) { r.say(message(wire.Header{Kind: wire.Bye})) },
		"writes nothing": func(r *raw) { r.say(nil) },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := handPair(t, left, right)
			b.toRTS(a.qp.Num())
			b.recv(1)
			b.post(verbs.SendWR{ID: 2, Opcode: verbs.WRSend, Flags: verbs.SendSignaled})
			first := rawCaller(t, below, b, callOf(a.qp.Num(), b.qp.Num()))
			ends(first)
			second := rawCaller(t, below, b, callOf(a.qp.Num(), b.qp.Num()))
			<-first.id.Done()
			require.Equal(t, verbs.QPStateRTS, b.qp.State())
			require.NoError(t, second.id.Abort())

			a.recv(3)
			a.toRTS(b.qp.Num())
			a.post(verbs.SendWR{ID: 4, Opcode: verbs.WRSend, Flags: verbs.SendSignaled})
			require.ElementsMatch(t, []uint64{3, 4}, []uint64{a.wait().ID, a.wait().ID})
			require.ElementsMatch(t, []uint64{1, 2}, []uint64{b.wait().ID, b.wait().ID})
			works(t, a, b)
			works(t, b, a)
			require.Equal(t, wire.Taken,
				refusalOf(t, caller(t, below, b.qp.Num(), privateOf(callOf(a.qp.Num(), b.qp.Num())))))
		})
	}
}

// TestHandTrialEnds checks that if every call of the peer ends before its hello, the QP's request
// fails as if there were no peer.
func TestHandTrialEnds(t *testing.T) {
	in, dev := newIWARP(t, 0, ibcompat.Config{})
	below, left, right := open(t, in), open(t, dev), open(t, dev)
	a, b := handPair(t, left, right)
	b.toRTS(a.qp.Num())
	b.post(verbs.SendWR{ID: 2, Opcode: verbs.WRSend})
	for range 3 {
		r := rawCaller(t, below, b, callOf(a.qp.Num(), b.qp.Num()))
		r.say(make([]byte, wire.HelloLen))
		<-r.id.Done()
	}
	b.ends(verbs.WCRetryExcErr, 2)
	require.ErrorIs(t, b.qp.Err(), ibcompat.ErrWrongQP)
	require.ErrorContains(t, b.qp.Err(), "hello: bad kind 0x0")
}

// waiter listens on a port in place of a device.
type waiter struct {
	testing.TB
	below *verbs.Context
	ln    *cm.Listener
}

// waiterPlace is the port relative to the first. QPs there have the larger numbers, so they are
// called.
const waiterPlace = ibcompat.RendezvousPorts - 1

func newWaiter(t *testing.T) (w *waiter, dev *verbs.Device) {
	t.Helper()
	base := taken(t, 0, 1)
	in, dev := newIWARP(t, 0, ibcompat.Config{Rendezvous: base})
	w = &waiter{TB: t, below: open(t, in)}
	var err error
	w.ln, err = cm.Listen(soon(t), net.JoinHostPort(home.String(), strconv.Itoa(int(base)+waiterPlace)),
		cm.Config{Context: w.below})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.ln.Close()) })
	return w, dev
}

// answers accepts the next call, and answers with a call in the opposite direction, which change
// may modify.
func (w *waiter) answers(change func(c *wire.Call)) *raw {
	w.Helper()
	req, err := w.ln.Accept(soon(w))
	require.NoError(w, err)
	g, err := wire.ParseGreeting(req.PrivateData())
	require.NoError(w, err)
	call, err := wire.ParseCall(g.Private)
	require.NoError(w, err)
	back := call.Back()
	change(&back)
	r := &raw{end: newEnd(w, w.below, verbs.QPConfig{})}
	r.allocate()
	require.NoError(w, req.BindQP(r.qp))
	r.receive()
	r.id, err = req.Accept(soon(w), r.qp, cm.ConnParam{PrivateData: privateOf(back)})
	require.NoError(w, err)
	w.Cleanup(func() { require.NoError(w, r.id.Close()) })
	return r
}

// TestHandCallsAgain checks that a QP whose call was answered calls again if the connection breaks
// before the other side's hello.
func TestHandCallsAgain(t *testing.T) {
	w, dev := newWaiter(t)
	a := newEnd(t, open(t, dev), verbs.QPConfig{})
	a.toINIT()
	a.toRTS(waiterPlace<<17 | 5)
	a.post(verbs.SendWR{ID: 2, Opcode: verbs.WRSend, Flags: verbs.SendSignaled})
	a.recv(1)
	for _, ends := range []func(r *raw){
		func(r *raw) { require.NoError(t, r.id.Close()) },
		func(r *raw) { require.NoError(t, r.id.Abort()) },
		func(r *raw) {
			r.until(func(wc verbs.WC) bool { return wc.IsRecv() }) // its hello
			require.NoError(t, r.id.Abort())
		},
		func(r *raw) { r.say(make([]byte, wire.HelloLen)) },
	} {
		ends(w.answers(func(*wire.Call) {}))
	}
	r := w.answers(func(*wire.Call) {})
	r.greets()
	r.say((&wire.Advert{Total: 64}).Append(message(wire.Header{Kind: wire.Credit, Adverts: 1, Taken: r.taken})))
	r.hears(wire.Data)
	r.say(message(wire.Header{Kind: wire.Bye, Taken: r.taken}))
	a.ends(verbs.WCSuccess, 2)
	require.Equal(t, verbs.QPStateRTS, a.qp.State())
}

// TestHandPatient checks that a call in progress when the QP's patience runs out is still awaited.
func TestHandPatient(t *testing.T) {
	t.Parallel()
	w, dev := newWaiter(t)
	a := newEnd(t, open(t, dev), verbs.QPConfig{})
	a.toINIT()
	a.toRTS(waiterPlace<<17 | 5) // its patience is 4 s
	a.post(verbs.SendWR{ID: 2, Opcode: verbs.WRSend, Flags: verbs.SendSignaled})
	time.Sleep(5 * time.Second) // a busy peer
	r := w.answers(func(*wire.Call) {})
	r.greets()
	r.say((&wire.Advert{Total: 64}).Append(message(wire.Header{Kind: wire.Credit, Adverts: 1, Taken: r.taken})))
	r.hears(wire.Data)
	r.say(message(wire.Header{Kind: wire.Ack, Taken: r.taken}))
	a.ends(verbs.WCSuccess, 2)
}

// TestHandAnswered checks that an answer from a QP other than the one called, or from one that
// knows none of the PSNs, is rejected.
func TestHandAnswered(t *testing.T) {
	for name, change := range map[string]func(c *wire.Call){
		"another QP":       func(c *wire.Call) { c.From.QPN++ },
		"another GID":      func(c *wire.Call) { c.From.GID[15]++ },
		"to another QP":    func(c *wire.Call) { c.To.QPN++ },
		"to another GID":   func(c *wire.Call) { c.To.GID[15]++ },
		"with other PSNs":  func(c *wire.Call) { c.FromPSN.Value++; c.ToPSN.Value++ },
		"without the PSNs": func(c *wire.Call) { c.FromPSN, c.ToPSN = wire.PSN{}, wire.PSN{} },
	} {
		t.Run(name, func(t *testing.T) {
			w, dev := newWaiter(t)
			a := newEnd(t, open(t, dev), verbs.QPConfig{})
			a.toINIT()
			a.toRTS(waiterPlace<<17 | 5)
			r := w.answers(change)
			select {
			case <-r.id.Done():
			case <-soon(t).Done():
				require.FailNow(t, "it has taken the answer")
			}
			a.post(verbs.SendWR{ID: 2, Opcode: verbs.WRSend, Flags: verbs.SendSignaled})
			a.recv(1)
			r = w.answers(func(*wire.Call) {}) // it keeps calling, and accepts the right answer
			r.greets()
			r.say((&wire.Advert{Total: 64}).Append(message(wire.Header{Kind: wire.Credit, Adverts: 1, Taken: r.taken})))
			r.hears(wire.Data)
		})
	}
}

// TestHandPSNs checks that a pair whose PSNs match in one direction works, in whatever states the
// QPs meet, and that a pair without a match does not. Constant PSNs are fine.
func TestHandPSNs(t *testing.T) {
	_, dev := newIWARP(t, 0, ibcompat.Config{})
	left, right := open(t, dev), open(t, dev)
	for _, c := range []struct {
		name         string
		aSQ, aRQ     uint32
		bSQ, bRQ     uint32
		aStays, meet bool // a stays in RTR
	}{
		{"none", 0, 0, 0, 0, false, true},
		{"random", 123456, 654321, 654321, 123456, false, true},
		{"from a to b only", 9, 1, 2, 9, false, true},
		{"from b to a only", 1, 9, 9, 2, false, true},
		{"a receives only", 0, 9, 9, 77, true, true},
		{"no match", 1, 2, 3, 4, false, false},
		{"a receives only, no match", 0, 9, 8, 77, true, false},
	} {
		for _, caller := range []bool{true, false} {
			t.Run(fmt.Sprint(c.name, caller), func(t *testing.T) {
				t.Parallel()
				a, b := handPair(t, left, right)
				if !caller {
					a, b = b, a
				}
				up := func(e, peer *end, sq, rq uint32, stays bool) {
					attr := e.rtr(peer.qp.Num())
					attr.RQPSN = rq
					require.NoError(t, e.qp.Modify(attr, rtrMask))
					if !stays {
						attr := rts
						attr.SQPSN = sq
						require.NoError(t, e.qp.Modify(attr, rtsMask))
					}
				}
				a.recv(1)
				up(a, b, c.aSQ, c.aRQ, c.aStays)
				up(b, a, c.bSQ, c.bRQ, false)
				b.post(verbs.SendWR{ID: 2, Opcode: verbs.WRSend, Flags: verbs.SendSignaled})
				if !c.meet {
					b.ends(verbs.WCRetryExcErr, 2)
					var hand *ibcompat.HandError
					require.ErrorAs(t, b.qp.Err(), &hand)
					return
				}
				b.ends(verbs.WCSuccess, 2)
				a.ends(verbs.WCSuccess, 1)
			})
		}
	}
}

// rawCaller calls in place of the QP that b waits for, and sends what the test wants. It has not
// sent its hello yet.
func rawCaller(t *testing.T, below *verbs.Context, b *end, call wire.Call) *raw {
	t.Helper()
	r := &raw{end: newEnd(t, below, verbs.QPConfig{})}
	r.allocate()
	port := strconv.Itoa(ibcompat.DefaultRendezvous + int(b.qp.Num()>>17))
	var err error
	r.id, err = cm.Resolve(soon(t), "127.0.0.1:"+port, cm.Config{Context: below})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.id.Close()) })
	require.NoError(t, r.id.BindQP(r.qp))
	r.receive()
	private := (&wire.Greeting{Flags: wire.FlagHand, Private: call.Append(nil)}).Append(nil)
	require.NoError(t, r.id.Connect(soon(t), r.qp, cm.ConnParam{PrivateData: private}))
	return r
}

// TestHandLastWord checks that whatever the peer had taken succeeds, even if only the peer's last
// message says so.
func TestHandLastWord(t *testing.T) {
	in, dev := newIWARP(t, 0, ibcompat.Config{})
	below, ctx := open(t, in), open(t, dev)
	a, b := handPair(t, ctx, ctx)
	b.toRTS(a.qp.Num())
	b.recv(1)
	r := rawCaller(t, below, b, callOf(a.qp.Num(), b.qp.Num()))
	r.greets()
	r.say((&wire.Advert{Total: 64}).Append(message(wire.Header{Kind: wire.Credit, Adverts: 1, Taken: r.taken})))
	b.post(verbs.SendWR{ID: 2, Opcode: verbs.WRSend, Flags: verbs.SendSignaled})
	r.hears(wire.Data)
	r.say(message(wire.Header{Kind: wire.Bye, Taken: r.taken}))
	b.ends(verbs.WCSuccess, 2)
	require.Equal(t, verbs.QPStateRTS, b.qp.State())
	b.post(verbs.SendWR{ID: 3, Opcode: verbs.WRSend})
	b.ends(verbs.WCRetryExcErr, 3)
	b.ends(verbs.WCWRFlushErr, 1)
}

// TestHandNotManager checks that a connection manager does not connect a program to a QP that is
// brought up manually.
func TestHandNotManager(t *testing.T) {
	in, dev := newIWARP(t, 0, ibcompat.Config{})
	below, ctx := open(t, in), open(t, dev)
	ln, err := cm.Listen(soon(t), "127.0.0.1:0", cm.Config{Context: ctx})
	require.NoError(t, err)
	defer func() { require.NoError(t, ln.Close()) }()
	e, b := newEnd(t, below, verbs.QPConfig{}), newEnd(t, ctx, verbs.QPConfig{})
	id, err := cm.Resolve(soon(t), ln.Addr().String(), cm.Config{Context: below})
	require.NoError(t, err)
	defer func() { require.NoError(t, id.Close()) }()
	done := make(chan error, 1)
	go func() {
		done <- id.Connect(soon(t), e.qp,
			cm.ConnParam{PrivateData: (&wire.Greeting{Flags: wire.FlagHand, Private: make([]byte, 40)}).Append(nil)})
	}()
	req, err := ln.Accept(soon(t))
	require.NoError(t, err)
	require.Equal(t, make([]byte, ibcompat.PrivateData), req.PrivateData())
	_, err = req.Accept(soon(t), b.qp, cm.ConnParam{})
	var peer *ibcompat.PeerError
	require.ErrorAs(t, err, &peer)
	require.ErrorContains(t, err, "by hand")
	require.Error(t, <-done)
}
