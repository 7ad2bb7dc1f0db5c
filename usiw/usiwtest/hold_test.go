// SPDX-License-Identifier: BSD-3-Clause

package usiwtest_test

import (
	"encoding/binary"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/usiw/usiwtest"
	"github.com/goverbs/goverbs/verbs"
)

// holdLimits are the default and a configured HoldTimeout.
var holdLimits = []struct {
	cfg  usiw.Config
	want time.Duration
}{
	{usiw.Config{}, 100 * time.Millisecond},
	{usiw.Config{HoldTimeout: 1234 * time.Millisecond}, 1234 * time.Millisecond},
}

// held returns a pair whose listening side waits for the first message. The clock starts when the
// pair is connected.
func held(t *testing.T, cfg usiwtest.PairConfig) (*usiwtest.Pair, *clock) {
	t.Helper()
	cfg.A.RTR = usiw.Off
	p := usiwtest.Connect(t, cfg)
	return p, newClock(t)
}

// get returns a Read of n bytes by B from A.
func get(t *testing.T, p *usiwtest.Pair, n int) verbs.SendWR {
	t.Helper()
	return verbs.SendWR{ID: 1, Opcode: verbs.WRRDMARead, Flags: verbs.SendSignaled, SGL: sgl(t, p.B, 0, n),
		RemoteAddr: p.A.MR.Addr(), RKey: p.A.MR.RKey()}
}

// TestHoldTimeout: the listening side of a connection that is not peer-to-peer sends nothing for
// HoldTimeout, whatever is posted and whenever. Then it sends everything.
func TestHoldTimeout(t *testing.T) {
	for _, limit := range holdLimits {
		for _, posted := range []time.Duration{0, limit.want - 1, limit.want, 2 * limit.want} {
			bubble(t, func(t *testing.T) {
				p, clock := held(t, usiwtest.PairConfig{B: limit.cfg})
				reply := p.Link.ToDialer.Written()
				time.Sleep(posted)
				synctest.Wait()
				_, err := p.B.QP.PostSend([]verbs.SendWR{get(t, p, 100)})
				require.NoError(t, err)
				if posted < limit.want {
					time.Sleep(limit.want - 1 - posted)
					synctest.Wait()
					require.Equal(t, reply, p.Link.ToDialer.Written(), "held")
				}
				wc, err := usiwtest.Next(t.Context(), p.B.SendCQ)
				require.NoError(t, err)
				require.Equal(t, verbs.WCSuccess, wc.Status)
				clock.at(max(posted, limit.want), "the answer")
			})
		}
	}
}

// TestHoldEndsEarly: the peer's first message ends the hold at once.
func TestHoldEndsEarly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p, clock := held(t, usiwtest.PairConfig{})
		_, err := p.B.QP.PostSend([]verbs.SendWR{get(t, p, 100)})
		require.NoError(t, err)
		time.Sleep(33 * time.Millisecond)
		wc, err := p.A.Do(t.Context(), put(t, p, 0))
		require.NoError(t, err)
		require.Equal(t, verbs.WCSuccess, wc.Status)
		wc, err = usiwtest.Next(t.Context(), p.B.SendCQ)
		require.NoError(t, err)
		require.Equal(t, verbs.WCSuccess, wc.Status)
		clock.at(33*time.Millisecond, "the answer")
	})
}

// TestHoldClosed: a connection can end during the hold like any other: waiting requests are flushed
// at once, and none is ever sent.
func TestHoldClosed(t *testing.T) {
	for name, end := range map[string]func(p *usiwtest.Pair) error{
		"by A":           func(p *usiwtest.Pair) error { return p.A.ID.Disconnect() },
		"by B":           func(p *usiwtest.Pair) error { return p.B.ID.Disconnect() },
		"by B's QP":      func(p *usiwtest.Pair) error { return p.B.QP.Close() },
		"by the network": func(p *usiwtest.Pair) error { p.Link.Cut(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p, clock := held(t, usiwtest.PairConfig{})
				reply := p.Link.ToDialer.Written()
				_, err := p.B.QP.PostSend([]verbs.SendWR{get(t, p, 100)})
				require.NoError(t, err)
				require.NoError(t, end(p))
				synctest.Wait()
				if name != "by B's QP" {
					require.Equal(t, []verbs.WCStatus{verbs.WCWRFlushErr}, statuses(t, drain(t, p.B.SendCQ)))
				}
				<-p.A.ID.Done()
				<-p.B.ID.Done()
				clock.at(0, "the end")
				time.Sleep(time.Minute)
				require.Equal(t, reply, p.Link.ToDialer.Written())
			})
		})
	}
}

// TestHoldQueue fills the send queue with requests of every kind during the hold. They are
// performed in order afterwards. Requests for which the queue has no room are refused.
func TestHoldQueue(t *testing.T) {
	const depth, word = 2048, 8
	bubble(t, func(t *testing.T) {
		p, clock := held(t, usiwtest.PairConfig{Cap: verbs.QPCap{MaxSendWR: depth, MaxRecvWR: depth}, CQE: depth,
			Mem: 3 * depth * word, Before: func(p *usiwtest.Pair) error {
				_, err := p.A.QP.PostRecv(make([]verbs.RecvWR, depth/4))
				return err
			}})
		// B's first words are written to A's, its second are read and fetched from A's last words.
		const from, to, last = 0, depth * word, 2 * depth * word
		for i := range depth {
			binary.NativeEndian.PutUint64(p.B.MR.Bytes()[from+i*word:], uint64(i))
			binary.NativeEndian.PutUint64(p.A.MR.Bytes()[last+i*word:], uint64(depth+i))
		}
		want := make([]verbs.WC, depth)
		for i := range depth {
			wr := verbs.SendWR{ID: uint64(i), Flags: verbs.SendSignaled, RKey: p.A.MR.RKey()}
			switch i % 4 {
			case 0:
				wr.Opcode, wr.SGL, wr.RemoteAddr = verbs.WRRDMAWrite, sgl(t, p.B, from+i*word, word),
					p.A.MR.Addr()+uint64(i*word)
				want[i].Opcode = verbs.WCRDMAWrite
			case 1:
				wr.Opcode, wr.SGL, wr.RemoteAddr = verbs.WRRDMARead, sgl(t, p.B, to+i*word, word),
					p.A.MR.Addr()+uint64(last+i*word)
				want[i].Opcode, want[i].ByteLen = verbs.WCRDMARead, word
			case 2:
				wr.Opcode, wr.SGL, wr.RemoteAddr = verbs.WRAtomicFetchAndAdd, sgl(t, p.B, to+i*word, word),
					p.A.MR.Addr()+uint64(last+i*word)
				wr.Add = 1
				want[i].Opcode, want[i].ByteLen = verbs.WCFetchAdd, word
			case 3:
				wr.Opcode, wr.Flags = verbs.WRSend, wr.Flags|verbs.SendFence
			}
			want[i].ID, want[i].QPNum = wr.ID, p.B.QP.Num()
			_, err := p.B.QP.PostSend([]verbs.SendWR{wr})
			require.NoError(t, err)
		}
		n, err := p.B.QP.PostSend([]verbs.SendWR{{Opcode: verbs.WRSend}})
		require.ErrorIs(t, err, verbs.ErrQueueFull)
		require.Zero(t, n)
		synctest.Wait()
		require.Empty(t, drain(t, p.B.SendCQ))
		clock.at(0, "posting")
		for i := range want {
			wc, err := usiwtest.Next(t.Context(), p.B.SendCQ)
			require.NoError(t, err)
			require.Equal(t, want[i], wc)
		}
		clock.at(100*time.Millisecond, "the last completion")
		require.Len(t, drain(t, p.A.RecvCQ), depth/4)
		for i := range depth {
			written := binary.NativeEndian.Uint64(p.A.MR.Bytes()[i*word:])
			got := binary.NativeEndian.Uint64(p.B.MR.Bytes()[to+i*word:])
			left := binary.NativeEndian.Uint64(p.A.MR.Bytes()[last+i*word:])
			require.Equal(t, [3]uint64{
				[]uint64{uint64(i), 0, 0, 0}[i%4],
				[]uint64{0, uint64(depth + i), uint64(depth + i), 0}[i%4],
				uint64(depth+i) + []uint64{0, 0, 1, 0}[i%4]}, [3]uint64{written, got, left}, i)
		}
		require.NoError(t, errors.Join(p.A.QP.Err(), p.B.QP.Err()))
	})
}
