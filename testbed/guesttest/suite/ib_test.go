// SPDX-License-Identifier: BSD-3-Clause

package suite

import (
	"cmp"
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
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
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbstest"
)

// composedSubjects are those in which masked atomics are placed between other requests. Everything
// else passes through.
var composedSubjects = []string{"Atomic", "List", "Order"}

func ib(t *testing.T, name string) *verbs.Device {
	t.Helper()
	return wrap(t, kernel(t, name))
}

func wrap(t *testing.T, in *verbs.Device) *verbs.Device {
	t.Helper()
	dev, err := ibcompat.Wrap(in, ibcompat.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.CloseShared()) })
	return dev
}

// composedColumn returns what is expected of ib:rxe0: what the matrix lists for rxe0, and for a
// masked atomic what it lists for the unmasked one, or for usiw0 where there is none.
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

// TestComposed runs the suite on ib:rxe0, judged as InfiniBand. GOVERBS_SUBJECTS selects other
// parts, and "all" selects all.
func TestComposed(t *testing.T) {
	rdmatest.KernelDevice(t, "rxe0")
	subjects := chosenSubjects(composedSubjects)
	column := columnOf(t, func(t *testing.T) verbstest.Fabric {
		f := fabrics["rxe0"](t)
		in := f.Active
		f.Active = ib(t, "rxe0")
		f.Passive, f.Others = f.Active, append(f.Others, in)
		return f
	}, subjects...)
	expected := composedColumn(readMatrix(t, guestKernel()), subjects)
	require.NotEmpty(t, expected)
	for _, diff := range differences(expected, "ib:rxe0", column) {
		t.Error(diff)
	}
}

// ibSubjects are the parts of the suite that run for every change: what the device has and the
// underlying one lacks or does differently. TestComposed covers ib:rxe0.
var ibSubjects = map[string][]string{
	"ib:usiw0":       {"Immediate", "Order", "List"},
	"ib:usiw0-plain": {"Immediate", "Atomic", "Order", "List"},
	"ib:siw0":        {"Immediate", "Order", "List"},
}

// ibFabric returns the fabric of a column of the matrix of ib: devices.
func ibFabric(t *testing.T, column string) verbstest.Fabric {
	active, passive, _ := strings.Cut(column, "+")
	in := map[string]*verbs.Device{}
	out := map[string]*verbs.Device{}
	for _, name := range []string{active, cmp.Or(passive, active)} {
		if out[name] != nil {
			continue
		}
		switch below := strings.TrimPrefix(name, "ib:"); below {
		case "rxe0", "siw0":
			in[name] = kernel(t, below)
		default:
			cfg := usiw.Config{Name: below}
			if below == "usiw0-plain" {
				cfg.Without = ext.Operations
			}
			nic, err := usiw.New(cfg)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, nic.Close()) })
			in[name] = nic.Device()
		}
		out[name] = wrap(t, in[name])
	}
	passive = cmp.Or(passive, active)
	at := ibAddresses[passive]
	f := fabric(out[active], at[0]+":0", at[1], in[passive], userSpace(t, "usiw1"))
	f.Passive = out[passive]
	return f
}

// ibAddresses lists two addresses of each device.
var ibAddresses = map[string][2]string{"ib:usiw0": {"127.0.0.1", "127.0.0.2"},
	"ib:usiw0-plain": {"127.0.0.1", "127.0.0.2"}, "ib:rxe0": {"10.78.0.1", "fd00:78::1"},
	"ib:siw0": {"10.77.0.1", "fd00:77::1"}}

// TestIB runs the suite on ib: devices, judged as InfiniBand, and compares the results with the
// matrix of the kernel. GOVERBS_SUBJECTS selects other parts, and "all" selects all. On a machine
// without kernel devices it runs on the user-space RNIC.
func TestIB(t *testing.T) {
	s := wrapped(guestKernel())
	expected := s.read(t)
	columns := make(map[string]map[string]string)
	cells := 0
	for _, column := range ibColumns {
		subjects := chosenSubjects(ibSubjects[column])
		if subjects == nil {
			continue
		}
		t.Run(column, func(t *testing.T) {
			for _, device := range []string{"rxe0", "siw0"} {
				if strings.HasSuffix(column, ":"+device) {
					rdmatest.KernelDevice(t, device)
				}
			}
			columns[column] = columnOf(t, func(t *testing.T) verbstest.Fabric { return ibFabric(t, column) },
				subjects...)
			some := expected.of(subjects)
			cells += len(some)
			for _, diff := range differences(some, column, columns[column]) {
				t.Error(diff)
			}
		})
	}
	t.Logf("compared %d of %d cells of %s", cells, len(ibColumns)*len(expected), filepath.Base(s.file))
	if file := os.Getenv("GOVERBS_IB_MATRIX"); file != "" {
		s.write(t, file, expected, columns)
	}
}

// of returns the part of the matrix for some subjects.
func (m matrix) of(subjects []string) matrix {
	some := make(matrix)
	for test, row := range m {
		if subject, _, _ := strings.Cut(test, "/"); slices.Contains(subjects, subject) {
			some[test] = row
		}
	}
	return some
}

const semanticsFile = "../../../docs/semantics.md"

// TestIBReasons: for everything that an ib: device lacks with a kernel, and for nothing else,
// docs/semantics.md gives the reason.
func TestIBReasons(t *testing.T) {
	requireExplained(t, semanticsFile, readSection(t, semanticsFile, "## What the conformance suite finds missing", 5),
		wrapped)
}

// TestComposedContention: eight connections change one word with masked FetchAdds, each a separate
// field and a common one. Nothing is lost, and the original values of the common field are all
// different. The peer is a program that does not support masked atomics.
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
		id, err := cm.Resolve(limit, ln.Addr().String(), cm.Config{Context: actx})
		require.NoError(t, err)
		require.NoError(t, id.Connect(limit, qp, cm.ConnParam{}))
		other := <-accepted
		require.NotNil(t, other)
		defer func() { require.NoError(t, id.Close()); require.NoError(t, other.Close()) }()
		sge, err := sinks.SGE(8*i, 8)
		require.NoError(t, err)
		wr := ext.MaskedFetchAddWR(word.Remote(), 1<<32|1<<(4*i), 1<<63|0x8888_8888, sge)
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

// wordAt returns the word at the start of registered memory.
func wordAt(mem []byte) uint64 {
	var b [8]byte
	regmem.Fetch(b[:], mem[:8])
	return binary.NativeEndian.Uint64(b[:])
}
