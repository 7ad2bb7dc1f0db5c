// SPDX-License-Identifier: BSD-3-Clause

package ibcompat_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/compat/ibcompat"
	"github.com/goverbs/goverbs/compat/ibcompat/internal/wire"
	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/verbs"
)

// raw is a peer on the inner device that sends whatever a test wants.
type raw struct {
	*end
	mem   *verbs.MR
	got   [][]byte // messages received
	taken uint64   // how many, excluding the hello
}

const (
	rawSlots = 64
	rawLen   = 8192
)

// rawHello is a valid hello.
var rawHello = wire.Hello{Segments: 4, RNRTimer: 1, RNRRetries: 7, SlotLen: rawLen, Slots: rawSlots, Threshold: 4096,
	Window: 16, Parts: 4}

// newRaw connects such a peer to a wrapped device, whose end is b. The peer has sent nothing yet.
func newRaw(t testing.TB, without verbs.OpSet, cfg ibcompat.Config, receives int) (r *raw, b *end) {
	t.Helper()
	_, dev := newIWARP(t, without, cfg)
	return newRawTo(t, dev, without, receives)
}

// newRawTo is newRaw with an existing wrapped device.
func newRawTo(t testing.TB, dev *verbs.Device, without verbs.OpSet, receives int) (r *raw, b *end) {
	t.Helper()
	ctx := soon(t)
	in, _ := newIWARP(t, without, ibcompat.Config{})
	passive := open(t, dev)
	ln, err := cm.Listen(ctx, "127.0.0.1:0", cm.Config{Context: passive})
	require.NoError(t, err)
	defer func() { require.NoError(t, ln.Close()) }()
	r, b = &raw{end: newEnd(t, open(t, in), verbs.QPConfig{})}, newEnd(t, passive, verbs.QPConfig{})
	r.allocate()
	r.id, err = cm.Resolve(ctx, ln.Addr().String(), cm.Config{Context: r.ctx})
	require.NoError(t, err)
	require.NoError(t, r.id.BindQP(r.qp))
	r.receive()
	done := make(chan error, 1)
	go func() {
		done <- r.id.Connect(ctx, r.qp, cm.ConnParam{PrivateData: (&wire.Greeting{Private: []byte("raw")}).Append(nil)})
	}()
	req, err := ln.Accept(ctx)
	require.NoError(t, err)
	require.Equal(t, "raw", string(req.PrivateData()[:3]))
	require.NoError(t, req.BindQP(b.qp))
	for i := range receives {
		b.recv(uint64(i)) // 64 bytes each
	}
	b.id, err = req.Accept(ctx, b.qp, cm.ConnParam{})
	require.NoError(t, err)
	require.NoError(t, <-done)
	t.Cleanup(func() { require.NoError(t, r.id.Close()); require.NoError(t, b.id.Close()) })
	return r, b
}

// allocate allocates memory for the messages.
func (r *raw) allocate() {
	r.Helper()
	var err error
	r.mem, err = r.pd.AllocMR((rawSlots+1)*rawLen, allRights)
	require.NoError(r, err)
	r.Cleanup(func() { require.NoError(r, r.mem.Close()) })
}

// receive posts the receives.
func (r *raw) receive() {
	r.Helper()
	for i := range rawSlots {
		sge, err := r.mem.SGE(i*rawLen, rawLen)
		require.NoError(r, err)
		_, err = r.qp.PostRecv([]verbs.RecvWR{{ID: uint64(i), SGL: []verbs.SGE{sge}}})
		require.NoError(r, err)
	}
}

// say sends a message.
func (r *raw) say(msg []byte) {
	r.Helper()
	copy(r.mem.Bytes()[rawSlots*rawLen:], msg)
	sge, err := r.mem.SGE(rawSlots*rawLen, len(msg))
	require.NoError(r, err)
	r.post(verbs.Send(sge))
	r.until(func(wc verbs.WC) bool { return !wc.IsRecv() })
}

// until polls completions until f accepts one.
func (r *raw) until(f func(wc verbs.WC) bool) {
	r.Helper()
	for {
		wc := r.wait()
		require.NoError(r, wc.Err())
		if wc.IsRecv() {
			r.got = append(r.got, bytes.Clone(r.mem.Bytes()[int(wc.ID)*rawLen:][:wc.ByteLen]))
		}
		if f(wc) {
			return
		}
	}
}

// hears returns the next message of one of the kinds, after the hello.
func (r *raw) hears(kinds ...wire.Kind) (wire.Header, []byte) {
	r.Helper()
	for {
		for len(r.got) > 0 {
			msg := r.got[0]
			r.got = r.got[1:]
			h, rest, err := wire.ParseHeader(msg)
			if err != nil {
				_, err := wire.ParseHello(msg)
				require.NoError(r, err)
				continue
			}
			r.taken++
			if slices.Contains(kinds, h.Kind) {
				return h, rest
			}
		}
		r.until(func(wc verbs.WC) bool { return wc.IsRecv() })
	}
}

// greets exchanges hellos and returns the first Credit.
func (r *raw) greets() wire.Header {
	r.Helper()
	r.say(rawHello.Append(nil))
	h, _ := r.hears(wire.Credit)
	return h
}

func message(h wire.Header, payload ...byte) []byte { return append(h.Append(nil), payload...) }

// TestHostile checks that a peer that violates the protocol loses the connection with a typed
// error, and does no damage.
func TestHostile(t *testing.T) {
	adverts := func(first uint64, n int) []byte {
		b := message(wire.Header{Kind: wire.Ack, Adverts: uint8(n), First: first})
		for range n {
			b = (&wire.Advert{Total: 8}).Append(b)
		}
		return b
	}
	data := func(n int) []byte { return message(wire.Header{Kind: wire.Data, Value: uint64(n)}, make([]byte, n)...) }
	for _, c := range []struct {
		name string
		why  string
		says [][]byte // the last one is invalid
	}{
		{"CutHeader", "header: bad length", [][]byte{make([]byte, 31)}},
		{"UnknownKind", "header: bad kind", [][]byte{message(wire.Header{Kind: 77})}},
		{"TakenTooMany", "messages taken", [][]byte{message(wire.Header{Kind: wire.Ack, Taken: 9})}},
		{"TakenGoesBack", "messages taken",
			[][]byte{message(wire.Header{Kind: wire.Ack, Taken: 1}), message(wire.Header{Kind: wire.Ack})}},
		{"AdvertNumber", "advert 1 where 0 is next", [][]byte{adverts(1, 1)}},
		{"AdvertTwice", "advert 0 where 1 is next", [][]byte{adverts(0, 1), adverts(0, 1)}},
		{"AdvertsTooMany", "for 64 slots", [][]byte{adverts(0, 64), adverts(64, 1)}},
		{"AdvertWraps", "advert: bad address",
			[][]byte{(&wire.Advert{Total: 9, Segments: []wire.Segment{{Addr: ^uint64(0), Length: 9}}}).Append(
				message(wire.Header{Kind: wire.Ack, Adverts: 1}))}},
		{"NoReceive", "without a receive", [][]byte{data(1), data(1), data(1)}},
		{"TooLong", "for a receive of 64", [][]byte{data(65)}},
		{"TooLongInParts", "for a receive of 64",
			[][]byte{message(wire.Header{Kind: wire.Part, Value: 60}, make([]byte, 60)...), data(5)}},
		{"WrongLength", "said to be of", [][]byte{message(wire.Header{Kind: wire.Data, Value: 5}, 1, 2, 3)}},
		{"NotWritable", "written into a receive", [][]byte{message(wire.Header{Kind: wire.Placed, Value: 5})}},
		{"ImmediateBehindPart", "in the middle", [][]byte{message(wire.Header{Kind: wire.Part, Value: 1}, 1),
			message(wire.Header{Kind: wire.WriteImm, Flags: wire.FlagImm})}},
		{"TooLongThatFits", "too long for a receive of 64",
			[][]byte{message(wire.Header{Kind: wire.TooLong, Value: 64})}},
		{"AnswerToNothing", "answer to nothing", [][]byte{message(wire.Header{Kind: wire.Answer, Value: 5})}},
		{"RefusesNothing", "a refusal",
			[][]byte{message(wire.Header{Kind: wire.Refused, Status: uint8(verbs.WCRemOpErr), Taken: 1})}},
		{"CutAtomic", "atomic: bad length",
			[][]byte{message(wire.Header{Kind: wire.Atomic}, make([]byte, wire.AtomicLen-1)...)}},
		{"BehindAck", "behind a message", [][]byte{message(wire.Header{Kind: wire.Ack}, 1)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, b := newRaw(t, ext.Operations, ibcompat.Config{}, 2)
			for i := range b.mr.Bytes() {
				b.mr.Bytes()[i] = 0xee
			}
			was := bytes.Clone(b.mr.Bytes())
			r.greets()
			for _, msg := range c.says {
				r.say(msg)
			}
			b.over()
			for i := range b.mr.Bytes()[2048:][:64] { // written by earlier valid messages
				b.mr.Bytes()[2048+i] = 0xee
			}
			require.Equal(t, was, b.mr.Bytes())
			var violated *ibcompat.ProtocolError
			require.ErrorAs(t, b.qp.Err(), &violated)
			require.ErrorContains(t, violated, c.why)
			require.ErrorAs(t, b.id.Err(), &violated)
		})
	}
}

// TestHostileHello checks that an invalid hello is rejected, and so are Immediate Data from a peer
// whose hello excludes them.
func TestHostileHello(t *testing.T) {
	bad := rawHello
	bad.SlotLen = 1
	r, b := newRaw(t, ext.Operations, ibcompat.Config{}, 2)
	r.say(bad.Append(nil))
	b.over()
	var violated *ibcompat.ProtocolError
	require.ErrorAs(t, b.qp.Err(), &violated)
	require.ErrorContains(t, violated, "hello: bad slot length 0x1")
	b.ends(verbs.WCWRFlushErr, 0, 1)

	r, b = newRaw(t, 0, ibcompat.Config{}, 2)
	r.greets()
	r.post(verbs.WriteImm(verbs.Remote{Addr: b.mr.Addr(), Length: 1 << 30, RKey: b.mr.RKey()}, 7))
	b.over()
	require.ErrorAs(t, b.qp.Err(), &violated)
	require.ErrorContains(t, violated, "immediate data")
	b.ends(verbs.WCWRFlushErr, 0, 1)
}

// TestHelloBounds checks that the smallest and largest values in a hello are respected: messages
// fit the peer's slots, whatever else they carry, and a longer hello is accepted as one of a later
// version.
func TestHelloBounds(t *testing.T) {
	least := wire.Hello{Segments: 1, SlotLen: wire.MinSlot, Slots: 4, Threshold: 64, Window: 1, Parts: 1}
	full := least
	full.Threshold = wire.MinSlot - wire.HeaderLen
	most := wire.Hello{Segments: wire.MaxSGE, RNRTimer: 31, RNRRetries: 7, SlotLen: wire.MaxSlot, Slots: wire.MaxSlots,
		Threshold: wire.MaxSlot - wire.HeaderLen, Window: wire.MaxWindow, Parts: wire.MaxParts, QPNum: 1<<24 - 1}
	for name, c := range map[string]struct {
		hello wire.Hello
		more  int // bytes after it
		n     int // length of a message
		parts int // number of messages that carry it
	}{
		"least": {least, 0, 300, 5}, "full": {full, 0, 300, 2}, "most": {most, 0, 4096, 1},
		"longer": {most, 64, 4096, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r, b := newRaw(t, ext.Operations, ibcompat.Config{}, 48)
			for i := range 4096 {
				b.mr.Bytes()[i] = byte(i * 7)
			}
			r.say(append(c.hello.Append(nil), make([]byte, c.more)...))
			fits := func(body []byte) { require.LessOrEqual(t, wire.HeaderLen+len(body), int(c.hello.SlotLen)) }
			_, body := r.hears(wire.Credit)
			fits(body)
			r.say((&wire.Advert{Total: 4096}).Append(message(wire.Header{Kind: wire.Ack, Adverts: 1, Taken: r.taken})))
			b.post(verbs.Send(b.sgl(0, c.n)...))
			var got []byte
			for i := range c.parts {
				h, body := r.hears(wire.Data, wire.Part)
				fits(body)
				require.Equal(t, i == c.parts-1, h.Kind == wire.Data)
				got = append(got, body[len(body)-int(h.Value):]...)
				r.say(message(wire.Header{Kind: wire.Ack, Taken: r.taken}))
			}
			require.Equal(t, b.mr.Bytes()[:c.n], got)
			b.ends(verbs.WCSuccess, 0)
		})
	}
}

// TestHostileAtomic checks that an atomic without the right, out of bounds or misaligned is refused
// with the proper status and not executed, and that a valid one is executed.
func TestHostileAtomic(t *testing.T) {
	for _, c := range []struct {
		name string
		off  uint64
		want verbs.WCStatus
	}{{"Good", 0, verbs.WCSuccess}, {"NoRight", 0, verbs.WCRemAccessErr}, {"Outside", 4096, verbs.WCRemAccessErr},
		{"OnTheEdge", 4089, verbs.WCRemAccessErr}, {"Misaligned", 4, verbs.WCRemInvReqErr}} {
		t.Run(c.name, func(t *testing.T) {
			r, b := newRaw(t, ext.Operations, ibcompat.Config{}, 2)
			r.greets()
			target := b.mr
			if c.name == "NoRight" {
				var err error
				target, err = b.pd.AllocMR(4096, allRights&^verbs.AccessRemoteAtomic)
				require.NoError(t, err)
				defer target.Close()
			}
			a := wire.AtomicRequest{RKey: target.RKey(), Addr: target.Addr() + c.off, Operand: 5}
			r.say(a.Append(message(wire.Header{Kind: wire.Atomic})))
			h, _ := r.hears(wire.Answer)
			require.Equal(t, c.want.String(), verbs.WCStatus(h.Status).String())
			want := make([]byte, 4096)
			if c.want == verbs.WCSuccess {
				binary.NativeEndian.PutUint64(want, 5)
			}
			require.Equal(t, want, target.Bytes())
			if c.want != verbs.WCSuccess {
				require.NoError(t, r.id.Disconnect()) // cut the wait short
				b.over()
				require.ErrorIs(t, b.qp.Err(), c.want)
				b.ends(verbs.WCWRFlushErr, 0, 1)
			}
		})
	}
}

// TestLaxPeer checks that towards a device that does not enforce its QP's rights, a request without
// the right is refused locally, with the status that the peer's device would have returned, and is
// not sent.
func TestLaxPeer(t *testing.T) {
	const all = verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic
	for _, c := range []struct {
		op    func(to verbs.Remote, sgl ...verbs.SGE) verbs.SendWR
		right verbs.AccessFlags
	}{{verbs.Write, verbs.AccessRemoteWrite}, {verbs.Read, verbs.AccessRemoteRead}} {
		for _, allowed := range []bool{true, false} {
			t.Run(fmt.Sprintf("%v/allowed=%v", c.right, allowed), func(t *testing.T) {
				r, b := newRaw(t, ext.Operations, ibcompat.Config{}, 0)
				lax := rawHello
				lax.Flags = wire.HelloLax
				r.say(lax.Append(nil))
				r.hears(wire.Credit)
				rights := all
				if !allowed {
					rights &^= c.right
				}
				r.say((&wire.Advert{Total: 64}).Append(
					message(wire.Header{Kind: wire.Credit, Flags: wire.FlagAsk, Adverts: 1, Taken: 1,
						Value: uint64(rights)})))
				r.hears(wire.Ack) // it knows the rights
				wr := c.op(verbs.Remote{Addr: r.mem.Addr(), Length: 1 << 30, RKey: r.mem.RKey()}, b.sgl(0, 8)...)
				wr.ID = 7
				b.mr.Bytes()[0], r.mem.Bytes()[0] = 3, 4
				b.post(wr)
				switch {
				case allowed && wr.Opcode == verbs.WRRDMARead:
					b.ends(verbs.WCSuccess, 7)
					return
				case allowed:
					r.hears(wire.Credit) // requests the confirmation
					return
				}
				b.ends(verbs.WCRemInvReqErr, 7)
				require.EqualValues(t, 3, b.mr.Bytes()[0])
				require.EqualValues(t, 4, r.mem.Bytes()[0])
			})
		}
	}
}

// TestLaxPeerLeaves checks that if a kernel siw disconnects without a last message, the oldest
// unconfirmed Write counts as refused, because siw sends no Terminate while it is sending something
// else. With other devices it does not.
func TestLaxPeerLeaves(t *testing.T) {
	for flags, want := range map[uint8]verbs.WCStatus{0: verbs.WCWRFlushErr, wire.HelloLax: verbs.WCRemAccessErr} {
		r, b := newRaw(t, ext.Operations, ibcompat.Config{}, 0)
		hello := rawHello
		hello.Flags = flags
		r.say(hello.Append(nil))
		r.hears(wire.Credit)
		r.say(message(wire.Header{Kind: wire.Ack, Taken: r.taken}))
		for id := range uint64(2) {
			b.post(verbs.SendWR{ID: id, Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled, SGL: b.sgl(0, 8),
				RemoteAddr: r.mem.Addr(), RKey: r.mem.RKey()})
		}
		r.hears(wire.Credit) // requests their confirmation
		require.NoError(t, r.id.Disconnect())
		b.ends(want, 0)
		b.ends(verbs.WCWRFlushErr, 1)
	}
}

// TestLaxPeerReads checks that towards a device that may refuse a Read after executing later
// requests, those requests wait for the answer. A Send of the data that a Read returns therefore
// sends that.
func TestLaxPeerReads(t *testing.T) {
	r, b := newRaw(t, ext.Operations, ibcompat.Config{}, 0)
	lax := rawHello
	lax.Flags = wire.HelloLax
	r.say(lax.Append(nil))
	r.hears(wire.Credit)
	const all = verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic
	r.say((&wire.Advert{Total: 64}).Append(
		message(wire.Header{Kind: wire.Credit, Flags: wire.FlagAsk, Adverts: 1, Taken: 1, Value: uint64(all)})))
	r.hears(wire.Ack)
	b.mr.Bytes()[0], r.mem.Bytes()[0] = 3, 4
	b.post(verbs.Read(verbs.Remote{Addr: r.mem.Addr(), Length: 1 << 30, RKey: r.mem.RKey()}, b.sgl(0, 1)...),
		verbs.Send(b.sgl(0, 1)...))
	_, data := r.hears(wire.Data)
	require.Equal(t, []byte{4}, data)
}

// TestRightsBeforeMessages checks that requests posted after a change of rights are sent after the
// message that announces it, even if that message has to wait for an acknowledgement.
func TestRightsBeforeMessages(t *testing.T) {
	r, b := newRaw(t, ext.Operations, ibcompat.Config{}, 0)
	r.greets() // asks for an acknowledgement, not sent yet
	r.say((&wire.Advert{Total: 64}).Append(message(wire.Header{Kind: wire.Ack, Adverts: 1})))
	require.NoError(t, b.qp.Modify(verbs.QPAttr{AccessFlags: verbs.AccessRemoteRead}, verbs.QPAttrAccessFlags))
	b.post(verbs.Send(b.sgl(0, 8)...))
	r.say(message(wire.Header{Kind: wire.Ack, Taken: 1}))
	h, _ := r.hears(wire.Credit)
	require.EqualValues(t, verbs.AccessRemoteRead, h.Value)
	r.hears(wire.Data)
}

// TestBehindFailedAtomic checks that nothing that the peer sent after a failed atomic is executed,
// even if it is invalid.
func TestBehindFailedAtomic(t *testing.T) {
	bad := message(wire.Header{Kind: wire.Atomic})
	bad = (&wire.AtomicRequest{RKey: 0x77, Addr: 8, Operand: 1}).Append(bad)
	send, long := message(wire.Header{Kind: wire.Data, Value: 1}, 0xee),
		message(wire.Header{Kind: wire.TooLong, Value: 9999})
	for name, behind := range map[string][][]byte{"Sends": {bad, send, send}, "TooLong": {bad, long},
		"Atomics": {bad, bad, bad}} {
		t.Run(name, func(t *testing.T) {
			for receives := range 3 {
				r, b := newRaw(t, ext.Operations, ibcompat.Config{}, receives)
				was := bytes.Clone(b.mr.Bytes())
				r.greets()
				at := rawSlots * rawLen
				var list []verbs.SendWR
				for _, msg := range behind {
					sge, err := r.mem.SGE(at, copy(r.mem.Bytes()[at:], msg))
					require.NoError(t, err)
					at += len(msg)
					list = append(list, verbs.Send(sge))
				}
				r.post(list...)
				h, _ := r.hears(wire.Answer)
				require.Equal(t, verbs.WCRemAccessErr.String(), verbs.WCStatus(h.Status).String())
				require.NoError(t, r.id.Disconnect()) // cut the wait short
				b.over()
				require.ErrorIs(t, b.qp.Err(), verbs.WCRemAccessErr)
				for id := range uint64(receives) {
					b.ends(verbs.WCWRFlushErr, id)
				}
				require.Equal(t, was, b.mr.Bytes())
			}
		})
	}
}

// TestHostileAdvert checks that advertising a receive that does not exist ends the connection, when
// the peer's own device refuses the data written there.
func TestHostileAdvert(t *testing.T) {
	r, b := newRaw(t, ext.Operations, ibcompat.Config{}, 0)
	r.greets()
	r.say((&wire.Advert{Total: 4096 * 2, Segments: []wire.Segment{{Addr: 1 << 40, RKey: 77, Length: 4096 * 2}}}).Append(
		message(wire.Header{Kind: wire.Ack, Adverts: 1})))
	long, err := b.pd.AllocMR(8192, 0)
	require.NoError(t, err)
	defer long.Close()
	sge, err := long.SGE(0, 8192)
	require.NoError(t, err)
	b.post(verbs.Send(sge))
	b.ends(verbs.WCWRFlushErr, 0)
	b.over()
	require.Error(t, b.qp.Err())
}

// TestConfirmed checks that a Send and a Write complete once the peer is known to have them, and
// earlier with SendRelaxed or Config.Relaxed.
func TestConfirmed(t *testing.T) {
	for _, c := range []struct {
		name  string
		cfg   ibcompat.Config
		flags verbs.SendFlags
		waits bool
	}{{"confirmed", ibcompat.Config{}, 0, true}, {"SendRelaxed", ibcompat.Config{}, verbs.SendRelaxed, false},
		{"Config.Relaxed", ibcompat.Config{Relaxed: true}, 0, false}} {
		t.Run(c.name, func(t *testing.T) {
			r, b := newRaw(t, ext.Operations, c.cfg, 0)
			r.greets()
			r.say((&wire.Advert{Total: 64}).Append(message(wire.Header{Kind: wire.Ack, Adverts: 1, Taken: 1})))
			send, write := verbs.Send(b.sgl(0, 8)...),
				verbs.Write(verbs.Remote{Addr: r.mem.Addr(), Length: 1 << 30, RKey: r.mem.RKey()}, b.sgl(0, 8)...)
			send.ID, write.ID = 1, 2
			send.Flags |= c.flags
			write.Flags |= c.flags
			b.post(send, write)
			r.hears(wire.Data)
			if c.waits {
				r.hears(wire.Credit) // requests confirmation of both
				for id := uint64(1); id <= 2; id++ {
					time.Sleep(20 * time.Millisecond)
					var wcs [1]verbs.WC
					n, err := b.cq.Poll(wcs[:])
					require.NoError(t, err)
					require.Zero(t, n, "%v", wcs)
					r.say(message(wire.Header{Kind: wire.Ack, Taken: r.taken - 2 + id}))
					b.ends(verbs.WCSuccess, id)
				}
				return
			}
			b.ends(verbs.WCSuccess, 1, 2)
		})
	}
}

// TestNoEngine checks that both sides refuse a connection with a peer that is a plain device or
// speaks another version.
func TestNoEngine(t *testing.T) {
	in, _ := newIWARP(t, ext.Operations, ibcompat.Config{})
	_, dev := newIWARP(t, ext.Operations, ibcompat.Config{})
	plain, wrapped := open(t, in), open(t, dev)
	attempt := func(active, passive *verbs.Context, private, answer []byte) (connect, accept error) {
		ctx := soon(t)
		ln, err := cm.Listen(ctx, "127.0.0.1:0", cm.Config{Context: passive})
		require.NoError(t, err)
		defer func() { require.NoError(t, ln.Close()) }()
		a, b := newEnd(t, active, verbs.QPConfig{}), newEnd(t, passive, verbs.QPConfig{})
		id, err := cm.Resolve(ctx, ln.Addr().String(), cm.Config{Context: active})
		require.NoError(t, err)
		done := make(chan error, 1)
		go func() { done <- id.Connect(ctx, a.qp, cm.ConnParam{PrivateData: private}) }()
		req, err := ln.Accept(ctx)
		require.NoError(t, err)
		if passive == plain && answer == nil {
			require.NoError(t, req.Reject([]byte("no")))
		} else {
			var peer *cm.ID
			if peer, accept = req.Accept(ctx, b.qp, cm.ConnParam{PrivateData: answer}); accept == nil {
				defer func() { require.NoError(t, peer.Close()) }()
			}
		}
		connect = <-done
		require.NoError(t, id.Close())
		return connect, accept
	}
	other := (&wire.Greeting{}).Append(nil)
	other[2] = 9
	var peer *ibcompat.PeerError
	for _, private := range [][]byte{nil, []byte("a program"), other} {
		connect, accept := attempt(plain, wrapped, private, nil)
		require.ErrorIs(t, connect, cm.ErrRejected)
		require.ErrorContains(t, connect, "an ib: device listens there")
		require.ErrorAs(t, accept, &peer, "%q", private)
		require.False(t, peer.Remote)
	}
	require.ErrorContains(t, peer, "version 9")

	connect, _ := attempt(wrapped, plain, nil, []byte{})
	require.ErrorAs(t, connect, &peer)
	require.False(t, peer.Remote)
	require.ErrorIs(t, connect, wire.ErrNoGreeting)
	connect, _ = attempt(wrapped, plain, nil, other)
	require.ErrorAs(t, connect, &peer)
	require.False(t, peer.Remote)
	require.ErrorContains(t, connect, "version 9")
	connect, _ = attempt(wrapped, plain, nil, nil)
	require.ErrorAs(t, connect, &peer)
	require.ErrorIs(t, connect, cm.ErrRejected)

	// A refusal by the peer's engine is recognizable as such, and so is one by its program.
	_, newer := newIWARP(t, ext.Operations, ibcompat.Config{})
	ctx := open(t, newer)
	ln, err := cm.Listen(soon(t), "127.0.0.1:0", cm.Config{Context: ctx})
	require.NoError(t, err)
	defer func() { require.NoError(t, ln.Close()) }()
	for _, long := range []bool{true, false} {
		id, err := cm.Resolve(soon(t), ln.Addr().String(), cm.Config{Context: wrapped})
		require.NoError(t, err)
		done := make(chan error, 1)
		go func() { done <- id.Connect(soon(t), newEnd(t, wrapped, verbs.QPConfig{}).qp, cm.ConnParam{}) }()
		req, err := ln.Accept(soon(t))
		require.NoError(t, err)
		if err = req.Reject(make([]byte, map[bool]int{true: 49, false: 48}[long])); long {
			require.ErrorIs(t, err, verbs.ErrLimit)
		} else {
			require.NoError(t, err)
		}
		err = <-done
		require.ErrorIs(t, err, cm.ErrRejected)
		require.Equal(t, long, errors.As(err, &peer))
		require.NoError(t, id.Close())
	}
}

// newCalled is newRaw with the roles swapped: the wrapped device connects, and may send first.
func newCalled(t *testing.T) (r *raw, b *end) {
	t.Helper()
	ctx := soon(t)
	in, dev := newIWARP(t, 0, ibcompat.Config{})
	r, b = &raw{end: newEnd(t, open(t, in), verbs.QPConfig{})}, newEnd(t, open(t, dev), verbs.QPConfig{})
	ln, err := cm.Listen(ctx, "127.0.0.1:0", cm.Config{Context: r.ctx})
	require.NoError(t, err)
	defer func() { require.NoError(t, ln.Close()) }()
	r.allocate()
	b.id, err = cm.Resolve(ctx, ln.Addr().String(), cm.Config{Context: b.ctx})
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- b.id.Connect(ctx, b.qp, cm.ConnParam{}) }()
	req, err := ln.Accept(ctx)
	require.NoError(t, err)
	require.NoError(t, req.BindQP(r.qp))
	r.receive()
	r.id, err = req.Accept(ctx, r.qp, cm.ConnParam{PrivateData: (&wire.Greeting{}).Append(nil)})
	require.NoError(t, err)
	require.NoError(t, <-done)
	t.Cleanup(func() { require.NoError(t, r.id.Close()); require.NoError(t, b.id.Close()) })
	return r, b
}

// TestEndBeforeHello checks that the connecting side does not close the connection before it has
// heard from the peer, which shows that the peer's program knows of the connection: kernel siw hits
// a BUG if a connection ends earlier. A peer that stays silent is not awaited indefinitely.
func TestEndBeforeHello(t *testing.T) {
	for _, silent := range []bool{false, true} {
		r, b := newCalled(t)
		r.until(func(wc verbs.WC) bool { return wc.IsRecv() })
		_, err := wire.ParseHello(r.got[0])
		require.NoError(t, err)
		closed := make(chan error, 1)
		go func() { closed <- b.qp.Close() }()
		select {
		case <-r.id.Done():
			require.FailNow(t, "the connection has ended before the peer has spoken")
		case <-time.After(200 * time.Millisecond):
		}
		if !silent {
			r.say(rawHello.Append(nil))
			r.hears(wire.Bye)
			r.say(message(wire.Header{Kind: wire.Bye, Taken: r.taken}))
		}
		select {
		case <-r.id.Done():
		case <-time.After(time.Minute):
			require.FailNow(t, "the connection does not end")
		}
		require.NoError(t, <-closed)
	}
}

// FuzzPeer checks that whatever a peer sends, and whatever the program does meanwhile, everything
// that the program posts completes, memory that it did not expose remains untouched, and the
// connection can be closed.
func FuzzPeer(f *testing.F) {
	const (
		raws = iota
		says
		posts
		receives
		greets
		ops
	)
	for k := wire.Data; k <= wire.Part; k++ {
		for _, flags := range []byte{0, wire.FlagImm, wire.FlagAsk, wire.FlagAck, wire.FlagSolicited} {
			f.Add([]byte{greets, receives, posts, says, byte(k), flags, 0, 0, 1, 4, 4, 1, 2, 3, 4, receives, posts,
				says, byte(k), 0, 1, 0, 1, 0, 0})
		}
	}
	f.Add(append([]byte{raws, wire.HelloLen}, rawHello.Append(nil)...))
	f.Add(append([]byte{greets, raws, wire.HelloLen}, rawHello.Append(nil)...))
	f.Fuzz(func(t *testing.T, program []byte) {
		r, b := newRaw(t, ext.Operations, ibcompat.Config{}, 0)
		was := bytes.Clone(b.mr.Bytes())
		next := func() (v byte) {
			if len(program) > 0 {
				v, program = program[0], program[1:]
			}
			return v
		}
		some := func(n int) []byte {
			n = min(n, len(program))
			out := program[:n:n]
			program = program[n:]
			return out
		}
		at, left, first := rawSlots*rawLen, 40, uint64(0)
		say := func(msg []byte) {
			if sge, err := r.mem.SGE(at, copy(r.mem.Bytes()[at:], msg)); err == nil && left > 0 {
				// the connection may be closed already
				_, _ = r.qp.PostSend([]verbs.SendWR{{Opcode: verbs.WRSend, SGL: []verbs.SGE{sge}}})
				at, left = at+len(msg), left-1
			}
		}
		posted := 0
		for len(program) > 0 && posted < 60 {
			switch next() % ops {
			case raws:
				say(some(int(next())))
			case says:
				h := wire.Header{Kind: wire.Kind(next() % 16), Flags: next(), Adverts: next() % 4, Status: next() % 12,
					Taken: uint64(next() % 8), Value: uint64(next()), First: first}
				if h.Flags&wire.FlagImm != 0 {
					h.Imm = 7
				}
				msg := h.Append(nil)
				for range h.Adverts {
					msg = (&wire.Advert{Total: 64}).Append(msg)
				}
				first += uint64(h.Adverts)
				if h.Kind == wire.Atomic {
					msg = (&wire.AtomicRequest{RKey: uint32(next()), Addr: uint64(next())}).Append(msg)
				}
				say(append(msg, some(int(next())%80)...))
			case posts:
				to := verbs.Remote{Addr: r.mem.Addr(), Length: 1 << 30, RKey: r.mem.RKey()}
				for _, wr := range []verbs.SendWR{verbs.Send(b.sgl(0, 8)...), verbs.Write(to, b.sgl(0, 8)...),
					verbs.FetchAdd(to, 1, b.sgl(2048, 8)[0])} {
					if n, _ := b.qp.PostSend([]verbs.SendWR{wr}); n == 1 {
						posted++
					}
				}
			case receives:
				if n, _ := b.qp.PostRecv([]verbs.RecvWR{{ID: 1, SGL: b.sgl(2048, 64)}}); n == 1 {
					posted++
				}
			case greets:
				say(rawHello.Append(nil))
			}
		}
		require.NoError(t, r.qp.Close())
		b.over()
		for range posted {
			b.wait()
		}
		copy(b.mr.Bytes()[2048:][:64], was[2048:]) // written by valid messages
		require.Equal(t, was, b.mr.Bytes())
	})
}
