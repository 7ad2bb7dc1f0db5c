// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package uverbs

import (
	"io"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// fake is a device to which commands are written: a pipe whose other end the test reads, so that
// what a call has sent can be compared with the structures of <rdma/ib_user_verbs.h>. Nobody
// answers.
type fake struct{ in, out int }

func newFake(t *testing.T) fake {
	t.Helper()
	var p [2]int
	require.NoError(t, unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK))
	t.Cleanup(func() {
		require.NoError(t, unix.Close(p[0]))
		require.NoError(t, unix.Close(p[1]))
	})
	return fake{in: p[1], out: p[0]}
}

// sent reads what one call has written, as numbers of 4 bytes.
func (f fake) sent(t *testing.T) []uint32 {
	t.Helper()
	buf := make([]uint32, 128)
	n, err := unix.Read(f.out, unsafe.Slice((*byte)(unsafe.Pointer(&buf[0])), 4*len(buf)))
	require.NoError(t, err)
	require.Zero(t, n%8)
	return buf[:n/4]
}

// two and four make a number of 4 bytes of smaller ones in the order of memory; quad takes one of 8
// bytes apart.

func two(a, b uint16) uint32 { p := [2]uint16{a, b}; return *(*uint32)(unsafe.Pointer(&p)) }
func four(a, b, c, d uint8) uint32 {
	p := [4]uint8{a, b, c, d}
	return *(*uint32)(unsafe.Pointer(&p))
}
func quad(v uint64) []uint32 { p := *(*[2]uint32)(unsafe.Pointer(&v)); return p[:] }

// join makes one list of numbers and lists.
func join(parts ...any) (list []uint32) {
	for _, p := range parts {
		switch p := p.(type) {
		case int:
			list = append(list, uint32(p))
		case uint32:
			list = append(list, p)
		case []uint32:
			list = append(list, p...)
		}
	}
	return list
}

// answers blanks the address of the response, which must be there.
func answers(t *testing.T, got []uint32) []uint32 {
	t.Helper()
	require.NotEqual(t, []uint32{0, 0}, got[2:4], "an address for the response")
	got[2], got[3] = 0, 0
	return got
}

type key struct{ A, B uint64 }

// TestCommands: each command is what the kernel's structure is, and says how long the response is.
func TestCommands(t *testing.T) {
	f := newFake(t)
	const cookie = 0x0102030405060708
	_, _, _, err := CreateCQ[key](f.in, CQConfig{Cookie: cookie, CQE: 7, Vector: 2, Channel: -1})
	require.NoError(t, err)
	require.Equal(t, join(18, two(10, 2+4), quad(0), quad(cookie), 7, 2, uint32(1<<32-1), 0), answers(t, f.sent(t)))

	require.NoError(t, DestroyCQ(f.in, 9))
	require.Equal(t, join(20, two(6, 2), quad(0), 9, 0), answers(t, f.sent(t)))

	_, _, _, _, err = CreateQP[key](f.in,
		QPConfig{Cookie: cookie, PD: 1, SendCQ: 2, RecvCQ: 3, SRQ: 4, HasSRQ: true, Type: 5,
			Cap: QPCap{MaxSendWR: 6, MaxRecvWR: 7, MaxSendSGE: 8, MaxRecvSGE: 9, MaxInlineData: 10}}, [2]uint32{11, 12})
	require.NoError(t, err)
	require.Equal(t, join(24, two(18, 8+4), quad(0), quad(cookie), 1, 2, 3, 4, 6, 7, 8, 9, 10, four(0, 5, 1, 0), 11,
		12), answers(t, f.sent(t)))

	require.NoError(t, ModifyQP(f.in, 9,
		QPAttr{State: 1, CurState: 2, AccessFlags: 3, Port: 4, MaxRdAtomic: 5, MaxDestRdAtomic: 6}, 77))
	require.Equal(t, join(26, two(30, 0), make([]uint32, 16), 9, 77, 0, 0, 0, 0, 3, 0, four(1, 2, 0, 0),
		four(0, 5, 6, 0), four(4, 0, 0, 0), 0), f.sent(t))

	_, err = QueryQP(f.in, 9, 77)
	require.NoError(t, err)
	require.Equal(t, join(25, two(6, 16+5+4+1+1+5), quad(0), 9, 77), answers(t, f.sent(t)))

	require.NoError(t, DestroyQP(f.in, 9))
	require.Equal(t, join(27, two(6, 1), quad(0), 9, 0), answers(t, f.sent(t)))

	_, _, _, err = CreateSRQ[key](f.in, SRQConfig{Cookie: cookie, PD: 1, Attr: SRQAttr{MaxWR: 2, MaxSGE: 3, Limit: 4}})
	require.NoError(t, err)
	require.Equal(t, join(32, two(10, 4+4), quad(0), quad(cookie), 1, 2, 3, 4), answers(t, f.sent(t)))

	require.NoError(t, ModifySRQ(f.in, 9, SRQAttr{MaxWR: 2, Limit: 4}, 1))
	require.Equal(t, join(33, two(6, 0), 9, 1, 2, 4), f.sent(t))

	_, err = QuerySRQ(f.in, 9)
	require.NoError(t, err)
	require.Equal(t, join(34, two(6, 4), quad(0), 9, 0), answers(t, f.sent(t)))

	require.NoError(t, DestroySRQ(f.in, 9))
	require.Equal(t, join(35, two(6, 1), quad(0), 9, 0), answers(t, f.sent(t)))
}

// TestDoorbell: always the same command, a post of no requests, with a place for the response that
// stays; nothing is allocated.
func TestDoorbell(t *testing.T) {
	f := newFake(t)
	d := NewDoorbell(f.in, 9)
	defer d.Close()
	require.NoError(t, d.Ring())
	first := f.sent(t)
	require.Equal(t, uintptr(unsafe.Pointer(&d.badWR)), uintptr(*(*uint64)(unsafe.Pointer(&first[2]))))
	require.NoError(t, d.Ring())
	require.Equal(t, first, f.sent(t))
	require.Equal(t, join(28, two(8, 1), quad(0), 9, 0, 0, 56), answers(t, first))
	var buf [64]byte
	require.Zero(t, testing.AllocsPerRun(100, func() {
		_ = d.Ring()
		_, _ = unix.Read(f.out, buf[:])
	}))
}

// TestErrors: the errno of the kernel is the error, here that of a full pipe and of a descriptor
// that is not open.
func TestErrors(t *testing.T) {
	f := newFake(t)
	d := NewDoorbell(f.in, 9)
	defer d.Close()
	var err error
	for range 1 << 16 {
		if err = d.Ring(); err != nil {
			break
		}
	}
	require.ErrorIs(t, err, unix.EAGAIN)
	require.ErrorIs(t, DestroyQP(-1, 9), unix.EBADF)
	_, _, _, err = CreateCQ[key](-1, CQConfig{})
	require.ErrorIs(t, err, unix.EBADF)
}

// TestEvents: both kinds are read whole, EAGAIN if there is none.
func TestEvents(t *testing.T) {
	f := newFake(t)
	_, err := ReadAsync(f.out)
	require.ErrorIs(t, err, unix.EAGAIN)
	_, err = ReadComp(f.out)
	require.ErrorIs(t, err, unix.EAGAIN)
	event := func(parts ...any) {
		list := join(parts...)
		_, err := unix.Write(f.in, unsafe.Slice((*byte)(unsafe.Pointer(&list[0])), 4*len(list)))
		require.NoError(t, err)
	}
	event(quad(0x0102030405060708), 16, 0)
	ev, err := ReadAsync(f.out)
	require.NoError(t, err)
	require.Equal(t, AsyncEvent{Element: 0x0102030405060708, Type: 16}, ev)
	event(quad(7))
	cookie, err := ReadComp(f.out)
	require.NoError(t, err)
	require.Equal(t, uint64(7), cookie)
	event(5)
	_, err = ReadComp(f.out)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}
