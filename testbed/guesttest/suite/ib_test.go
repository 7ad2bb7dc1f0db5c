// SPDX-License-Identifier: BSD-3-Clause

package suite

import (
	"context"
	"encoding/binary"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/compat/ibcompat"
	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/internal/regmem"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/verbstest"
)

// composedSubjects are those in which masked atomics stand between other requests. Everything else passes through.
var composedSubjects = []string{"Atomic", "List", "Order"}

func ib(t *testing.T, name string) *verbs.Device {
	t.Helper()
	dev, err := ibcompat.Wrap(kernel(t, name), ibcompat.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.CloseShared()) })
	return dev
}

// composedColumn is what is expected of ib:rxe0: what the matrix says of rxe0, and of a masked atomic what it says of the one
// without masks, or of usiw0 where there is none.
func composedColumn(m matrix, subjects []string) matrix {
	expected := make(matrix)
	for test, row := range m {
		if subject, _, _ := strings.Cut(test, "/"); !slices.Contains(subjects, subject) {
			continue
		}
		cell := row["rxe0"]
		if plain := strings.NewReplacer("masked-", "", "MASKED_", "").Replace(test); m[plain] != nil && plain != test {
			cell = m[plain]["rxe0"]
		} else if strings.Contains(test, "/Masked") {
			cell = row["usiw0"]
		}
		var lacks []string
		for l := range strings.SplitSeq(cell, ", ") {
			if !strings.HasPrefix(l, "masked-") {
				lacks = append(lacks, l)
			}
		}
		if len(lacks) == 0 {
			lacks = []string{pass}
		}
		expected[test] = map[string]string{"ib:rxe0": strings.Join(lacks, ", ")}
	}
	return expected
}

// TestComposed runs the suite on ib:rxe0, judged as InfiniBand. GOVERBS_SUBJECTS chooses other parts, and "all" chooses all.
func TestComposed(t *testing.T) {
	rdmatest.KernelDevice(t, "rxe0")
	subjects := chosenSubjects(composedSubjects)
	var mu sync.Mutex
	var results []verbstest.Result
	verbstest.RunSubjects(t, func(t *testing.T) verbstest.Fabric {
		f := fabrics["rxe0"](t)
		in := f.Active
		f.Active = ib(t, "rxe0")
		f.Passive, f.Others = f.Active, append(f.Others, in)
		f.Record = func(r verbstest.Result) {
			mu.Lock()
			defer mu.Unlock()
			results = append(results, r)
		}
		return f
	}, subjects...)
	expected := composedColumn(readMatrix(t, guestKernel()), subjects)
	require.NotEmpty(t, expected)
	for _, diff := range differences(expected, "ib:rxe0", found(results)) {
		t.Error(diff)
	}
}

// iwarpSubjects are those of what ib:siw0 has and siw0 has not, or has otherwise.
var iwarpSubjects = []string{"Immediate", "Order", "List"}

// TestOverIWARP runs the suite on ib:siw0, judged as InfiniBand. GOVERBS_SUBJECTS chooses other parts, and "all" chooses all.
func TestOverIWARP(t *testing.T) {
	rdmatest.KernelDevice(t, "siw0")
	subjects := chosenSubjects(iwarpSubjects)
	verbstest.RunSubjects(t, func(t *testing.T) verbstest.Fabric {
		f := fabrics["siw0"](t)
		in := f.Active
		f.Active = ib(t, "siw0")
		f.Passive, f.Others = f.Active, append(f.Others, in)
		return f
	}, subjects...)
}

// TestComposedContention: eight connections change one word by masked FetchAdds, each a field of its own and one that they have
// in common. Nothing is lost, and the original values of the common field are all different. The peer is a program that knows
// nothing of masked atomics.
func TestComposedContention(t *testing.T) {
	rdmatest.KernelDevice(t, "rxe0")
	const peers, rounds = 8, 50
	active, passive := ib(t, "rxe0"), kernel(t, "rxe0")
	actx, err := active.Open()
	require.NoError(t, err)
	defer func() { require.NoError(t, actx.CloseAll()) }()
	pctx, err := passive.Open()
	require.NoError(t, err)
	defer func() { require.NoError(t, pctx.CloseAll()) }()
	limit, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	ln, err := cm.Listen(limit, "10.78.0.1:0", cm.Config{Context: pctx})
	require.NoError(t, err)
	defer func() { require.NoError(t, ln.Close()) }()
	newQP := func(ctx *verbs.Context, pd *verbs.PD) (*verbs.CQ, *verbs.QP) {
		cq, err := ctx.CreateCQ(verbs.CQConfig{})
		require.NoError(t, err)
		qp, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq})
		require.NoError(t, err)
		return cq, qp
	}
	apd, err := actx.AllocPD()
	require.NoError(t, err)
	ppd, err := pctx.AllocPD()
	require.NoError(t, err)
	sinks, err := apd.AllocMR(4096, verbs.AccessLocalWrite)
	require.NoError(t, err)
	word, err := ppd.AllocMR(4096, verbs.AccessLocalWrite|verbs.AccessRemoteAtomic)
	require.NoError(t, err)

	var wg sync.WaitGroup
	olds := make([]map[uint64]bool, peers)
	for i := range peers {
		cq, qp := newQP(actx, apd)
		_, target := newQP(pctx, ppd)
		accepted := make(chan *cm.ID, 1)
		go func() {
			req, err := ln.Accept(limit)
			if err != nil {
				close(accepted)
				return
			}
			id, _ := req.Accept(limit, target, cm.ConnParam{})
			accepted <- id
		}()
		id, err := cm.Dial(limit, ln.Addr().String(), cm.Config{Context: actx}, func(*cm.ID) (*verbs.QP, error) { return qp, nil }, cm.ConnParam{})
		require.NoError(t, err)
		other := <-accepted
		require.NotNil(t, other)
		defer func() { require.NoError(t, id.Close()); require.NoError(t, other.Close()) }()
		sge, err := sinks.SGE(8*i, 8)
		require.NoError(t, err)
		wr := ext.MaskedFetchAddWR([]verbs.SGE{sge}, word.Addr(), word.RKey(), 1<<32|1<<(4*i), 1<<63|0x8888_8888)
		wr.Flags = verbs.SendSignaled
		olds[i] = make(map[uint64]bool)
		wg.Go(func() {
			var wcs [1]verbs.WC
			for range rounds {
				if n, err := qp.PostSend([]verbs.SendWR{wr}); n != 1 {
					t.Error(err)
					return
				}
				if n, err := cq.Wait(limit, wcs[:]); n != 1 || wcs[0].Status != verbs.WCSuccess {
					t.Error(wcs[0].Status, err)
					return
				}
				olds[i][wordAt(sinks.Bytes()[8*i:])>>32] = true
			}
		})
	}
	start := time.Now()
	wg.Wait()
	t.Logf("%d masked FetchAdds on one word by %d connections in %v", peers*rounds, peers, time.Since(start))
	want := uint64(peers * rounds << 32)
	all := make(map[uint64]bool)
	for i := range peers {
		want |= rounds % 16 << (4 * i)
		require.Len(t, olds[i], rounds)
		for v := range olds[i] {
			all[v] = true
		}
	}
	require.Equal(t, want, wordAt(word.Bytes()))
	require.Len(t, all, peers*rounds)
}

// wordAt is the word at the beginning of registered memory.
func wordAt(mem []byte) uint64 {
	var b [8]byte
	regmem.Fetch(b[:], mem[:8])
	return binary.NativeEndian.Uint64(b[:])
}
