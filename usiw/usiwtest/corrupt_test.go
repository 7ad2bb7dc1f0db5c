// SPDX-License-Identifier: BSD-3-Clause

package usiwtest_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/iwarp/ddp"
	"github.com/goverbs/goverbs/internal/iwarp/mpa"
	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/usiw/usiwtest"
	"github.com/goverbs/goverbs/verbs"
)

// MPA error codes as a Terminate carries them (RFC 5044 section 8).
const (
	crcError    = mpa.ErrCodeCRC
	markerError = mpa.ErrCodeMarker
)

// damage is one corrupted byte in one direction.
type damage struct {
	back bool  // from B to A
	off  int64 // offset from the operation's first byte
	mask byte
}

func (d damage) String() string {
	way := "A to B"
	if d.back {
		way = "B to A"
	}
	return fmt.Sprintf("byte %d from %s, mask %#x", d.off, way, d.mask)
}

// direction returns the corrupted direction and the end that detects the corruption.
func (s *stage) direction(back bool) (*usiwtest.Direction, *usiwtest.End) {
	if back {
		return s.Link.ToDialer, s.A
	}
	return s.Link.ToListener, s.B
}

// traffic records what each direction carries for one operation on n bytes.
func traffic(t *testing.T, o *operation, n int, cfg usiw.Config) (out, back []byte) {
	t.Helper()
	bubble(t, func(t *testing.T) {
		tap := &recorder{}
		cfg := cfg
		cfg.Tap = tap
		s := newStage(t, usiwtest.PairConfig{A: cfg})
		s.expectReceive(o, n)
		synctest.Wait()
		tap.out, tap.in = nil, nil
		wc, err := s.A.Do(t.Context(), s.request(o, 1, n))
		require.NoError(t, err)
		require.NoError(t, wc.Err())
		synctest.Wait()
		out, back = tap.out, tap.in
	})
	return out, back
}

// recorder is a Tap that keeps everything. It supports a single connection with a single operation
// in progress.
type recorder struct{ in, out []byte }

func (r *recorder) Packet(p *usiw.Packet) {
	for _, b := range p.Data {
		if p.Out {
			r.out = append(r.out, b...)
		} else {
			r.in = append(r.in, b...)
		}
	}
}

// lengthByte returns the ULPDU length that the FPDU around byte off appears to have once that byte
// is corrupted; ok reports whether the byte is part of a length.
func lengthByte(stream []byte, d damage) (n int, ok bool) {
	for at := 0; at < len(stream); {
		length := stream[at : at+mpa.LengthLen]
		if i := int(d.off) - at; i >= 0 && i < mpa.LengthLen {
			bad := bytes.Clone(length)
			bad[i] ^= d.mask
			return int(binary.BigEndian.Uint16(bad)), true
		}
		at += mpa.FPDULen(int(binary.BigEndian.Uint16(length)))
	}
	return 0, false
}

// TestCorruptFPDU corrupts one byte after the other of every FPDU of every operation. The receiver
// sends a Terminate, both sides end, every request has its completion, and no byte of memory has
// changed.
func TestCorruptFPDU(t *testing.T) {
	const n = 13 // so that there is a pad
	for i := range operations {
		o := &operations[i]
		switch o.name {
		case "Write", "Write with immediate solicited", "Immediate Data", "FetchAdd", "masked FetchAdd",
			"masked CmpSwap":
			continue // the others have the same FPDUs
		}
		t.Run(o.name, func(t *testing.T) {
			out, back := traffic(t, o, n, usiw.Config{})
			require.NotEmpty(t, out)
			require.Equal(t, o.back != rdmap.OpTerminate, len(back) > 0)
			for way, stream := range [][]byte{out, back} {
				for off := range stream {
					d := damage{back: way == 1, off: int64(off), mask: 1 << (off % 8)}
					bubble(t, func(t *testing.T) { corrupt(t, o, n, d, stream) })
				}
				// The length, in every bit.
				for bit := range 8 * mpa.LengthLen * min(len(stream), 1) {
					d := damage{back: way == 1, off: int64(bit / 8), mask: 1 << (bit % 8)}
					bubble(t, func(t *testing.T) { corrupt(t, o, n, d, stream) })
				}
			}
		})
	}
}

func corrupt(t *testing.T, o *operation, n int, d damage, stream []byte) {
	s := newStage(t, usiwtest.PairConfig{})
	s.expectReceive(o, n)
	synctest.Wait()
	dir, finder := s.direction(d.back)
	dir.Corrupt(dir.Written()+d.off, d.mask)
	wr := s.request(o, 1, n)
	_, err := s.A.QP.PostSend([]verbs.SendWR{wr})
	require.NoError(t, err)
	synctest.Wait()

	code := uint8(crcError)
	if length, ok := lengthByte(stream, d); ok {
		switch {
		case length < ddp.TaggedLen:
			code = markerError
		case length > 0:
			// The receiver may be waiting for the rest of a longer FPDU, so send more.
			other := s.A
			if d.back {
				other = s.B
			}
			for id := range uint64(3) {
				_, err := other.QP.PostSend(
					[]verbs.SendWR{{ID: 2 + id, Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled,
						SGL: sgl(t, other, 0, part), RKey: finder.MR.RKey(), RemoteAddr: finder.MR.Addr()}})
				require.NoError(t, err)
			}
		}
	}
	s.ended(finder, rdmap.LayerMPA, 0, code)
	if int(d.off) >= secondFPDU(stream) {
		s.apply(&wr, n) // the Write before the immediate
	}
	if d.back && o.back == rdmap.OpAtomicResponse {
		sinkBefore := bytes.Clone(s.a)
		s.apply(&wr, n) // B has performed it
		s.a = sinkBefore
	}
	s.intact("%v", d)

	sent := drain(t, s.A.SendCQ)
	require.NotEmpty(t, sent, "%v", d)
	for i, status := range statuses(t, sent) {
		if wait := i == 0 && o.back != rdmap.OpTerminate; wait {
			require.Equal(t, verbs.WCWRFlushErr, status, "%v: %v", d, sent[i])
		} else {
			require.Contains(t, []verbs.WCStatus{verbs.WCSuccess, verbs.WCWRFlushErr}, status, "%v", d)
		}
	}
	received := drain(t, s.B.RecvCQ)
	if o.recv == 0 {
		require.Empty(t, received)
		return
	}
	require.Len(t, received, 1)
	require.Equal(t, verbs.WCWRFlushErr, received[0].Status, "%v", d)
}

// secondFPDU returns where the second FPDU of stream begins, which is the length of the first.
func secondFPDU(stream []byte) int { return mpa.FPDULen(int(binary.BigEndian.Uint16(stream))) }

// TestCorruptWithoutCRC: without CRC a corrupted data byte is not detected.
func TestCorruptWithoutCRC(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStage(t, usiwtest.PairConfig{A: usiw.Config{CRC: usiw.Off}, B: usiw.Config{CRC: usiw.Off}})
		synctest.Wait()
		d := s.Link.ToListener
		d.Corrupt(d.Written()+mpa.LengthLen+ddp.TaggedLen+10, 0x10)
		wr := s.request(&operations[4], 1, 100)
		require.Equal(t, verbs.WRRDMAWrite, wr.Opcode)
		wc, err := s.A.Do(t.Context(), wr)
		require.NoError(t, err)
		require.NoError(t, wc.Err())
		synctest.Wait()
		s.apply(&wr, 100)
		s.b[target+10] ^= 0x10
		s.intact("damaged")
		require.Equal(t, verbs.QPStateRTS, s.B.QP.State())
	})
}

// TestCorruptTerminate corrupts the bytes of a Terminate: its receiver answers with one of its own,
// which the sender drops.
func TestCorruptTerminate(t *testing.T) {
	length := mpa.FPDULen(ddp.UntaggedLen + rdmap.TerminateLen + 2 + ddp.TaggedLen)
	for off := range length {
		bubble(t, func(t *testing.T) {
			s := newStage(t, usiwtest.PairConfig{})
			synctest.Wait()
			d := s.Link.ToDialer
			before := d.Written()
			d.Corrupt(before+int64(off), 0x80)
			wr := s.request(&operations[4], 1, 100)
			wr.RKey ^= 0x01
			_, err := s.A.Do(t.Context(), wr)
			require.NoError(t, err)
			for _, e := range []*usiwtest.End{s.A, s.B} {
				<-e.ID.Done()
			}
			synctest.Wait()
			require.EqualValues(t, length, d.Written()-before)
			require.ErrorIs(t, s.B.QP.Err(), &verbs.TerminateError{Layer: rdmap.LayerDDP, Type: ddp.ErrTypeTagged})
			if off < mpa.LengthLen {
				// The stream ends before the end of the FPDU that the length describes.
				require.ErrorIs(t, s.A.QP.Err(), io.ErrUnexpectedEOF)
			} else {
				require.ErrorIs(t, s.A.QP.Err(), &verbs.TerminateError{Layer: rdmap.LayerMPA, Code: crcError})
			}
			s.intact("byte %d", off)
		})
	}
}

// TestCorruptMarker corrupts the pointer of a marker and fixes the CRC: the marker then does not
// point to its FPDU.
func TestCorruptMarker(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStage(t, usiwtest.PairConfig{B: usiw.Config{Markers: usiw.On}})
		synctest.Wait()
		d := s.Link.ToListener
		d.Corrupt(d.Written()+100, 0x01)
		_, err := s.A.Do(t.Context(), s.request(&operations[4], 1, 1000))
		require.NoError(t, err)
		s.ended(s.B, rdmap.LayerMPA, 0, crcError)
		s.intact("marked")
	})
}

// TestCorruptRTR corrupts the message that opens the connection: the passive side's Accept fails,
// and the active side is informed.
func TestCorruptRTR(t *testing.T) {
	const request = mpa.FrameLen + mpa.EnhancedLen
	for off := range int64(mpa.FPDULen(ddp.TaggedLen)) {
		bubble(t, func(t *testing.T) {
			w := usiwtest.NewWire()
			w.OnDial = func(l *usiwtest.Link) { l.ToListener.Corrupt(request+off, 0x01) }
			_, err := usiwtest.NewPair(t.Context(), usiwtest.PairConfig{Wire: w})
			require.Error(t, err)
		})
	}
}
