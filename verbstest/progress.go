// SPDX-License-Identifier: BSD-3-Clause

package verbstest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/verbs"
)

var progressTests = []test{
	{"Reads", progressReads},
	{"ReadsOfBoth", progressReadsOfBoth},
	{"FencesOfBoth", progressFencesOfBoth},
	{"Atomics", progressAtomics},
	{"Writes", progressWrites},
	{"SlowReceiver", progressSlowReceiver},
	{"ManyConnections", progressManyConnections},
}

// progressCount is the number of operations that a responder answers while its program is idle.
const progressCount = 10_000

// pipeline runs count requests on p's active side, keeping window in progress. The program of the
// passive side is idle in the meantime.
func (p *pair) pipeline(count, window int, op verbs.WCOpcode, wr func(i int) verbs.SendWR) {
	p.Helper()
	wcs := make([]verbs.WC, window)
	ctx := within(p.T)
	list := make([]verbs.SendWR, 0, window)
	posted, done := 0, 0
	for done < count {
		list = list[:0]
		for ; posted < count && posted < done+window; posted++ {
			list = append(list, wr(posted))
			list[len(list)-1].ID, list[len(list)-1].Flags = uint64(posted), verbs.SendSignaled
		}
		if len(list) > 0 {
			p.a.post(list...)
		}
		n, err := p.a.scq.Wait(ctx, wcs)
		require.NoError(p, err)
		for _, wc := range wcs[:n] {
			if wc.ID != uint64(done) || wc.Status != verbs.WCSuccess || wc.Opcode != op {
				require.Failf(p, "unexpected completion", "at %d: %+v", done, wc)
			}
			done++
		}
	}
}

func progressReads(w *world) outcome {
	p := w.pair(pairConfig{})
	sgl := p.a.mem.sgl(0, 64)
	p.pipeline(progressCount, 64, verbs.WCRDMARead, func(int) verbs.SendWR { return read(sgl, p.b.mem, 100) })
	p.a.mem.holds(0, p.b.mem.Bytes()[100:164])
	return tested
}

// ofBoth posts the same lists on both sides of a connection concurrently: the two sides must not
// wait for each other.
func ofBoth(w *world, depth int, list func(s, peer *side) []verbs.SendWR) {
	const rounds = 20
	param := cm.ConnParam{InitiatorDepth: depth, ResponderResources: depth}
	p := w.pair(pairConfig{aParam: param, bParam: param})
	for range rounds {
		count := 0
		for _, s := range []*side{p.a, p.b} {
			peer := p.a
			if s == p.a {
				peer = p.b
			}
			wrs := list(s, peer)
			for i := range wrs {
				wrs[i].ID, wrs[i].Flags = uint64(i), wrs[i].Flags|verbs.SendSignaled
			}
			count = len(wrs)
			s.post(wrs...)
		}
		for i := range count {
			for _, s := range []*side{p.a, p.b} {
				wc := s.sent()
				require.Equal(w, verbs.WCSuccess.String(), wc.Status.String())
				require.EqualValues(w, i, wc.ID)
			}
		}
	}
	p.works()
}

func progressReadsOfBoth(w *world) outcome {
	for _, depth := range []int{1, 2, 4} {
		ofBoth(w, depth, func(s, peer *side) []verbs.SendWR {
			var wrs []verbs.SendWR
			for i := range 4 * depth {
				wrs = append(wrs, read(s.mem.sgl(2048+64*i, 64), peer.mem, 64*i))
			}
			return wrs
		})
	}
	return tested
}

func progressFencesOfBoth(w *world) outcome {
	ofBoth(w, 4, func(s, peer *side) []verbs.SendWR {
		var wrs []verbs.SendWR
		for i := range 8 {
			fenced := write(s.mem.sgl(2048, 64), peer.mem, 3072)
			fenced.Flags = verbs.SendFence
			wrs = append(wrs, read(s.mem.sgl(2048+64*i, 64), peer.mem, 64*i), fenced)
		}
		return wrs
	})
	return tested
}

func progressAtomics(w *world) outcome {
	p := w.pair(pairConfig{})
	add := at(verbs.SendWR{Opcode: verbs.WRAtomicFetchAndAdd, Add: 1}, p.a.mem, 0, p.b.mem, 0)
	if p.lacks(verbs.OpFetchAdd, add) {
		return noted
	}
	p.b.mem.put(0, 0)
	p.pipeline(progressCount, 64, verbs.WCFetchAdd, func(int) verbs.SendWR { return add })
	require.EqualValues(w, progressCount, p.b.mem.get(0))
	require.EqualValues(w, progressCount-1, p.a.mem.get(0))
	return tested
}

func progressWrites(w *world) outcome {
	p := w.pair(pairConfig{})
	const n = 50_000
	src, dst := w.a.alloc(n, 0), w.b.alloc(n, allRights)
	p.pipeline(100, 32, verbs.WCRDMAWrite, func(int) verbs.SendWR { return write(src.sgl(0, n), dst, 0) })
	p.settle()
	dst.holds(0, src.Bytes())
	return tested
}

// progressSlowReceiver: a program that polls its completions late does not delay its peer, as long
// as its receives are posted.
func progressSlowReceiver(w *world) outcome {
	p := w.pair(pairConfig{})
	const count = 60
	for i := range count {
		p.b.recv(uint64(i), p.b.mem.sge(0, 64))
	}
	for i := range count {
		p.a.post(verbs.SendWR{ID: uint64(i), Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGL: p.a.mem.sgl(0, 64)})
		require.EqualValues(w, i, p.a.ok(p.a.sent(), verbs.WCSend).ID)
	}
	p.a.ok(p.a.run(read(p.a.mem.sgl(100, 64), p.b.mem, 0)), verbs.WCRDMARead)
	p.a.mem.holds(100, p.a.mem.Bytes()[:64])
	time.Sleep(quietTime)
	for i := range count {
		require.EqualValues(w, i, p.b.ok(p.b.received(), verbs.WCRecv).ID)
	}
	return tested
}

// progressManyConnections works on several connections concurrently.
func progressManyConnections(w *world) outcome {
	w.Run("group", func(t *testing.T) {
		for i := range 6 {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				w := w.with(t)
				w.ln = w.listen(cm.Config{Context: w.b.ctx})
				p := w.pair(pairConfig{})
				for range 10 {
					p.works()
				}
			})
		}
	})
	return tested
}
