// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/goverbs/goverbs/compat/dat"
)

// The values used by dtestx.
const (
	serverImmed, clientImmed = 0x1111, 0x7777

	serverWord, clientWord = 0x12345, 0x54321 // before the CmpSwaps
	swapped                = 0x98765          // what the client stores at the server

	serverSum, clientSum = 0x10, 0x100 // before the FetchAdds; each side adds the other's value at the peer
)

// ofSide returns the first value for the server and the second for the client.
func ofSide[T any](s *side, server, client T) T {
	if s.server {
		return server
	}
	return client
}

// sendImmed sends a message with immediate data in each direction, confirmed and unconfirmed.
func (s *side) sendImmed() error {
	mine, theirs := ofSide[uint32](s, 0xAAAA, 0xCCCC), ofSide[uint32](s, 0xCCCC, 0xAAAA)
	for _, flags := range []dat.DTOFlags{dat.DTOImmedFlag, dat.DTOImmedFlag | dat.DTOImmedConfirmFlag} {
		n := copy(s.bytes(source, message), s.name())
		if err := s.ep.PostSendImmed(s.segment(source, n), s.next(), mine, flags, dat.CompletionDefault); err != nil {
			return err
		}
		if err := s.done(dat.DTOSendImmed, n); err != nil {
			return err
		}
		data, immed, err := s.receive(dat.DTOReceiveImmed)
		if err != nil {
			return err
		}
		if immed != theirs || string(data) != ofSide(s, "client", "server") {
			return fmt.Errorf("immediate %#x, message %q", immed, data)
		}
		s.say("%v: immediate %#x with a message of %d bytes", flags, immed, len(data))
	}
	return s.together()
}

// immediate converts an immediate to or from the peer's form. DAPL sends the bytes as they are in
// its memory, not most significant first as InfiniBand specifies.
func (s *side) immediate(v uint32) uint32 {
	if !s.dtestx {
		return v
	}
	return binary.BigEndian.Uint32(binary.NativeEndian.AppendUint32(nil, v))
}

// writeImmed fills the peer's memory and announces it with an immediate.
func (s *side) writeImmed() error {
	mine, theirs := s.immediate(ofSide[uint32](s, serverImmed, clientImmed)),
		ofSide[uint32](s, clientImmed, serverImmed)
	n := min(int(s.remote.SegmentLength), window)
	clear(s.bytes(source, n))
	copy(s.bytes(source, n), s.name()+" data")
	err := s.ep.PostWriteImmed(s.segment(source, n), s.next(), s.there(0, n), mine,
		dat.DTOImmedFlag|dat.DTOImmedConfirmFlag, dat.CompletionDefault)
	if err != nil {
		return err
	}
	if err := s.done(dat.DTORDMAWriteImmed, n); err != nil {
		return err
	}
	_, immed, err := s.receive(dat.DTOReceiveRDMAImmed)
	if err != nil {
		return err
	}
	immed = s.immediate(immed)
	if immed != theirs {
		return fmt.Errorf("immediate %#x, not %#x", immed, theirs)
	}
	got, _, _ := bytes.Cut(s.bytes(0, 64), []byte{0})
	s.say("RDMA Write with immediate %#x: %q", immed, got)
	return nil
}

// atomic posts an atomic on the peer's word, and returns the original value.
func (s *side) atomic(post func(local dat.LMRTriplet, cookie uint64, remote dat.RMRTriplet) error) (uint64, error) {
	s.setNumber(source, 0)
	if err := post(s.segment(source, 8)[0], s.next(), s.there(0, 8)); err != nil {
		return 0, err
	}
	if err := s.done(dat.DTOExtension, 8); err != nil {
		return 0, err
	}
	return s.number(source), nil
}

// expect compares numbers and prints the expected one.
func (s *side) expect(what string, got, want uint64) error {
	if got != want {
		return fmt.Errorf("%s: %#x, not %#x", what, got, want)
	}
	s.say("%s: %#x", what, got)
	return nil
}

// compareAndSwap: the client's comparison succeeds, the server's does not.
func (s *side) compareAndSwap() error {
	s.setNumber(0, ofSide[uint64](s, serverWord, clientWord))
	if err := s.together(); err != nil {
		return err
	}
	compare, swap := ofSide[uint64](s, 0x654321, serverWord), ofSide[uint64](s, 0x6789A, swapped)
	orig, err := s.atomic(func(local dat.LMRTriplet, cookie uint64, remote dat.RMRTriplet) error {
		return s.ep.PostCmpAndSwap(compare, swap, local, cookie, remote, dat.CompletionDefault)
	})
	if err != nil {
		return err
	}
	if err := s.expect("CmpSwap found", orig, ofSide[uint64](s, clientWord, serverWord)); err != nil {
		return err
	}
	for range 1 + s.more() {
		if err := s.together(); err != nil {
			return err
		}
	}
	return s.expect("the peer's CmpSwap has left", s.number(0), ofSide[uint64](s, swapped, clientWord))
}

// more returns 1 for dtestx, which waits longer after its CmpSwap.
func (s *side) more() int {
	if s.dtestx {
		return 1
	}
	return 0
}

// fetchAndAdd adds twice in each direction.
func (s *side) fetchAndAdd() error {
	mine, theirs := ofSide[uint64](s, serverSum, clientSum), ofSide[uint64](s, clientSum, serverSum)
	s.setNumber(0, mine)
	for i := range uint64(2) {
		if err := s.together(); err != nil {
			return err
		}
		orig, err := s.atomic(func(local dat.LMRTriplet, cookie uint64, remote dat.RMRTriplet) error {
			return s.ep.PostFetchAndAdd(theirs, local, cookie, remote, dat.CompletionDefault)
		})
		if err != nil {
			return err
		}
		if err := s.expect("FetchAdd found", orig, theirs*(i+1)); err != nil {
			return err
		}
	}
	if err := s.together(); err != nil {
		return err
	}
	return s.expect("the peer's FetchAdds have left", s.number(0), mine*3)
}

// masked adds to two fields at once, then swaps part of a word.
func (s *side) masked() error {
	const fields = 1<<31 | 1<<63
	if err := s.together(); err != nil {
		return err
	}
	s.setNumber(0, 0x00000007_FFFFFFFF)
	if err := s.together(); err != nil {
		return err
	}
	orig, err := s.atomic(func(local dat.LMRTriplet, cookie uint64, remote dat.RMRTriplet) error {
		return s.ep.PostMaskedFetchAndAdd(0x00000001_00000002, fields, local, cookie, remote, dat.CompletionDefault)
	})
	if err != nil {
		return err
	}
	if err := s.expect("masked FetchAdd found", orig, 0x00000007_FFFFFFFF); err != nil {
		return err
	}
	if err := s.together(); err != nil {
		return err
	}
	if err := s.expect("the peer's has left", s.number(0), 0x00000008_00000001); err != nil {
		return err
	}
	if err := s.together(); err != nil {
		return err
	}
	orig, err = s.atomic(func(local dat.LMRTriplet, cookie uint64, remote dat.RMRTriplet) error {
		return s.ep.PostMaskedCmpAndSwap(1, 0xFF, 0xABCD<<32, 0xFFFF<<32, local, cookie, remote, dat.CompletionDefault)
	})
	if err != nil {
		return err
	}
	if err := s.expect("masked CmpSwap found", orig, 0x00000008_00000001); err != nil {
		return err
	}
	if err := s.together(); err != nil {
		return err
	}
	return s.expect("the peer's has left", s.number(0), 0x0000ABCD_00000001)
}
