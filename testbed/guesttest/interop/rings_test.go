// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package interop

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ibverbs/ksiw/ring/queue"
	"github.com/goverbs/goverbs/internal/ibverbs/uverbs"
	"github.com/goverbs/goverbs/internal/iwarp/ddp"
	"github.com/goverbs/goverbs/verbs"
)

// Rings that the test itself creates and fills, beside a provider that does so more carefully.

// The contract with the module (kernel/siw-7306/README.md).
const contract = 0x73060002

// madeQP is struct siw_uresp_create_qp.
type madeQP struct {
	Num, SendEntries, RecvEntries, Contract uint32
	SendKey, RecvKey                        uint64
}

// ownQP is an unconnected QP and its rings.
type ownQP struct {
	fd             int
	handle         uint32
	contract       uint32 // the module's response
	sends          *queue.SQ
	receives       *queue.RQ
	sent, received *queue.CQ
}

// descriptors returns the descriptors with which this process has devices open.
func descriptors(t *testing.T) (list []int) {
	t.Helper()
	names, err := filepath.Glob("/proc/self/fd/*")
	require.NoError(t, err)
	for _, name := range names {
		if to, _ := os.Readlink(name); strings.HasPrefix(to, "/dev/infiniband/uverbs") {
			fd, err := strconv.Atoi(filepath.Base(name))
			require.NoError(t, err)
			list = append(list, fd)
		}
	}
	return list
}

// ownRings creates a QP with rings of these sizes, whose command requests a contract.
func ownRings(t *testing.T, asked uint32, sends, receives uint32) *ownQP {
	t.Helper()
	before := descriptors(t)
	k := kernelSide(t, 4096)
	opened := slices.DeleteFunc(descriptors(t), func(fd int) bool { return slices.Contains(before, fd) })
	require.Len(t, opened, 1)
	pd, err := k.ctx.AllocPD()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, pd.Close()) })
	q := &ownQP{fd: opened[0]}
	mapped := func(key uint64, size int) []byte {
		mem, err := unix.Mmap(q.fd, int64(key), size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, unix.Munmap(mem)) })
		return mem
	}
	completions := func(entries uint32) (uint32, *queue.CQ) {
		handle, _, made, err := uverbs.CreateCQ[struct {
			ID, Entries uint32
			Key         uint64
		}](q.fd, uverbs.CQConfig{CQE: entries, Channel: -1})
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, uverbs.DestroyCQ(q.fd, handle)) })
		cq, err := queue.NewCQ(mapped(made.Key, queue.CQSize(made.Entries)), made.Entries)
		require.NoError(t, err)
		return handle, cq
	}
	cfg := uverbs.QPConfig{Type: uint8(verbs.QPTypeRC),
		Cap: uverbs.QPCap{MaxSendWR: sends, MaxRecvWR: receives, MaxSendSGE: 1, MaxRecvSGE: 1}}
	cfg.SendCQ, q.sent = completions(sends)
	cfg.RecvCQ, q.received = completions(receives)
	var made madeQP
	for cfg.PD = range uint32(64) { // handles are small numbers, and libibverbs does not expose a PD's
		q.handle, _, _, made, err = uverbs.CreateQP[madeQP](q.fd, cfg, [2]uint32{asked})
		if err == nil {
			break
		}
	}
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, uverbs.DestroyQP(q.fd, q.handle)) })
	q.contract = made.Contract
	bell := uverbs.NewDoorbell(q.fd, q.handle)
	t.Cleanup(bell.Close)
	q.sends, err = queue.NewSQ(mapped(made.SendKey, queue.SQSize(made.SendEntries)), made.SendEntries, bell.Ring)
	require.NoError(t, err)
	q.receives, err = queue.NewRQ(mapped(made.RecvKey, queue.RQSize(made.RecvEntries)), made.RecvEntries)
	require.NoError(t, err)
	return q
}

// TestModuleAsked: a QP supports RFC 7306 if the command that creates it requests the module's
// contract.
func TestModuleAsked(t *testing.T) {
	needModule(t)
	for asked, want := range map[uint32]uint32{contract: contract, 0: 0, contract - 1: 0, contract + 1: 0, 1: 0,
		0x0002_7306: 0} {
		q := ownRings(t, asked, 4, 4)
		require.Equal(t, want, q.contract, "%#x", asked)
		attr, err := uverbs.QueryQP(q.fd, q.handle, uint32(verbs.QPAttrAccessFlags))
		require.NoError(t, err)
		require.Equal(t, want != 0, verbs.AccessFlags(attr.AccessFlags)&verbs.AccessRemoteAtomic != 0, "%#x: %#x",
			asked, attr.AccessFlags)
	}
}

// TestModuleModifyFails: a failed modify changes nothing, including the access flags.
func TestModuleModifyFails(t *testing.T) {
	needModule(t)
	q := ownRings(t, contract, 4, 4)
	access := func() verbs.AccessFlags {
		attr, err := uverbs.QueryQP(q.fd, q.handle, uint32(verbs.QPAttrAccessFlags))
		require.NoError(t, err)
		return verbs.AccessFlags(attr.AccessFlags)
	}
	const none, read = verbs.AccessLocalWrite, verbs.AccessLocalWrite | verbs.AccessRemoteRead
	modify := func(state verbs.QPState, access verbs.AccessFlags, mask verbs.QPAttrMask) error {
		return uverbs.ModifyQP(q.fd, q.handle, uverbs.QPAttr{State: uint8(state), AccessFlags: uint32(access)},
			uint32(mask))
	}
	require.NoError(t, modify(0, none, verbs.QPAttrAccessFlags))
	require.Equal(t, none, access())
	// Only the connection manager moves a QP to RTS.
	require.ErrorIs(t, modify(verbs.QPStateRTS, read, verbs.QPAttrState|verbs.QPAttrAccessFlags), unix.EINVAL)
	require.Equal(t, none, access())
	require.NoError(t, modify(0, read, verbs.QPAttrAccessFlags))
	require.Equal(t, read, access())
}

// TestModuleFlushes: a doorbell in state ERROR completes everything in the rings, once and in
// order, regardless of the amount.
func TestModuleFlushes(t *testing.T) {
	needModule(t)
	const most = 1 << 15 // SIW_MAX_QP_WR
	for _, n := range []uint32{1, 31, 32, 33, most} {
		q := ownRings(t, contract, n, n)
		require.NoError(t, uverbs.ModifyQP(q.fd, q.handle, uverbs.QPAttr{State: uint8(verbs.QPStateErr)},
			uint32(verbs.QPAttrState)))
		for id := range uint64(n) {
			s, r := q.sends.Next(1), q.receives.Next()
			require.NotNil(t, s)
			require.NotNil(t, r)
			s.ID, r.ID = id, n64+id
			q.sends.Put(queue.OpSend, 0, 0)
			q.receives.Put(0)
		}
		require.NoError(t, q.sends.Tell())
		for what, c := range map[uint64]*queue.CQ{0: q.sent, n64: q.received} {
			var wc queue.Completion
			for id := range uint64(n) {
				require.True(t, c.Take(&wc), "%d of %d", id, n)
				require.Equal(t, what+id, wc.ID)
				require.Equal(t, queue.StatusFlushed, wc.Status)
			}
			require.False(t, c.Take(&wc))
		}
		require.NotNil(t, q.sends.Next(int(n)), "the ring is the program's again")
	}
}

// n64 distinguishes receives from sends.
const n64 = 1 << 32

// TestModuleModifyWhileSending: the transmit thread cannot access a QP while it is being modified,
// and checks it afterwards. The peer reads in small pieces, so the thread is woken repeatedly.
func TestModuleModifyWhileSending(t *testing.T) {
	needModule(t)
	const size = 16 << 20
	before := descriptors(t)
	r, k := serving(t, size, 4, 1)
	opened := slices.DeleteFunc(descriptors(t), func(fd int) bool { return slices.Contains(before, fd) })
	var modifies []func() error
	for _, fd := range opened {
		for handle := range uint32(64) {
			if attr, err := uverbs.QueryQP(fd, handle, uint32(verbs.QPAttrState)); err == nil &&
				verbs.QPState(attr.State) == verbs.QPStateRTS {
				modifies = append(modifies, func() error {
					return uverbs.ModifyQP(fd, handle, uverbs.QPAttr{AccessFlags: uint32(rights)},
						uint32(verbs.QPAttrAccessFlags))
				})
			}
		}
	}
	require.Len(t, modifies, 1)
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
				if err := modifies[0](); err != nil {
					stopped <- err
					return
				}
			}
		}
	}()
	r.send(k.reading(1, 0, size))
	for got := 0; got < size; {
		got += len(r.read()) - ddp.TaggedLen
	}
	close(stop)
	require.NoError(t, result(t, "modify", stopped))
}
