// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package interop

import (
	"encoding/binary"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/iwarp/ddp"
	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/verbs"
)

// fault is a message after which siw must terminate the connection.
type fault struct {
	name string
	// send sends it to the kernel's side k and returns the ULPDU that siw must send before closing,
	// nil for none.
	send func(r *raw, k *side) []byte
	// codes are the layer, type and code that the user-space RNIC decodes from siw's Terminate. If
	// nothing is quoted, it cannot know that siw has swapped layer and type.
	codes [3]uint8
}

// quoted returns what siw quotes of an invalid message: the length of its payload, where the RFC
// requires the length of the whole segment, and its headers.
func quoted(ulpdu []byte, payload, headers int) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(payload))
	return append(b, ulpdu[:headers]...)
}

// untaggedFault returns a fault whose Terminate quotes the DDP header.
func untaggedFault(name string, first, code byte, ulpdu []byte, codes [3]uint8) fault {
	return fault{name, func(r *raw, _ *side) []byte {
		r.send(ulpdu)
		return siwTerminate(first, code, 0x03, quoted(ulpdu, len(ulpdu)-ddp.UntaggedLen, ddp.UntaggedLen)...)
	}, codes}
}

// plainFault returns a fault whose Terminate quotes nothing.
func plainFault(name string, first, code byte, ulpdu []byte, codes [3]uint8) fault {
	return fault{name, func(r *raw, _ *side) []byte {
		r.send(ulpdu)
		return siwTerminate(first, code, 0)
	}, codes}
}

// with changes one byte of a ULPDU.
func with(ulpdu []byte, at int, v byte) []byte {
	ulpdu[at] = v
	return ulpdu
}

// kernelFaults are the faults that siw answers with a Terminate, byte for byte.
func kernelFaults() []fault {
	five := make([]byte, 5)
	rr := rdmap.ReadRequest{SinkSTag: 0x100, SinkTO: 0x2000, Size: 8, SrcSTag: 0x5a5a5a00, SrcTO: 0x1000}
	faults := []fault{
		plainFault("RDMAP version 0", 0x20, 0x05, with(untagged(rdmap.OpSend, 0, 1, five...), 1, 0x03),
			[3]uint8{2, 0, 5}),
		plainFault("DDP version 2, untagged", 0x21, 0x06, with(untagged(rdmap.OpSend, 0, 1, five...), 0, 0x42),
			[3]uint8{2, 1, 6}), plainFault("DDP version 2, tagged", 0x11, 0x04,
			with(tagged(rdmap.OpWrite, true, 1, 0, five...), 0, 0xc2), [3]uint8{1, 1, 4}),
		{"CRC", func(r *raw, _ *side) []byte {
			b := r.fpdu(untagged(rdmap.OpSend, ddp.QNSend, 1, five...))
			b[len(b)-1] ^= 1
			r.write(b)
			return siwTerminate(0x02, 0x02, 0)
		}, [3]uint8{0, 2, 2}},
		plainFault("shorter than its header", 0x02, 0x03, untagged(rdmap.OpSend, 0, 1)[:14], [3]uint8{0, 2, 3}),
		untaggedFault("Send, MSN", 0x21, 0x03, untagged(rdmap.OpSend, ddp.QNSend, 7, five...), [3]uint8{1, 2, 3}),
		untaggedFault("Send, MO", 0x21, 0x04, with(untagged(rdmap.OpSend, ddp.QNSend, 1, five...), 17, 4),
			[3]uint8{1, 2, 4}), untaggedFault("Send, QN", 0x21, 0x01, untagged(rdmap.OpSend, 3, 1, five...),
			[3]uint8{1, 2, 1}),
		untaggedFault("Send, longer than its receive", 0x21, 0x02,
			untagged(rdmap.OpSend, ddp.QNSend, 1, make([]byte, 65)...), [3]uint8{1, 2, 2}),
		{"Send, no receive", func(r *raw, k *side) []byte {
			r.send(untagged(rdmap.OpSend, ddp.QNSend, 1))
			k.ok(k.received(), verbs.WCRecv)
			second := untagged(rdmap.OpSend, ddp.QNSend, 2, five...)
			r.send(second)
			return siwTerminate(0x21, 0x02, 0x03, quoted(second, 5, ddp.UntaggedLen)...)
		}, [3]uint8{1, 2, 2}},
		{"Send with Invalidate, unknown key", func(r *raw, k *side) []byte {
			u := untagged(rdmap.OpSendInv, ddp.QNSend, 1, five...)
			binary.BigEndian.PutUint32(u[2:], 0x5a5a5a00)
			r.send(u)
			// The receive fails, and the stream continues until the program has polled its
			// completion.
			r.quiet()
			r.send(k.reading(1, 0, 0))
			require.Equal(r.t, tagged(rdmap.OpReadResponse, true, 0x100, 0x2000), r.read())
			require.Equal(r.t, verbs.WCRemInvReqErr, k.received().Status)
			// siw quotes the last message it received.
			return siwTerminate(0x20, 0x09, 0x03, quoted(k.reading(1, 0, 0), 0, ddp.UntaggedLen)...)
		}, [3]uint8{0, 2, 9}},
		{"Write, unknown key", func(r *raw, _ *side) []byte {
			u := tagged(rdmap.OpWrite, true, 0x5a5a5a00, 0x1000, five...)
			r.send(u)
			return siwTerminate(0x11, 0x00, 0x03, quoted(u, 5, ddp.TaggedLen)...)
		}, [3]uint8{1, 1, 0}},
		{"Read Response that nobody asked for", func(r *raw, _ *side) []byte {
			u := tagged(rdmap.OpReadResponse, true, 0x5a5a5a00, 0x1000, five...)
			r.send(u)
			return siwTerminate(0x01, 0x00, 0x03, quoted(u, 5, ddp.TaggedLen)...)
		}, [3]uint8{1, 0, 0}},
		{"Read, MSN", func(r *raw, _ *side) []byte {
			u := readRequest(9, rr)
			r.send(u)
			return siwTerminate(0x21, 0x03, 0x03, quoted(u, 0, ddp.UntaggedLen)...)
		}, [3]uint8{1, 2, 3}},
		{"Read, unknown key", func(r *raw, _ *side) []byte {
			u := readRequest(1, rr)
			r.send(u)
			// The quotation has the length of the Read in place of its MSN.
			want := append([]byte(nil), u...)
			binary.BigEndian.PutUint32(want[10:], rr.Size)
			return siwTerminate(0x10, 0x00, 0x07, quoted(want, 0, len(want))...)
		}, [3]uint8{0, 1, 0}},
	}
	faults = append(faults, memoryFaults()...)
	faults = append(faults, responseFaults()...)
	faults = append(faults, localFaults()...)
	for _, op := range []rdmap.Opcode{rdmap.OpImmediate, rdmap.OpImmediateSE, rdmap.OpAtomicRequest,
		rdmap.OpAtomicResponse, 12, 13, 14, 15} {
		faults = append(faults, plainFault("opcode "+op.String(), 0x20, 0x06, untagged(op, 0, 1, make([]byte, 52)...),
			[3]uint8{2, 0, 6}))
	}
	return faults
}

// memoryFaults are forbidden accesses to registered memory, and segments that do not continue their
// message.
func memoryFaults() []fault {
	five := make([]byte, 5)
	write := func(name string, code byte, to func(k *side) (stag uint32, at uint64)) fault {
		return fault{name, func(r *raw, k *side) []byte {
			stag, at := to(k)
			u := tagged(rdmap.OpWrite, true, stag, at, five...)
			r.send(u)
			return siwTerminate(0x11, code, 0x03, quoted(u, 5, ddp.TaggedLen)...)
		}, [3]uint8{1, 1, code}}
	}
	read := func(name string, code byte, from func(k *side) (stag uint32, at uint64)) fault {
		return fault{name, func(r *raw, k *side) []byte {
			rr := rdmap.ReadRequest{SinkSTag: 0x100, SinkTO: 0x2000, Size: 8}
			rr.SrcSTag, rr.SrcTO = from(k)
			u := readRequest(1, rr)
			r.send(u)
			want := append([]byte(nil), u...)
			binary.BigEndian.PutUint32(want[10:], rr.Size) // in place of its MSN
			return siwTerminate(0x10, code, 0x07, quoted(want, 0, len(want))...)
		}, [3]uint8{0, 1, code}}
	}
	foreign := func(k *side) (uint32, uint64) {
		mr := k.region(k.foreignPD(), 64, rights)
		return mr.RKey(), mr.Addr()
	}
	behind := func(k *side) (uint32, uint64) { return k.mem.RKey(), k.mem.Addr() + uint64(k.mem.Len()) - 4 }
	oldKey := func(k *side) (uint32, uint64) { return k.mem.RKey() ^ 1, k.mem.Addr() }
	second := func(name string, code byte, of func(k *side) (stag uint32, at uint64)) fault {
		return fault{name, func(r *raw, k *side) []byte {
			r.send(tagged(rdmap.OpWrite, false, k.mem.RKey(), k.mem.Addr(), 1, 2, 3, 4))
			stag, at := of(k)
			u := tagged(rdmap.OpWrite, true, stag, at, five...)
			r.send(u)
			return siwTerminate(0x11, code, 0x03, quoted(u, 5, ddp.TaggedLen)...)
		}, [3]uint8{1, 1, code}}
	}
	return []fault{
		write("Write, old key", 0, oldKey),
		write("Write, no right", 0, func(k *side) (uint32, uint64) {
			mr := k.region(k.pd, 64, verbs.AccessLocalWrite|verbs.AccessRemoteRead)
			return mr.RKey(), mr.Addr()
		}),
		write("Write, bounds", 1, behind),
		write("Write, foreign PD", 2, foreign),
		second("Write, its second segment has another key", 0, func(k *side) (uint32, uint64) {
			return k.mem.RKey() ^ 1, k.mem.Addr() + 4
		}),
		second("Write, its second segment leaves something out", 1, func(k *side) (uint32, uint64) {
			return k.mem.RKey(), k.mem.Addr() + 8
		}),
		read("Read, old key", 0, oldKey),
		read("Read, bounds", 1, behind),
		read("Read, foreign PD", 3, foreign),
		{"Send with Invalidate, foreign PD", func(r *raw, k *side) []byte {
			u := untagged(rdmap.OpSendInv, ddp.QNSend, 1, five...)
			stag, _ := foreign(k)
			binary.BigEndian.PutUint32(u[2:], stag)
			r.send(u)
			// As with an unknown key, the stream continues until the program has polled the
			// completion.
			r.quiet()
			require.Equal(r.t, verbs.WCRemInvReqErr, k.received().Status)
			return siwTerminate(0x10, 0x09, 0x07, quoted(u, 5, ddp.UntaggedLen)...)
		}, [3]uint8{0, 1, 9}},
	}
}

// responseFaults are responses that do not match siw's Read.
func responseFaults() []fault {
	const size = 8
	response := func(name string, code byte, change func(rr *rdmap.ReadRequest)) fault {
		return fault{name, func(r *raw, k *side) []byte {
			k.post(verbs.SendWR{Opcode: verbs.WRRDMARead, SGL: k.sgl(128, size), RemoteAddr: 0x1000, RKey: 0x200})
			_, body := r.readOp(rdmap.OpReadRequest)
			rr, err := rdmap.ParseReadRequest(body)
			require.NoError(r.t, err)
			require.EqualValues(r.t, size, rr.Size)
			change(&rr)
			u := tagged(rdmap.OpReadResponse, true, rr.SinkSTag, rr.SinkTO, make([]byte, rr.Size)...)
			r.send(u)
			return siwTerminate(0x11, code, 0x03, quoted(u, int(rr.Size), ddp.TaggedLen)...)
		}, [3]uint8{1, 1, code}}
	}
	return []fault{
		response("Read Response, another key", 0, func(rr *rdmap.ReadRequest) { rr.SinkSTag ^= 1 }),
		response("Read Response, another place", 1, func(rr *rdmap.ReadRequest) { rr.SinkTO++ }),
		response("Read Response, too short", 1, func(rr *rdmap.ReadRequest) { rr.Size-- }),
		response("Read Response, too long", 1, func(rr *rdmap.ReadRequest) { rr.Size++ }),
	}
}

// localFaults are errors of siw's own program, which siw reports to the peer.
func localFaults() []fault {
	five := make([]byte, 5)
	unknown := func(k *side) []verbs.SGE {
		return []verbs.SGE{{Addr: k.mem.Addr(), Length: 8, LKey: k.mem.LKey() ^ 0x5a5a5a00}}
	}
	return []fault{
		{"its receive has an unknown key", func(r *raw, k *side) []byte {
			r.send(untagged(rdmap.OpSend, ddp.QNSend, 1))
			k.ok(k.received(), verbs.WCRecv)
			k.recv(2, unknown(k))
			u := untagged(rdmap.OpSend, ddp.QNSend, 2, five...)
			r.send(u)
			return siwTerminate(0x01, 0x00, 0x03, quoted(u, 5, ddp.UntaggedLen)...)
		}, [3]uint8{1, 0, 0}},
		{"its Read goes to an unknown key", func(r *raw, k *side) []byte {
			k.post(verbs.SendWR{Opcode: verbs.WRRDMARead, SGL: unknown(k), RemoteAddr: 0x1000, RKey: 0x200})
			_, body := r.readOp(rdmap.OpReadRequest)
			rr, err := rdmap.ParseReadRequest(body)
			require.NoError(r.t, err)
			u := tagged(rdmap.OpReadResponse, true, rr.SinkSTag, rr.SinkTO, make([]byte, rr.Size)...)
			r.send(u)
			return siwTerminate(0x11, 0x00, 0x03, quoted(u, int(rr.Size), ddp.TaggedLen)...)
		}, [3]uint8{1, 1, 0}},
		{"its Send comes from an unknown key", func(_ *raw, k *side) []byte {
			k.post(verbs.SendWR{Opcode: verbs.WRSend, SGL: unknown(k)})
			return siwTerminate(0x00, 0xff, 0)
		}, [3]uint8{0, 0, 0xff}},
	}
}

// TestKernelTerminates: a raw peer does what siw must not accept, and every byte of siw's response
// is compared. The table also contains what the user-space RNIC decodes from each response.
func TestKernelTerminates(t *testing.T) {
	needKernel(t)
	for _, f := range kernelFaults() {
		t.Run(f.name, func(t *testing.T) {
			r, k := here.toKernel(t, depth(4, 4), func(k *side) { k.recv(1, k.sgl(0, 64)) })
			want := f.send(r, k)
			got := r.read()
			require.Equal(t, want, got)
			r.gone()
			require.Error(t, k.ended())
			body := got[ddp.UntaggedLen:]
			term, _, err := rdmap.ParseTerminateLenient(body)
			const whole = rdmap.TerminateLen + 2 + ddp.UntaggedLen + rdmap.ReadRequestLen
			if rBit := body[2]&0x04 != 0; rBit && len(body) < whole {
				// For a Send, which has no RDMAP header, siw claims to quote one.
				require.ErrorIs(t, err, io.ErrUnexpectedEOF)
				require.Equal(t, "Send with Invalidate, foreign PD", f.name)
			} else {
				require.NoError(t, err)
			}
			require.Equal(t, f.codes, [3]uint8{term.Layer, term.Type, term.Code})
		})
	}
	t.Run("a message begins inside of another", func(t *testing.T) {
		// Two tagged messages: siw closes without a Terminate.
		r, k := here.toKernel(t, depth(4, 4), nil)
		r.send(tagged(rdmap.OpWrite, false, k.mem.RKey(), k.mem.Addr(), 1, 2, 3, 4),
			tagged(rdmap.OpReadResponse, true, 1, 0, 1, 2, 3, 4))
		r.gone()
		require.Error(t, k.ended())
	})
}
