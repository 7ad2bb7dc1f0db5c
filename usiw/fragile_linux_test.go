// SPDX-License-Identifier: BSD-3-Clause

package usiw_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/usiw/usiwtest"
	"github.com/goverbs/goverbs/verbs"
)

// fragileSize is the length of the regions in these tests. Their second half disappears.
const fragileSize = 256 << 10

// fragile registers memory, and returns a function that makes its second half disappear.
type fragile func(t *testing.T, pd *verbs.PD) (mr *verbs.MR, vanish func())

// shortened is a mapped file that is truncated: SIGBUS.
func shortened(t *testing.T, pd *verbs.PD) (*verbs.MR, func()) {
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	require.NoError(t, f.Truncate(fragileSize))
	mem, err := unix.Mmap(int(f.Fd()), 0, fragileSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(mem)) })
	return register(t, pd, mem), func() { require.NoError(t, f.Truncate(fragileSize/2)) }
}

// protected is memory that becomes inaccessible: SIGSEGV, as if it were unmapped.
func protected(t *testing.T, pd *verbs.PD) (*verbs.MR, func()) {
	mem, err := unix.Mmap(-1, 0, fragileSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(mem)) })
	return register(t, pd, mem), func() { require.NoError(t, unix.Mprotect(mem[fragileSize/2:], unix.PROT_NONE)) }
}

func register(t *testing.T, pd *verbs.PD, mem []byte) *verbs.MR {
	mr, err := pd.RegMR(mem, usiwtest.AllAccess)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, mr.Close()) })
	return mr
}

// TestGuardMemory uses memory of a vanished region in every way. The request fails, the region is
// invalidated, and nothing else happens: the process and its other connections continue.
func TestGuardMemory(t *testing.T) {
	sge := func(mr *verbs.MR, off, n int) []verbs.SGE {
		s, err := mr.SGE(off, n)
		require.NoError(t, err)
		return []verbs.SGE{s}
	}
	const gone = fragileSize / 2
	for name, c := range map[string]struct {
		crc    usiw.Policy
		peer   bool // the memory belongs to the peer: the request names it
		op     verbs.WROpcode
		size   int
		before int // bytes still present before those that are not
		status verbs.WCStatus
	}{
		"peer writes":      {peer: true, op: verbs.WRRDMAWrite, size: 64},
		"peer writes over": {peer: true, op: verbs.WRRDMAWrite, size: 8192, before: 4096},
		"peer reads":       {peer: true, op: verbs.WRRDMARead, size: 64, status: verbs.WCRemAccessErr},
		"peer reads over": {peer: true, op: verbs.WRRDMARead, size: 64 << 10, before: 60 << 10,
			status: verbs.WCRemAccessErr},
		"peer adds": {peer: true, op: verbs.WRAtomicFetchAndAdd, size: 8,
			status: verbs.WCRemAccessErr},
		"peer swaps":          {peer: true, op: verbs.WRAtomicCmpAndSwp, size: 8, status: verbs.WCRemAccessErr},
		"sends":               {op: verbs.WRSend, size: 64, status: verbs.WCLocProtErr},
		"sends much with CRC": {crc: usiw.On, op: verbs.WRSend, size: 32 << 10, status: verbs.WCLocProtErr},
		"sends over with CRC": {crc: usiw.On, op: verbs.WRSend, size: 64 << 10, before: 32 << 10,
			status: verbs.WCLocProtErr},
		"sends much without CRC": {crc: usiw.Off, op: verbs.WRSend, size: 32 << 10, status: verbs.WCWRFlushErr}, // the system call fails
		"reads into it":          {op: verbs.WRRDMARead, size: 64, status: verbs.WCLocProtErr},
		"reads into it over": {op: verbs.WRRDMARead, size: 64 << 10, before: 60 << 10,
			status: verbs.WCLocProtErr},
		"adds, with the result in it": {op: verbs.WRAtomicFetchAndAdd, size: 8, status: verbs.WCLocProtErr},
	} {
		for kind, of := range map[string]fragile{"shortened": shortened, "protected": protected} {
			t.Run(kind+"/"+name, func(t *testing.T) {
				cfg := usiw.Config{GuardMemory: true, CRC: c.crc}
				p := usiwtest.Connect(t, usiwtest.PairConfig{TCP: "127.0.0.1:0", A: cfg, B: cfg, Mem: fragileSize})
				end := p.A
				if c.peer {
					end = p.B
				}
				mr, vanish := of(t, end.PD)
				vanish()
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				wr := verbs.SendWR{Opcode: c.op, SGL: sge(p.A.MR, 0, c.size), RemoteAddr: p.B.MR.Addr(),
					RKey: p.B.MR.RKey()}
				if c.peer {
					wr.RemoteAddr, wr.RKey = mr.Addr()+uint64(gone-c.before), mr.RKey()
				} else {
					wr.SGL = sge(mr, gone-c.before, c.size)
				}
				_, err := p.B.QP.PostRecv([]verbs.RecvWR{{SGL: sge(p.B.MR, 0, fragileSize/2)}})
				require.NoError(t, err)
				wc, err := p.A.Do(ctx, wr)
				require.NoError(t, err)
				require.Equal(t, c.status, wc.Status)
				for _, id := range []interface{ Done() <-chan struct{} }{p.A.ID, p.B.ID} {
					select {
					case <-id.Done():
					case <-ctx.Done():
						require.NoError(t, ctx.Err(), "the connection goes on")
					}
				}
				p = usiwtest.Connect(t, usiwtest.PairConfig{TCP: "127.0.0.1:0", A: cfg, B: cfg})
				wc, err = p.A.Do(ctx, verbs.SendWR{Opcode: verbs.WRRDMARead, SGL: sge(p.A.MR, 0, 8),
					RemoteAddr: p.B.MR.Addr(), RKey: p.B.MR.RKey()})
				require.NoError(t, err)
				require.NoError(t, wc.Err())
			})
		}
	}
}

// TestGuardMemoryReceives: a receive whose memory is gone completes with a local error.
func TestGuardMemoryReceives(t *testing.T) {
	cfg := usiw.Config{GuardMemory: true}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	p := usiwtest.Connect(t, usiwtest.PairConfig{TCP: "127.0.0.1:0", A: cfg, B: cfg})
	mr, vanish := shortened(t, p.B.PD)
	vanish()
	s, err := mr.SGE(fragileSize-64, 64)
	require.NoError(t, err)
	_, err = p.B.QP.PostRecv([]verbs.RecvWR{{SGL: []verbs.SGE{s}}})
	require.NoError(t, err)
	s, err = p.A.MR.SGE(0, 64)
	require.NoError(t, err)
	_, err = p.A.Do(ctx, verbs.SendWR{Opcode: verbs.WRSend, SGL: []verbs.SGE{s}})
	require.NoError(t, err)
	wc, err := usiwtest.Next(ctx, p.B.RecvCQ)
	require.NoError(t, err)
	require.Equal(t, verbs.WCLocProtErr, wc.Status)
}
