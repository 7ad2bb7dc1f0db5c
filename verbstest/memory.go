// SPDX-License-Identifier: BSD-3-Clause

package verbstest

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

// mem is a region with helpers for tests.
type mem struct {
	*verbs.MR
	t *testing.T
}

// alloc registers a region outside the Go heap, filled with a pattern.
func (h *host) alloc(n int, access verbs.AccessFlags) *mem {
	h.Helper()
	return h.allocIn(h.pd, n, access)
}

func (h *host) allocIn(pd *verbs.PD, n int, access verbs.AccessFlags) *mem {
	h.Helper()
	mr, err := pd.AllocMR(n, access)
	return h.adopt(mr, err)
}

// register registers the Go memory buf.
func (h *host) register(buf []byte, access verbs.AccessFlags) *mem {
	h.Helper()
	mr, err := h.pd.RegMR(buf, access)
	return h.adopt(mr, err)
}

// memoryFor returns n bytes of memory that can be registered at iova. Kernel drivers map whole
// pages, so both must have the same offset within a page.
func (h *host) memoryFor(iova uint64, n int) []byte {
	h.Helper()
	page := os.Getpagesize()
	at := int(iova % uint64(page))
	return h.alloc(at+n+page, 0).Bytes()[at : at+n : at+n]
}

// noIova reports whether the device can register memory only at its own address, and requires that
// it then refuses others.
func (w *world) noIova() bool {
	w.Helper()
	const iova = 1 << 32
	mr, err := w.b.pd.RegMRIova(w.b.memoryFor(iova, 64), iova, allRights)
	if w.unless("iova", err) {
		return true
	}
	require.NoError(w, mr.Close())
	return false
}

func (h *host) registerIova(buf []byte, iova uint64, access verbs.AccessFlags) *mem {
	h.Helper()
	mr, err := h.pd.RegMRIova(buf, iova, access)
	return h.adopt(mr, err)
}

func (h *host) adopt(mr *verbs.MR, err error) *mem {
	h.Helper()
	require.NoError(h, err)
	h.Cleanup(func() { require.NoError(h, mr.Close()) })
	m := &mem{MR: mr, t: h.T}
	m.fill(h.seed)
	return m
}

// closesAfter closes a window before the region at the end of the test, as kernel drivers require.
func (m *mem) closesAfter(mw *verbs.MW) {
	m.t.Cleanup(func() { require.NoError(m.t, mw.Close()) })
}

// noise contains the bytes of all patterns. It is long enough for the largest region of the suite.
var noise = sync.OnceValue(func() []byte {
	const size = 17 << 20
	p := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{73, 6}).Read(p)
	return p
})

// pattern returns n bytes that depend on seed.
func pattern(seed byte, n int) []byte { return noise()[int(seed) : int(seed)+n : int(seed)+n] }

// fill writes the pattern of seed over the whole region.
func (m *mem) fill(seed byte) { copy(m.Bytes(), pattern(seed, m.Len())) }

// sge returns an SGE for n bytes at off.
func (m *mem) sge(off, n int) verbs.SGE {
	m.t.Helper()
	s, err := m.SGE(off, n)
	require.NoError(m.t, err)
	return s
}

// sgl returns a list with one SGE, for n bytes at off.
func (m *mem) sgl(off, n int) []verbs.SGE {
	m.t.Helper()
	return []verbs.SGE{m.sge(off, n)}
}

// at returns the address of the byte at off.
func (m *mem) at(off int) uint64 { return m.Addr() + uint64(off) }

// put stores a number in the CPU's byte order.
func (m *mem) put(off int, v uint64) { binary.NativeEndian.PutUint64(m.Bytes()[off:], v) }

// get loads a number in the CPU's byte order.
func (m *mem) get(off int) uint64 { return binary.NativeEndian.Uint64(m.Bytes()[off:]) }

// holds requires that the bytes at off equal want.
func (m *mem) holds(off int, want []byte) {
	m.t.Helper()
	requireSame(m.t, want, m.Bytes()[off:off+len(want)])
}

// keeps saves the contents of the region and returns a function that requires that they are
// unchanged.
func (m *mem) keeps() func() {
	was := slices.Clone(m.Bytes())
	return func() {
		m.t.Helper()
		requireSame(m.t, was, m.Bytes())
	}
}

// keepsBut is like keeps but ignores n bytes at off.
func (m *mem) keepsBut(off, n int) func() {
	was := slices.Clone(m.Bytes())
	return func() {
		m.t.Helper()
		requireSame(m.t, was[:off], m.Bytes()[:off])
		requireSame(m.t, was[off+n:], m.Bytes()[off+n:])
	}
}

// requireSame compares memory and reports the first difference only.
func requireSame(t *testing.T, want, got []byte) {
	t.Helper()
	if bytes.Equal(want, got) {
		return
	}
	require.Len(t, got, len(want))
	i := 0
	for want[i] == got[i] {
		i++
	}
	end := min(i+16, len(want))
	require.Failf(t, "memory differs", "at byte %d of %d: want %x, got %x", i, len(want), want[i:end], got[i:end])
}
