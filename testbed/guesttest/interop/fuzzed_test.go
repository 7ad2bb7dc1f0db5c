// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package interop

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/internal/iwarp/ddp"
	"github.com/goverbs/goverbs/internal/iwarp/mpa"
	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/verbs"
)

// A peer that sends random messages: most of them valid, some wrong in any place.

// harmTime is how long a test that tries to harm the kernel runs.
func harmTime(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("GOVERBS_TEST_HARM")
	if text == "" {
		return 10 * time.Second
	}
	d, err := time.ParseDuration(text)
	require.NoError(t, err)
	return d
}

// secret is the contents of memory that the peer must not get.
const secret = "nobody may read."

// prey is memory that the peer knows about.
type prey struct {
	name            string
	mr              *verbs.MR
	readable, fixed bool // the peer may read it; must not change it
}

// fuzzer is such a peer on one connection. Its reader runs concurrently.
type fuzzer struct {
	*rand.Rand
	r    *raw
	prey []prey
	msn  [4]uint32 // of the next message to each queue
	care int       // one message in this many is wrong

	mu      sync.Mutex
	reads   []rdmap.ReadRequest // sent by the kernel and not answered
	atomics []uint32            // likewise, their identifiers
	leaked  bool
	got     map[rdmap.Opcode]int
}

// TestModuleFuzzed: whatever such a peer sends, the kernel survives, every call returns, memory
// without access rights is neither read nor changed, and another connection continues.
func TestModuleFuzzed(t *testing.T) {
	needModule(t)
	unharmed(t)
	bystander := here.link(t, linkConfig{memory: loadMemory})
	sent, got := 0, map[rdmap.Opcode]int{}
	rounds := 0
	for end := time.Now().Add(harmTime(t)); time.Now().Before(end) && !t.Failed(); rounds++ {
		seed := rand.Uint64()
		t.Run(fmt.Sprintf("%d/%#x", rounds, seed), func(t *testing.T) {
			f := &fuzzer{Rand: rand.New(rand.NewPCG(seed, 0)), msn: [4]uint32{1, 1, 1, 1}, got: got}
			f.care = pick(f.Rand, 6, 50, 500)
			sent += f.round(t)
		})
		if rounds%16 == 0 {
			bystander.user.ok(bystander.user.run(
				bystander.kernel.at(verbs.SendWR{Opcode: verbs.WRRDMARead, SGL: bystander.user.sgl(0, 1000)}, 0)),
				verbs.WCRDMARead)
		}
	}
	t.Logf("%d connections, %d messages; the kernel has sent %v", rounds, sent, got)
	for _, op := range []rdmap.Opcode{rdmap.OpTerminate, rdmap.OpReadResponse, rdmap.OpAtomicResponse,
		rdmap.OpReadRequest, rdmap.OpAtomicRequest} {
		require.Positive(t, got[op], "the kernel has sent no %v: the messages are all refused", op)
	}
}

// round runs one connection. It returns how many messages were sent.
func (f *fuzzer) round(t *testing.T) (sent int) {
	var k *side
	param := depth(1+f.IntN(32), 1+f.IntN(4))
	switch f.IntN(8) {
	case 0:
		f.startup(t)
		return 0
	case 1, 2, 3:
		var connected <-chan error
		f.r, k, _, connected = here.fromKernel(t, param)
		f.r.write(reply(flagC|flagS, mpa.Rev2, word(16, 16)...))
		f.r.crc = true
		f.r.opened(connected)
	default:
		f.r, k = here.toKernel(t, param, nil)
	}
	guarded := make([]byte, 3*4096)
	for i := range guarded {
		guarded[i] = guard
	}
	all, err := k.pd.RegMR(guarded[4000:][:4200], allRights) // its bounds are in the middle of pages
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, all.Close()) })
	f.prey = []prey{
		{"all rights", all, true, false},
		{"to read", k.region(k.pd, 1000, verbs.AccessLocalWrite|verbs.AccessRemoteRead), true, true},
		{"to write", k.region(k.pd, 5000, verbs.AccessLocalWrite|verbs.AccessRemoteWrite), false, false},
		{"atomics", k.region(k.pd, 64, verbs.AccessLocalWrite|verbs.AccessRemoteAtomic), false, false},
		{"no rights", k.region(k.pd, 5000, verbs.AccessLocalWrite), false, true},
		{"another PD", k.region(k.foreignPD(), 5000, allRights), false, true},
	}
	closed := k.region(k.pd, 5000, allRights)
	f.prey = append(f.prey, prey{"closed", closed, false, true})
	before := make([][]byte, len(f.prey))
	for i, p := range f.prey {
		if b := p.mr.Bytes(); p.readable {
			fill(b, uint64(i))
		} else {
			copy(b, strings.Repeat(secret, len(b)/len(secret)+1))
		}
		before[i] = bytes.Clone(p.mr.Bytes())
	}
	watched := f.prey
	addr, key := closed.Addr(), closed.RKey()
	require.NoError(t, closed.Close())

	for n := f.IntN(60); n > 0; n-- {
		k.recv(uint64(n), k.sgl(f.IntN(4096), 1+f.IntN(200)))
	}

	read := make(chan struct{})
	go func() {
		defer close(read)
		f.read()
	}()
	for n := 1 + f.IntN(100); n > 0; n-- {
		if f.IntN(4) == 0 {
			f.program(k)
			time.Sleep(time.Duration(f.IntN(2000)) * time.Microsecond) // responses arrive
		}
		if !f.write(f.mutate(f.message(addr, key))) {
			break
		}
		sent++
	}
	switch f.IntN(4) {
	case 0:
		_ = f.r.conn.(*net.TCPConn).SetLinger(0) // RST
	case 1:
		_ = f.r.conn.(*net.TCPConn).CloseWrite()
		select {
		case <-read:
		case <-time.After(100 * time.Millisecond): // it waits for the rest of a message
		}
	case 2:
		_ = k.id.Disconnect()
	default:
		time.Sleep(time.Duration(f.IntN(3)) * time.Millisecond)
	}
	f.r.conn.Close()
	<-read
	require.Error(t, k.ended())
	require.False(t, f.leaked, "the peer has got memory that it may not read")
	for i, p := range watched[:len(watched)-1] {
		require.True(t, !p.fixed || bytes.Equal(before[i], p.mr.Bytes()), "memory has changed: %s", p.name)
	}
	for i, b := range guarded {
		require.True(t, b == guard || i >= 4000 && i < 8200, "byte %d before or behind a region has changed", i-4000)
	}
	return sent
}

// startup sends an invalid startup frame, to a listener or as a reply.
func (f *fuzzer) startup(t *testing.T) {
	wrong := func(b []byte) []byte {
		for range 1 + f.IntN(3) {
			b[f.IntN(len(b))] ^= 1 << f.IntN(8)
		}
		if f.IntN(2) == 0 {
			b = append(b, random(f.IntN(600))...)
		}
		return b[:1+f.IntN(len(b))]
	}
	private := random(f.IntN(64))
	if f.IntN(2) == 0 {
		r, _, _, connected := here.fromKernel(t, depth(4, 4))
		_, _ = r.conn.Write(wrong(reply(flagC|flagS, mpa.Rev2, word(16, 16, private...)...)))
		r.conn.Close()
		_ = result(t, "Connect", connected)
		return
	}
	k := kernelSide(t, 4096)
	ln := k.listen(kernelHost)
	r := here.dial(t, ln.Addr().String())
	_, _ = r.conn.Write(wrong(request(flagC|flagS, mpa.Rev2, word(16, 16, private...)...)))
	if f.IntN(2) == 0 {
		time.Sleep(time.Millisecond)
	}
	r.conn.Close()
}

// program posts requests as a program would, until the connection ends.
func (f *fuzzer) program(k *side) {
	_, _ = k.qp.PostRecv([]verbs.RecvWR{{SGL: k.sgl(f.IntN(4096), 1+f.IntN(200))}})
	to := verbs.SendWR{SGL: k.sgl(8*f.IntN(1000), 8), RemoteAddr: 0x1000, RKey: 0x200, Flags: verbs.SendSignaled}
	var wr verbs.SendWR
	switch f.IntN(6) {
	case 0, 1:
		wr = to
		wr.Opcode, wr.SGL = verbs.WRRDMARead, k.sgl(f.IntN(4096), f.IntN(5000))
	case 2:
		wr = ext.FetchAddWR(verbs.Remote{Addr: 0x1000, Length: 8, RKey: 0x200}, 1, to.SGL...)
	case 3:
		wr = to
		wr.Opcode = verbs.WRRDMAWrite
	case 4:
		wr = ext.ImmDataWR(7)
	default:
		wr = verbs.SendWR{Opcode: verbs.WRSend, SGL: k.sgl(0, f.IntN(5000))}
	}
	_, _ = k.qp.PostSend([]verbs.SendWR{wr})
	var wcs [16]verbs.WC
	_, _ = k.scq.Poll(wcs[:])
	_, _ = k.rcq.Poll(wcs[:])
}

// target chooses memory, an offset in it or slightly outside, and the length remaining from there.
func (f *fuzzer) target(closedAddr uint64, closedKey uint32) (key uint32, to uint64, left int) {
	i := 0
	if f.IntN(f.care) == 0 {
		i = f.IntN(len(f.prey))
	}
	p := f.prey[i]
	if i == len(f.prey)-1 {
		return closedKey, closedAddr, 100
	}
	n := p.mr.Len()
	at := f.IntN(n)
	if f.IntN(f.care) == 0 {
		at = pick(f.Rand, 0, n-1, n-8, n, -1, -8)
	}
	if f.IntN(2) == 0 {
		at &^= 7
	}
	return p.mr.RKey(), p.mr.Addr() + uint64(int64(at)), max(n-at, 0)
}

// some returns a length, usually within n.
func (f *fuzzer) some(n int) int {
	if f.IntN(3*f.care) == 0 {
		return n + 1 + f.IntN(64)
	}
	return f.IntN(n + 1)
}

// message returns the next ULPDU: a valid one, on memory that may be invalid.
func (f *fuzzer) message(closedAddr uint64, closedKey uint32) []byte {
	key, to, left := f.target(closedAddr, closedKey)
	next := func(qn uint32) uint32 { f.msn[qn]++; return f.msn[qn] - 1 }
	f.mu.Lock()
	defer f.mu.Unlock()
	switch f.IntN(10) {
	case 0:
		return tagged(rdmap.OpWrite, f.IntN(4) > 0, key, to, random(f.some(min(left, 4000)))...)
	case 1, 2:
		return readRequest(next(1),
			rdmap.ReadRequest{SinkSTag: 0x100, SinkTO: 0x2000, Size: uint32(f.some(left)), SrcSTag: key, SrcTO: to})
	case 3:
		op := pick(f.Rand, rdmap.OpSend, rdmap.OpSendSE, rdmap.OpSend, rdmap.OpSendInv, rdmap.OpSendSEInv)
		b := untagged(op, ddp.QNSend, f.msn[0], random(f.IntN(150))...)
		if f.IntN(4) > 0 {
			f.msn[0]++
		} else {
			b[0] &^= 0x40 // not the last segment
		}
		binary.BigEndian.PutUint32(b[2:], key)
		return b
	case 4:
		return untagged(pick(f.Rand, rdmap.OpImmediate, rdmap.OpImmediateSE), ddp.QNSend, next(0), random(8)...)
	case 5:
		if f.IntN(f.care) == 0 {
			term := rdmap.Terminate{Layer: uint8(f.IntN(3)), Type: uint8(f.IntN(4)), Code: uint8(f.IntN(10)),
				SegLenValid: f.IntN(2) == 0, SegLen: uint16(f.Uint32()),
				DDPHeader: random(pick(f.Rand, 0, ddp.TaggedLen, ddp.UntaggedLen))}
			return untagged(rdmap.OpTerminate, ddp.QNTerminate, next(2), term.Append(nil)...)
		}
		fallthrough
	case 6, 7:
		if len(f.reads) > 0 {
			rr := f.reads[0]
			f.reads = f.reads[1:]
			return tagged(rdmap.OpReadResponse, true, rr.SinkSTag, rr.SinkTO, random(int(rr.Size))...)
		}
		if len(f.atomics) > 0 {
			b := make([]byte, rdmap.AtomicResponseLen)
			rdmap.AtomicResponse{ID: f.atomics[0], Value: f.Uint64()}.Put(b)
			f.atomics = f.atomics[1:]
			return untagged(rdmap.OpAtomicResponse, ddp.QNAtomicResponse, next(3), b...)
		}
		fallthrough
	default:
		return atomicRequest(next(1),
			rdmap.AtomicRequest{Op: pick(f.Rand, rdmap.AtomicFetchAdd, rdmap.AtomicCmpSwap), ID: f.Uint32(), STag: key,
				TO: to &^ 7, AddSwap: f.Uint64(), AddSwapMask: f.Uint64(), Compare: f.Uint64(),
				CompareMask: f.Uint64()})
	}
}

// mutate returns an FPDU, which is occasionally invalid.
func (f *fuzzer) mutate(u []byte) []byte {
	switch f.IntN(10 * f.care) {
	case 0: // a bit of the header
		u[f.IntN(min(len(u), 28))] ^= 1 << f.IntN(8)
	case 1: // a byte anywhere
		u[f.IntN(len(u))] = byte(f.Uint32())
	case 2:
		u = u[:f.IntN(len(u))]
	case 3:
		u = append(u, random(1+f.IntN(60))...)
	case 4: // a number in the header, set to an extreme
		binary.BigEndian.PutUint32(u[f.IntN(len(u)/4)*4:], pick[uint32](f.Rand, 0, 1, 1<<31-1, 1<<31, 1<<32-1))
	case 5:
		u[0], u[1] = byte(f.Uint32()), byte(f.Uint32())
	}
	b := f.r.fpdu(u)
	switch f.IntN(20 * f.care) {
	case 0:
		b[len(b)-1-f.IntN(4)] ^= 1 << f.IntN(8)
	case 1:
		binary.BigEndian.PutUint16(b, uint16(f.Uint32()))
	case 2:
		b = b[:f.IntN(len(b))]
	case 3:
		b = random(f.IntN(200))
	}
	return b
}

// write sends bytes in pieces, and reports whether the connection still accepts them.
func (f *fuzzer) write(b []byte) bool {
	_ = f.r.conn.SetWriteDeadline(time.Now().Add(waitLimit))
	for len(b) > 0 {
		n := len(b)
		if f.IntN(4) == 0 {
			n = 1 + f.IntN(n)
		}
		if _, err := f.r.conn.Write(b[:n]); err != nil {
			return false
		}
		b = b[n:]
	}
	return true
}

// read reads what the kernel sends until the end, and records what can be answered. It stops
// parsing where an FPDU is cut off.
func (f *fuzzer) read() {
	var stream []byte
	buf := make([]byte, 1<<16)
	for {
		n, err := f.r.conn.Read(buf)
		f.mu.Lock()
		if bytes.Contains(append(stream, buf[:n]...), []byte(secret)) {
			f.leaked = true
		}
		stream = append(stream, buf[:n]...)
		for len(stream) >= mpa.LengthLen {
			length := int(binary.BigEndian.Uint16(stream))
			if len(stream) < mpa.FPDULen(length) {
				break
			}
			f.understand(stream[mpa.LengthLen:][:length])
			stream = stream[mpa.FPDULen(length):]
		}
		f.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// understand records what the kernel has sent.
func (f *fuzzer) understand(u []byte) {
	_, op := rdmap.ParseControl(u[1])
	f.got[op]++
	if ddp.IsTagged(u[0]) || len(u) < ddp.UntaggedLen {
		return
	}
	switch body := u[ddp.UntaggedLen:]; op {
	case rdmap.OpReadRequest:
		if rr, err := rdmap.ParseReadRequest(body); err == nil {
			f.reads = append(f.reads, rr)
		}
	case rdmap.OpAtomicRequest:
		if ar, err := rdmap.ParseAtomicRequest(body); err == nil {
			f.atomics = append(f.atomics, ar.ID)
		}
	}
}
