// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package interop

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/internal/ibverbs/uverbs"
	"github.com/goverbs/goverbs/verbs"
)

// A program that writes arbitrary data to the rings that it shares with the kernel. It must harm
// only itself: neither the kernel nor memory that it has no rights to.

const (
	scribbleRounds = 16              // minimum number of processes
	scribbleLinks  = 8               // connections of each
	scribbleLimit  = 5 * time.Minute // after this, a process is considered hung
)

// TestModuleScribbled: processes scribble over the rings of their connections, ring the doorbells,
// and exit without closing anything. A link of this process continues, and its memory, which the
// kernel could reach through the others' wild addresses, is unchanged.
func TestModuleScribbled(t *testing.T) {
	needModule(t)
	unharmed(t)
	bystander := here.link(t, linkConfig{memory: loadMemory})
	secret := bystander.kernel.region(bystander.kernel.pd, 1<<16, allRights)
	fill(secret.Bytes(), 3)
	want := append([]byte(nil), secret.Bytes()...)
	scribbled := 0
	round := 0
	for end := time.Now().Add(harmTime(t)); round < scribbleRounds || time.Now().Before(end); round++ {
		seed := rand.Uint64()
		t.Logf("round %d: seed %d", round, seed)
		p := child(t, "TestModuleScribbledChild", fmt.Sprintf("%d %d %d", seed, secret.Addr(), secret.RKey()))
		require.True(t, p.EndsWithin(scribbleLimit), "the process that scribbles hangs")
		scribbled += strings.Count(p.Out.String(), "scribbled\n")
		require.Equal(t, string(want), string(secret.Bytes()), "memory of another process has changed")
		bystander.user.ok(bystander.user.run(
			bystander.kernel.at(verbs.SendWR{Opcode: verbs.WRRDMARead, SGL: bystander.user.sgl(0, 1000)}, 0)),
			verbs.WCRDMARead)
	}
	t.Logf("%d connections of %d processes were scribbled over", scribbled, round)
	require.GreaterOrEqual(t, scribbled, round, "the processes ended before they did their work")
}

// TestModuleScribbledChild scribbles. How the provider in this process reacts to its ruined rings
// is irrelevant.
func TestModuleScribbledChild(t *testing.T) {
	arg := strings.Fields(childArg(t))
	require.Len(t, arg, 3)
	number := func(i int) uint64 {
		n, err := strconv.ParseUint(arg[i], 10, 64)
		require.NoError(t, err)
		return n
	}
	s := &scribbler{Rand: rand.New(rand.NewPCG(number(0), 0)), bad: remote{number(1), uint32(number(2))}}
	for n := range scribbleLinks {
		l := here.link(t, linkConfig{memory: loadMemory, kernelActive: n%2 == 0})
		s.own, s.peer = l.kernel.mem, l.user.mem
		s.scribble(t, l)
	}
	os.Exit(0) // The provider, which owns these rings, could not close them.
}

// scribbler generates the contents of ring entries.
type scribbler struct {
	*rand.Rand
	bad       remote // memory of another process
	own, peer *verbs.MR
}

// scribble fills all rings of the process, then some of them repeatedly, even while the kernel
// reads them, and makes the peer send.
func (s *scribbler) scribble(t *testing.T, l *link) {
	rings, bells := rings(t), doorbells(t)
	require.GreaterOrEqual(t, len(rings), 4, "rings of send and receive queue and two completion queues")
	require.NotEmpty(t, bells)
	stop, stopped := make(chan struct{}), make(chan struct{})
	other := &scribbler{Rand: rand.New(rand.NewPCG(s.Uint64(), 1)), bad: s.bad, own: s.own, peer: s.peer}
	go func() { // concurrently with the kernel
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				ring := rings[other.IntN(len(rings))]
				other.entry(ring[other.IntN(len(ring)/128)*120:][:120])
				time.Sleep(time.Duration(other.IntN(100)) * time.Microsecond)
			}
		}
	}()
	u := l.user
	for n := range 12 {
		for _, ring := range rings {
			if n == 0 || s.IntN(4) == 0 {
				s.fill(ring)
			}
		}
		for _, bell := range bells {
			_ = bell.Ring() // some numbers are not QPs, and some QPs are not connected
		}
		if n == 0 {
			fmt.Fprintln(os.Stderr, "scribbled")
		}
		for _, wr := range []verbs.SendWR{
			{Opcode: verbs.WRSend, SGL: u.sgl(0, 64)},
			{Opcode: verbs.WRRDMARead, SGL: u.sgl(0, 4096), RemoteAddr: s.own.Addr(), RKey: s.own.RKey()},
			ext.ImmDataWR(1),
		} {
			_, _ = u.qp.PostSend([]verbs.SendWR{wr}) // until the connection ends
		}
		time.Sleep(time.Duration(s.IntN(5)) * time.Millisecond)
	}
	close(stop)
	<-stopped
	for _, bell := range bells {
		bell.Close()
	}
}

// fill writes entries of one kind, or garbage, to a whole ring. It need not match the ring's type.
func (s *scribbler) fill(ring []byte) {
	switch size := []int{120, 120, 112, 32, 8}[s.IntN(5)]; size {
	case 120, 112:
		for ; len(ring) >= size; ring = ring[size:] {
			s.entry(ring[:size])
		}
	default:
		for ; len(ring) >= size; ring = ring[size:] {
			binary.NativeEndian.PutUint64(ring, s.Uint64()>>s.IntN(64))
		}
	}
}

// pick returns one of the values.
func pick[T any](r *rand.Rand, values ...T) T { return values[r.IntN(len(values))] }

// entry writes a request (24 bytes and elements), or a receive (16 bytes and elements) if there is
// less room, usually a plausible one.
func (s *scribbler) entry(e []byte) {
	binary.NativeEndian.PutUint64(e, s.Uint64())
	flags := uint16(1) | pick[uint16](s.Rand, 0, 0, 0, 1<<1, 1<<2, 1<<4, uint16(s.Uint32()))
	elements := pick[uint8](s.Rand, 0, 1, 1, 1, 1, 2, 6, 7, 255)
	opcode := pick(s.Rand, 0, 1, 3, 4, 5, 6, 7, uint8(s.IntN(16)), uint8(s.Uint32()))
	sges := e[16:]
	if len(e) >= 120 {
		binary.NativeEndian.PutUint32(e[12:],
			pick(s.Rand, s.peer.RKey(), s.peer.RKey(), s.peer.RKey(), s.bad.rkey, s.own.RKey(), s.Uint32()))
		binary.NativeEndian.PutUint64(e[16:],
			pick(s.Rand, s.peer.Addr(), s.peer.Addr()+8, s.peer.Addr()+uint64(s.IntN(1<<16)), s.bad.addr, ^uint64(7),
				s.Uint64()))
		sges = e[24:]
	}
	for ; len(sges) >= 16; sges = sges[16:] {
		binary.NativeEndian.PutUint64(sges,
			pick(s.Rand, s.own.Addr(), s.own.Addr(), s.own.Addr()+uint64(s.IntN(1<<16)), s.bad.addr, 0, ^uint64(7),
				s.Uint64()))
		binary.NativeEndian.PutUint32(sges[8:],
			pick(s.Rand, 8, 8, 8, 0, 64, 100, 4096, 1<<15, 1<<17+1, 1<<31-1, 1<<31, 1<<32-1, s.Uint32()))
		binary.NativeEndian.PutUint32(sges[12:],
			pick(s.Rand, s.own.LKey(), s.own.LKey(), s.own.LKey(), s.own.LKey(), s.bad.rkey, s.own.LKey()^1, s.Uint32(),
				0x7306))
	}
	binary.NativeEndian.PutUint16(e[8:], flags) // last: this makes the complete entry valid
	e[10], e[11] = elements, opcode
}

// rings returns the memory that this process shares with the kernel's RDMA devices.
func rings(t *testing.T) (list [][]byte) {
	t.Helper()
	f, err := os.Open("/proc/self/maps")
	require.NoError(t, err)
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var from, to uint64
		if !strings.Contains(lines.Text(), "/dev/infiniband/uverbs") {
			continue
		}
		_, err := fmt.Sscanf(lines.Text(), "%x-%x", &from, &to)
		require.NoError(t, err)
		list = append(list, memoryAt(uintptr(from), int(to-from)))
	}
	return list
}

// doorbells returns the doorbells of this process's QPs. Handles are small numbers, so it tries
// more than exist.
func doorbells(t *testing.T) (list []*uverbs.Doorbell) {
	t.Helper()
	for _, fd := range descriptors(t) {
		for handle := range uint32(16) {
			list = append(list, uverbs.NewDoorbell(fd, handle))
		}
	}
	return list
}
