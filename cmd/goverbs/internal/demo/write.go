// SPDX-License-Identifier: BSD-3-Clause

package demo

import (
	"context"
	"crypto/sha256"
	"fmt"

	"github.com/goverbs/goverbs/verbs"
)

// The steps write and read: the whole data area in chunks, repeatedly with new data. After each
// round the sides exchange digests of what they have.

// chunkWR returns a Write or Read of one chunk between the driver's area and the listener's.
func (d *driver) chunkWR(opcode verbs.WROpcode, i int) (verbs.SendWR, error) {
	off := i % chunks * chunkSize
	sge, err := d.local.SGE(off, chunkSize)
	return verbs.SendWR{Opcode: opcode, SGL: []verbs.SGE{sge},
		RemoteAddr: d.peer.DataAddr + uint64(off), RKey: d.peer.DataKey}, err
}

// moveArea writes or reads the whole area once.
func (d *driver) moveArea(ctx context.Context, opcode verbs.WROpcode) error {
	wrs := make([]verbs.SendWR, chunks)
	for i := range wrs {
		var err error
		if wrs[i], err = d.chunkWR(opcode, i); err != nil {
			return err
		}
	}
	return d.end.pipeline(ctx, chunks, func(i int) verbs.SendWR { return wrs[i] },
		func(int, *verbs.WC) { d.out.progress(1, chunkSize) })
}

func driveWrite(ctx context.Context, d *driver, c *check, n int) ([]uint64, error) {
	p := d.pattern("write")
	for round := range n / chunks {
		p.fill(d.local.Bytes(), round)
		if err := d.moveArea(ctx, verbs.WRRDMAWrite); err != nil {
			return nil, err
		}
		digest := sha256.Sum256(d.local.Bytes())
		answer, err := d.end.ask(ctx, digest[:]) // the Send arrives after the Writes are placed
		if err != nil {
			return nil, err
		}
		c.bytes(fmt.Sprintf("round %d: the digest of the listening side's memory", round), answer, digest[:])
	}
	return nil, nil
}

func serveWrite(ctx context.Context, l *listener, c *check, p pattern, n int) error {
	want := make([]byte, dataSize)
	return l.end.respond(ctx, n/chunks, func(round int, _ *verbs.WC, msg []byte) (verbs.SendWR, error) {
		digest := sha256.Sum256(l.data.Bytes())
		c.bytes(fmt.Sprintf("round %d: the digest of this side's memory", round), digest[:], msg)
		p.fill(want, round)
		c.bytes(fmt.Sprintf("round %d: this side's memory", round), l.data.Bytes(), want)
		l.out.progress(chunks, dataSize)
		return l.end.sendWR(digest[:])
	})
}

func driveRead(ctx context.Context, d *driver, c *check, n int) ([]uint64, error) {
	p := d.pattern("read")
	want := make([]byte, dataSize)
	var have []byte // digest of the data that the last round read
	for round := range n / chunks {
		// The listener checks the digest, refills its area and returns the digest of that.
		theirs, err := d.end.ask(ctx, have)
		if err != nil {
			return nil, err
		}
		if err := d.moveArea(ctx, verbs.WRRDMARead); err != nil {
			return nil, err
		}
		p.fill(want, round)
		c.bytes(fmt.Sprintf("round %d: what was read", round), d.local.Bytes(), want)
		digest := sha256.Sum256(d.local.Bytes())
		have = digest[:]
		c.bytes(fmt.Sprintf("round %d: the digest of what was read", round), have, theirs)
	}
	_, err := d.end.ask(ctx, have)
	return nil, err
}

func serveRead(ctx context.Context, l *listener, c *check, p pattern, n int) error {
	var digest [sha256.Size]byte
	return l.end.respond(ctx, n/chunks+1, func(round int, _ *verbs.WC, msg []byte) (verbs.SendWR, error) {
		if round > 0 {
			c.bytes(fmt.Sprintf("round %d: the digest of what the peer has read", round-1), msg, digest[:])
			l.out.progress(chunks, dataSize)
		}
		p.fill(l.data.Bytes(), round)
		digest = sha256.Sum256(l.data.Bytes())
		return l.end.sendWR(digest[:])
	})
}
