// SPDX-License-Identifier: BSD-3-Clause

package demo

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/verbs"
)

// The step write-imm: Writes whose immediate announces their arrival, alternately with 32 and 64
// bits if the devices have 64-bit Immediate Data. The listener finds the data in place and sends
// the immediate back.

const immSpacing = 1024 // bytes between the targets of consecutive Writes, and the maximum length of one

// immLen returns the length of Write i.
func immLen(i int) int { return 1 + i*31%immSpacing }

// immOff returns the offset of Write i in both areas. The Writes in flight, at most window, do not
// overlap.
func immOff(i int) int { return i % (2 * window) * immSpacing }

func driveWriteImm(ctx context.Context, d *driver, c *check, n int) ([]uint64, error) {
	p := d.pattern("write-imm")
	fill := func(i int) ([]verbs.SendWR, error) {
		off := immOff(i)
		sge, err := d.local.SGE(off, immLen(i))
		if err != nil {
			return nil, err
		}
		p.fill(d.local.Bytes()[off:off+immLen(i)], i)
		to := verbs.Remote{Addr: d.peer.DataAddr + uint64(off), Length: uint64(immLen(i)), RKey: d.peer.DataKey}
		var wrs []verbs.SendWR
		if !d.end.wideImm(i) {
			wrs = []verbs.SendWR{verbs.WriteImm(to, uint32(p.word(i)), sge)}
		} else {
			two := ext.WriteImm64WRs(to, p.word(i), sge)
			wrs = two[:]
		}
		if i%4 > 1 {
			wrs[len(wrs)-1].Flags = verbs.SendSolicited
		}
		return wrs, nil
	}
	return nil, d.end.converse(ctx, n, fill, func(i int, _ *verbs.WC, msg []byte) {
		c.bytes(fmt.Sprintf("the immediate that came back from Write %d", i), msg, immBytes(p, i, d.end.wideImm(i)))
		d.out.progress(1, immLen(i))
	})
}

// wideImm reports whether the immediate of Write i has 64 bits.
func (e *endpoint) wideImm(i int) bool { return i%2 == 1 && e.has(verbs.MakeOpSet(verbs.OpImm64)) }

// immBytes returns the immediate of Write i as bytes.
func immBytes(p pattern, i int, wide bool) []byte {
	if !wide {
		return binary.BigEndian.AppendUint32(nil, uint32(p.word(i)))
	}
	return binary.BigEndian.AppendUint64(nil, p.word(i))
}

func serveWriteImm(ctx context.Context, l *listener, c *check, p pattern, n int) error {
	return l.end.respond(ctx, n, func(i int, wc *verbs.WC, _ []byte) (verbs.SendWR, error) {
		is(c, fmt.Sprintf("the completion of Write %d", i), wc.Opcode, verbs.WCRecvRDMAWithImm)
		is(c, fmt.Sprintf("the flags of Write %d", i), wc.Flags, verbs.WCWithImm)
		is(c, fmt.Sprintf("the length of Write %d", i), wc.ByteLen, uint32(immLen(i)))
		off := immOff(i)
		c.bytes(fmt.Sprintf("the data of Write %d", i), l.data.Bytes()[off:off+immLen(i)], p.bytes(i, immLen(i)))
		var imm []byte
		if !l.end.wideImm(i) {
			imm = binary.BigEndian.AppendUint32(nil, wc.Imm)
		} else {
			imm = binary.BigEndian.AppendUint64(nil, wc.Imm64)
		}
		c.bytes(fmt.Sprintf("the immediate of Write %d", i), imm, immBytes(p, i, l.end.wideImm(i)))
		l.out.progress(1, immLen(i))
		return l.end.sendWR(imm)
	})
}

// The step imm64: Immediate Data messages, every second one solicited. The listener answers each
// with its complement.

func driveImm64(ctx context.Context, d *driver, c *check, n int) ([]uint64, error) {
	p := d.pattern("imm64")
	fill := func(i int) ([]verbs.SendWR, error) {
		if i%2 == 0 {
			return []verbs.SendWR{ext.ImmDataWR(p.word(i))}, nil
		}
		return []verbs.SendWR{ext.ImmDataSEWR(p.word(i))}, nil
	}
	return nil, d.end.converse(ctx, n, fill, func(i int, wc *verbs.WC, _ []byte) {
		is(c, fmt.Sprintf("the completion of answer %d", i), wc.Opcode, verbs.WCRecvImmData)
		c.word(fmt.Sprintf("answer %d", i), wc.Imm64, ^p.word(i))
		d.out.progress(1, 0)
	})
}

func serveImm64(ctx context.Context, l *listener, c *check, p pattern, n int) error {
	return l.end.respond(ctx, n, func(i int, wc *verbs.WC, _ []byte) (verbs.SendWR, error) {
		is(c, fmt.Sprintf("the completion of immediate %d", i), wc.Opcode, verbs.WCRecvImmData)
		is(c, fmt.Sprintf("the length of immediate %d", i), wc.ByteLen, 8)
		c.word(fmt.Sprintf("immediate %d", i), wc.Imm64, p.word(i))
		l.out.progress(1, 0)
		return ext.ImmDataWR(^wc.Imm64), nil
	})
}
