// SPDX-License-Identifier: BSD-3-Clause

package usiw_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/iwarp/ddp"
	"github.com/goverbs/goverbs/internal/iwarp/mpa"
	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/usiw/usiwtest"
	"github.com/goverbs/goverbs/verbs"
)

// sentTap is a Tap that records the bytes sent by a NIC with one connection.
type sentTap struct {
	mu   sync.Mutex
	sent []byte
}

// Packet implements usiw.Tap.
func (s *sentTap) Packet(p *usiw.Packet) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.Out {
		s.sent = append(s.sent, bytes.Join(p.Data, nil)...)
	}
}

// fpdus returns the ULPDUs that follow the set-up frame. It checks CRCs, and that markers are
// exactly where they belong or, in a stream without markers, absent.
func (s *sentTap) fpdus(t *testing.T, marked, crc bool) (ulpdus [][]byte) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	_, n, err := mpa.ParseFrame(s.sent)
	require.NoError(t, err)
	for pos, b := uint64(0), s.sent[n:]; len(b) > 0; {
		prefix, size := 0, 0
		if marked {
			prefix = mpa.MarkedPrefix(pos)
		}
		length := int(binary.BigEndian.Uint16(b[prefix:]))
		if size = mpa.FPDULen(length); marked {
			size = mpa.MarkedLen(pos, size)
		}
		require.LessOrEqual(t, size, len(b), "the last FPDU is not whole")
		fpdu := b[:size]
		if crc {
			require.True(t, mpa.CheckMarked(fpdu))
		} else {
			require.Zero(t, mpa.GetCRC(fpdu[size-mpa.CRCLen:]))
		}
		if marked {
			fpdu, err = mpa.StripMarked(nil, fpdu, pos)
			require.NoError(t, err)
		}
		ulpdus = append(ulpdus, fpdu[mpa.LengthLen:][:length])
		pos, b = pos+uint64(size), b[size:]
	}
	return ulpdus
}

// opcodeOf returns the opcode of the message that a ULPDU is a segment of.
func opcodeOf(u []byte) rdmap.Opcode {
	_, op := rdmap.ParseControl(u[1])
	return op
}

// TestMarkers moves data both ways, with markers requested by one side, the other, both or neither.
func TestMarkers(t *testing.T) {
	for _, markers := range [][2]usiw.Policy{{usiw.Off, usiw.Off}, {usiw.On, usiw.Off}, {usiw.Off, usiw.On},
		{usiw.On, usiw.On}} {
		for _, crc := range []usiw.Policy{usiw.On, usiw.Off} {
			for _, mtu := range []int{256, 1500, 0} {
				name := fmt.Sprintf("from B %v, from A %v, CRC %v, MTU %d", markers[0], markers[1], crc, mtu)
				t.Run(name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						var taps [2]sentTap
						cfg := func(side int) usiw.Config {
							return usiw.Config{Markers: markers[side], CRC: crc, MTU: mtu, Tap: &taps[side]}
						}
						p := usiwtest.Connect(t, usiwtest.PairConfig{A: cfg(0), B: cfg(1), Mem: 1 << 20})
						for _, way := range [][2]*usiwtest.End{{p.A, p.B}, {p.B, p.A}} {
							for _, n := range markedSizes {
								markedTransfer(t, way[0], way[1], n)
							}
						}
						synctest.Wait()
						for side := range taps {
							// A side sends markers if the other asked for them.
							limit := mpa.MULPDU(mtu, markers[1-side] == usiw.On)
							if mtu == 0 {
								limit = mpa.MaxMULPDU
							}
							longest := 0
							for _, u := range taps[side].fpdus(t, markers[1-side] == usiw.On, crc == usiw.On) {
								longest = max(longest, len(u))
							}
							require.LessOrEqual(t, longest, limit)
							require.Greater(t, longest, limit/2, "the MTU is used")
						}
					})
				})
			}
		}
	}
}

// markedSizes put the ends of messages on every side of a marker.
var markedSizes = []int{0, 1, 100, 502, 503, 504, 505, 506, 507, 508, 512, 1023, 1024, 5000, 70_001}

// markedTransfer moves n bytes from one side to the other by Send, Write and Read, and performs an
// atomic.
func markedTransfer(t *testing.T, from, to *usiwtest.End, n int) {
	t.Helper()
	const half = 512 << 10
	sgl := func(e *usiwtest.End, off, n int) []verbs.SGE {
		s, err := e.MR.SGE(off, n)
		require.NoError(t, err)
		return []verbs.SGE{s}
	}
	data := pattern(n, byte(n))
	copy(from.MR.Bytes(), data)
	copy(to.MR.Bytes()[half:], make([]byte, n))
	_, err := to.QP.PostRecv([]verbs.RecvWR{{SGL: sgl(to, half, n)}, {}})
	require.NoError(t, err)
	run := func(wr verbs.SendWR) {
		t.Helper()
		wc, err := from.Do(t.Context(), wr)
		require.NoError(t, err)
		require.NoError(t, wc.Err())
	}
	received := func() {
		t.Helper()
		wc, err := usiwtest.Next(t.Context(), to.RecvCQ)
		require.NoError(t, err)
		require.NoError(t, wc.Err())
		require.True(t, bytes.Equal(data, to.MR.Bytes()[half:half+n]))
	}
	run(verbs.SendWR{Opcode: verbs.WRSend, SGL: sgl(from, 0, n)})
	received()
	clear(to.MR.Bytes()[half : half+n])
	there, key := to.MR.Addr()+half, to.MR.RKey()
	run(verbs.SendWR{Opcode: verbs.WRRDMAWriteWithImm, SGL: sgl(from, 0, n), RemoteAddr: there, RKey: key})
	received()
	run(verbs.SendWR{Opcode: verbs.WRRDMARead, SGL: sgl(from, half, n), RemoteAddr: there, RKey: key})
	require.True(t, bytes.Equal(data, from.MR.Bytes()[half:half+n]))
	run(verbs.SendWR{Opcode: verbs.WRAtomicFetchAndAdd, Add: 1, SGL: sgl(from, 0, 8), RemoteAddr: to.MR.Addr(),
		RKey: key})
}

// TestMarkersTerminate: the Terminate also has markers, at every position in the stream.
func TestMarkersTerminate(t *testing.T) {
	for n := range 130 {
		synctest.Test(t, func(t *testing.T) {
			var tap sentTap
			p := usiwtest.Connect(t, usiwtest.PairConfig{A: usiw.Config{Markers: usiw.On}, B: usiw.Config{Tap: &tap}})
			s, err := p.B.MR.SGE(0, 4*n)
			require.NoError(t, err)
			wc, err := p.B.Do(t.Context(), verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGL: []verbs.SGE{s},
				RemoteAddr: p.A.MR.Addr(), RKey: p.A.MR.RKey()})
			require.NoError(t, err)
			require.NoError(t, wc.Err())
			wc, err = p.A.Do(t.Context(), verbs.SendWR{Opcode: verbs.WRSend}) // without a receive
			require.NoError(t, err)
			require.NoError(t, wc.Err())
			<-p.A.ID.Done()
			require.ErrorIs(t, p.A.QP.Err(),
				terminated(rdmap.LayerDDP, ddp.ErrTypeUntagged, ddp.UntaggedNoBuffer, true))
			synctest.Wait()
			ulpdus := tap.fpdus(t, true, true)
			require.Equal(t, rdmap.OpTerminate, opcodeOf(ulpdus[len(ulpdus)-1]))
		})
	}
}

// TestMarkersTerminateCut: a connection ends while an FPDU is partly sent. The rest of it and the
// Terminate follow, with markers at the right positions of the stream.
func TestMarkersTerminateCut(t *testing.T) {
	cuts := make(map[int]bool) // how many bytes of the FPDU were missing
	for n := range 12 {
		synctest.Test(t, func(t *testing.T) {
			var tap sentTap
			p := usiwtest.Connect(t, usiwtest.PairConfig{Mem: 1 << 20, A: usiw.Config{Markers: usiw.On},
				B: usiw.Config{Tap: &tap, MTU: 2000, CloseTimeout: time.Second}})
			s, err := p.B.MR.SGE(0, 100*n+1)
			require.NoError(t, err)
			all, err := p.B.MR.SGE(0, 1<<20)
			require.NoError(t, err)
			write := func(sge verbs.SGE) {
				_, err := p.B.QP.PostSend([]verbs.SendWR{{Opcode: verbs.WRRDMAWrite, SGL: []verbs.SGE{sge},
					RemoteAddr: p.A.MR.Addr(), RKey: p.A.MR.RKey()}})
				require.NoError(t, err)
				synctest.Wait()
			}
			write(s)                // keeps the buffers from filling up exactly at a marker
			p.Link.ToDialer.Stall() // what B sends
			write(s)
			write(all)
			tap.mu.Lock()
			before := len(tap.sent)
			tap.mu.Unlock()
			wc, err := p.A.Do(t.Context(), verbs.SendWR{Opcode: verbs.WRSend}) // without a receive
			require.NoError(t, err)
			require.NoError(t, wc.Err())
			<-p.B.ID.Done()
			p.Link.ToDialer.Resume()
			<-p.A.ID.Done()
			require.ErrorIs(t, p.A.QP.Err(),
				terminated(rdmap.LayerDDP, ddp.ErrTypeUntagged, ddp.UntaggedNoBuffer, true))
			synctest.Wait()
			ulpdus := tap.fpdus(t, true, true)
			require.Equal(t, rdmap.OpTerminate, opcodeOf(ulpdus[len(ulpdus)-1]))

			_, at, err := mpa.ParseFrame(tap.sent)
			require.NoError(t, err)
			pos := 0
			for _, u := range ulpdus {
				if pos += mpa.MarkedLen(uint64(pos), mpa.FPDULen(len(u))); pos >= before-at {
					break
				}
			}
			cuts[pos-(before-at)] = true
		})
	}
	delete(cuts, 0)
	require.NotEmpty(t, cuts, "no FPDU was cut")
}

// TestRTRMessages connects sides that can open a connection with any set of messages. Of those that
// both support, the Write is preferred to the Read, and the Read to the Send; if there is none,
// set-up fails on both sides. A Read in a direction without Reads is used only if there is no
// alternative; the passive side then raises its IRD.
func TestRTRMessages(t *testing.T) {
	const all = usiw.RTRWrite | usiw.RTRRead | usiw.RTRSend
	for active := range all + 1 {
		for passive := range all + 1 {
			for _, depths := range [][2]int{{}, {cm.None, 0}, {0, cm.None}} {
				synctest.Test(t, func(t *testing.T) { openWith(t, active, passive, depths) })
			}
		}
	}
}

func openWith(t *testing.T, active, passive usiw.RTRMessages, depths [2]int) {
	offers, takes := active, passive
	if offers == 0 {
		offers = usiw.RTRWrite
	}
	if takes == 0 {
		takes = usiw.RTRWrite | usiw.RTRRead | usiw.RTRSend
	}
	what := fmt.Sprintf("the active side offers %03b, the passive side takes %03b, depths %v", offers, takes, depths)
	common := offers & takes
	if depths != [2]int{} && common != usiw.RTRRead {
		common &^= usiw.RTRRead
	}
	var want rdmap.Opcode
	switch {
	case common&usiw.RTRWrite != 0:
		want = rdmap.OpWrite
	case common&usiw.RTRRead != 0:
		want = rdmap.OpReadRequest
	case common&usiw.RTRSend != 0:
		want = rdmap.OpSend
	}
	var tap [2]sentTap
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	began := time.Now()
	p, err := usiwtest.NewPair(ctx, usiwtest.PairConfig{
		A: usiw.Config{RTRMessages: active, Tap: &tap[0]}, B: usiw.Config{RTRMessages: passive, Tap: &tap[1]},
		AParam: cm.ConnParam{InitiatorDepth: depths[0]}, BParam: cm.ConnParam{ResponderResources: depths[1]},
		Before: func(p *usiwtest.Pair) error {
			_, err := p.B.QP.PostRecv([]verbs.RecvWR{{ID: 1}, {ID: 2}, {ID: 3}})
			return err
		},
	})
	if common == 0 {
		require.ErrorIs(t, err, cm.ErrProtocol, what)
		require.ErrorIs(t, err, terminated(rdmap.LayerMPA, 0, mpa.ErrCodeRTR, true), what)
		require.Zero(t, time.Since(began), what)
		require.Equal(t, rdmap.OpTerminate, opcodeOf(tap[0].fpdus(t, false, true)[0]), what)
		return
	}
	require.NoError(t, err, what)
	synctest.Wait()
	opening := tap[0].fpdus(t, false, true)
	require.Len(t, opening, 1, what)
	require.Equal(t, want, opcodeOf(opening[0]), what)
	if answers := tap[1].fpdus(t, false, true); want == rdmap.OpReadRequest {
		require.Len(t, answers, 1, what)
		require.Equal(t, rdmap.OpReadResponse, opcodeOf(answers[0]), what)
	} else {
		require.Empty(t, answers, what)
	}
	receives := 3
	if want == rdmap.OpSend {
		wc, err := usiwtest.Next(ctx, p.B.RecvCQ)
		require.NoError(t, err, what)
		require.Equal(t, verbs.WC{ID: 1, Opcode: verbs.WCRecv, QPNum: p.B.QP.Num()}, wc, what)
		receives--
	}

	// After the opening message, both sides have the right message numbers, and either may send
	// first.
	_, err = p.A.QP.PostRecv(make([]verbs.RecvWR, 2))
	require.NoError(t, err, what)
	for _, e := range []*usiwtest.End{p.B, p.A} {
		wrs := []verbs.SendWR{{Opcode: verbs.WRSend}, {Opcode: verbs.WRImmData}}
		if ord, _ := e.ID.Depths(); ord > 0 {
			wrs = append(wrs, verbs.SendWR{Opcode: verbs.WRRDMARead})
		}
		wc, err := e.Do(ctx, wrs...)
		require.NoError(t, err, what)
		require.NoError(t, wc.Err(), what)
	}
	synctest.Wait()
	var wcs [4]verbs.WC
	n, err := p.B.RecvCQ.Poll(wcs[:])
	require.NoError(t, err, what)
	require.Equal(t, 2, n, what)
	for i := range n {
		require.NoError(t, wcs[i].Err(), what)
		require.EqualValues(t, 3-receives+i+1, wcs[i].ID, what)
	}
	require.Equal(t, verbs.WCRecvImmData, wcs[1].Opcode, what)
	require.NoError(t, p.Close(), what)
}

// TestRTRSendWithoutReceive: a Send that opens the connection needs a receive like any other.
func TestRTRSendWithoutReceive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, err := usiwtest.NewPair(t.Context(), usiwtest.PairConfig{A: usiw.Config{RTRMessages: usiw.RTRSend}})
		require.ErrorIs(t, err, terminated(rdmap.LayerDDP, ddp.ErrTypeUntagged, ddp.UntaggedNoBuffer, false))
	})
}
