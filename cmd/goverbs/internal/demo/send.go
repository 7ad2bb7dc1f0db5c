// SPDX-License-Identifier: BSD-3-Clause

package demo

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/goverbs/goverbs/verbs"
)

// The step send: messages of many lengths, every fourth solicited, which the listener sends back.
// The last ones name a memory window of the driver, if the devices have windows: the listener reads
// through it and answers by Send with Invalidate.

const (
	sendMax     = 4096 // bytes per message
	windowSends = 16   // messages that name a window
	windowSize  = 64   // bytes of a window
	windowMsg   = 12   // bytes of a message that names a window: address and key, big-endian
)

// sendLen returns the length of message i.
func sendLen(i int) int { return 1 + i*37%sendMax }

// windowSends returns how many messages of the step name a window.
func (e *endpoint) windowSends() int {
	if e.has(windowOps) {
		return windowSends
	}
	return 0
}

func driveSend(ctx context.Context, d *driver, c *check, n int) ([]uint64, error) {
	p := d.pattern("send")
	plain := n - d.end.windowSends()
	fill := func(i int) ([]verbs.SendWR, error) {
		wr, err := d.end.sendWR(p.bytes(i, sendLen(i)))
		if i%4 == 3 {
			wr.Flags = verbs.SendSolicited
		}
		return []verbs.SendWR{wr}, err
	}
	err := d.end.converse(ctx, plain, fill, func(i int, wc *verbs.WC, msg []byte) {
		is(c, fmt.Sprintf("the kind of answer %d", i), wc.Opcode, verbs.WCRecv)
		c.bytes(fmt.Sprintf("answer %d", i), msg, p.bytes(i, sendLen(i)))
		d.out.progress(1, sendLen(i))
	})
	if err != nil || plain == n {
		return nil, err
	}
	mw, err := d.end.pd.AllocMW(verbs.MWType2)
	if err != nil {
		return nil, err
	}
	defer mw.Close()
	bind := func(i int) (addr uint64, key uint32, err error) {
		addr, key = d.local.Addr()+uint64(windowSize*i), mw.NextRKey()
		_, err = d.end.do(ctx, verbs.SendWR{Opcode: verbs.WRBindMW, RKey: key,
			Bind: &verbs.MWBind{MW: mw, MR: d.local, Addr: addr, Length: windowSize, Access: verbs.AccessRemoteRead}})
		return addr, key, err
	}
	for i := range n - plain {
		text := p.bytes(plain+i, windowSize)
		copy(d.local.Bytes()[windowSize*i:], text)
		addr, key, err := bind(i)
		if err != nil {
			return nil, err
		}
		msg := binary.BigEndian.AppendUint64(nil, addr)
		msg = binary.BigEndian.AppendUint32(msg, key)
		if err := d.end.send(ctx, msg, 0); err != nil {
			return nil, err
		}
		wc, answer, err := d.end.receive(ctx)
		if err != nil {
			return nil, err
		}
		is(c, fmt.Sprintf("the flags of the answer to window %d", i), wc.Flags, verbs.WCWithInv)
		is(c, fmt.Sprintf("the invalidated key of window %d", i), wc.InvalidatedRKey, key)
		c.bytes(fmt.Sprintf("what the peer read through window %d", i), answer, text)
		if err := d.end.repost(wc.ID); err != nil {
			return nil, err
		}
		d.out.progress(1, windowMsg)
	}
	// Once more without the peer: a window that it has not invalidated is invalidated here.
	_, key, err := bind(0)
	if err != nil {
		return nil, err
	}
	_, err = d.end.do(ctx, verbs.SendWR{Opcode: verbs.WRLocalInv, InvalidateRKey: key})
	return nil, err
}

func serveSend(ctx context.Context, l *listener, c *check, p pattern, n int) error {
	plain := max(n-l.end.windowSends(), 0)
	err := l.end.respond(ctx, plain, func(i int, wc *verbs.WC, msg []byte) (verbs.SendWR, error) {
		is(c, fmt.Sprintf("the kind of message %d", i), wc.Opcode, verbs.WCRecv)
		c.bytes(fmt.Sprintf("message %d", i), msg, p.bytes(i, sendLen(i)))
		l.out.progress(1, len(msg))
		wr, err := l.end.sendWR(msg)
		if i%4 == 1 {
			wr.Flags = verbs.SendSolicited
		}
		return wr, err
	})
	if err != nil || plain == n {
		return err
	}
	sink, err := l.data.SGE(0, windowSize)
	if err != nil {
		return err
	}
	return l.end.respond(ctx, n-plain, func(i int, _ *verbs.WC, msg []byte) (verbs.SendWR, error) {
		if len(msg) != windowMsg {
			return verbs.SendWR{}, fmt.Errorf("message of %d bytes where a window was to be named", len(msg))
		}
		key := binary.BigEndian.Uint32(msg[8:])
		_, err := l.end.do(ctx, verbs.SendWR{Opcode: verbs.WRRDMARead, SGL: []verbs.SGE{sink},
			RemoteAddr: binary.BigEndian.Uint64(msg), RKey: key})
		if err != nil {
			return verbs.SendWR{}, err
		}
		text := l.data.Bytes()[:windowSize]
		c.bytes(fmt.Sprintf("what was read through window %d", i), text, p.bytes(plain+i, windowSize))
		l.out.progress(1, windowMsg)
		wr, err := l.end.sendWR(text)
		wr.Opcode, wr.InvalidateRKey = verbs.WRSendWithInv, key
		if i%2 == 1 {
			wr.Flags = verbs.SendSolicited
		}
		return wr, err
	})
}
