// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"bytes"
	"fmt"

	"github.com/goverbs/goverbs/compat/dat"
)

// pattern returns n bytes that only this side sends as number i.
func pattern(server bool, i, n int) []byte {
	b := make([]byte, n)
	for j := range b {
		b[j] = byte(i*31 + j*7)
		if server {
			b[j] ^= 0xFF
		}
	}
	return b
}

// exchange exchanges the locations of the exposed memory with the peer.
func (s *side) exchange() error {
	n := window
	if s.dtestx {
		n = dtestxes
	}
	offer, err := s.lmr.Remote(0, n)
	if err != nil {
		return err
	}
	if err := s.send(triplet(offer)); err != nil {
		return err
	}
	b, _, err := s.receive(dat.DTOReceive)
	if err != nil {
		return err
	}
	if s.remote, err = parseTriplet(b); err != nil {
		return err
	}
	s.say("the peer offers %d bytes", s.remote.SegmentLength)
	return nil
}

// messages sends messages of several sizes back and forth.
func (s *side) messages() error {
	const rounds = 10
	total := 0
	for i := range rounds {
		n := message * i / (rounds - 1)
		ping := pattern(false, i, n)
		if !s.server {
			if err := s.send(ping); err != nil {
				return err
			}
		}
		got, _, err := s.receive(dat.DTOReceive)
		if err != nil {
			return err
		}
		if !bytes.Equal(got, ping) {
			return fmt.Errorf("message %d of %d bytes has other bytes", i, n)
		}
		if s.server {
			if err := s.send(got); err != nil {
				return err
			}
		}
		total += n
	}
	s.say("%d messages there and back, %d bytes", rounds, total)
	return s.together()
}

// writes posts a burst of Writes of two segments each, of which only the last has a visible
// completion.
func (s *side) writes() error {
	const burst, n = 10, 1000
	for i := range burst {
		copy(s.bytes(source+i*n, n), pattern(s.server, i, n))
		flags := dat.CompletionSuppress
		switch i {
		case 3:
			flags = dat.CompletionUnsignalled
		case burst - 1:
			flags = dat.CompletionDefault
		}
		iov := append(s.segment(source+i*n, 300), s.segment(source+i*n+300, n-300)...)
		if err := s.ep.PostRDMAWrite(iov, s.next(), s.there(i*n, n), flags); err != nil {
			return err
		}
	}
	if err := s.done(dat.DTORDMAWrite, n); err != nil {
		return err
	}
	if err := s.together(); err != nil {
		return err
	}
	for i := range burst {
		if !bytes.Equal(s.bytes(i*n, n), pattern(!s.server, i, n)) {
			return fmt.Errorf("RDMA Write %d has other bytes", i)
		}
	}
	s.say("%d RDMA Writes of %d bytes each way", burst, n)
	return s.together()
}

// reads reads back what writes left, and fences a Write after the last Read.
func (s *side) reads() error {
	const burst, n = 10, 1000
	clear(s.bytes(source, burst*n))
	for i := range burst {
		flags := dat.CompletionSuppress
		if i == burst-1 {
			flags = dat.CompletionDefault
		}
		if err := s.ep.PostRDMARead(s.segment(source+i*n, n), s.next(), s.there(i*n, n), flags); err != nil {
			return err
		}
	}
	if err := s.done(dat.DTORDMARead, n); err != nil {
		return err
	}
	for i := range burst {
		if !bytes.Equal(s.bytes(source+i*n, n), pattern(s.server, i, n)) {
			return fmt.Errorf("RDMA Read %d has other bytes", i)
		}
	}
	s.say("%d RDMA Reads of %d bytes", burst, n)
	if err := s.together(); err != nil {
		return err
	}
	// The data just read is written to another place without waiting for it.
	clear(s.bytes(source, n))
	if err := s.ep.PostRDMARead(s.segment(source, n), s.next(), s.there(0, n), dat.CompletionSuppress); err != nil {
		return err
	}
	if err := s.ep.PostRDMAWrite(s.segment(source, n), s.next(), s.there(burst*n, n),
		dat.CompletionBarrierFence); err != nil {
		return err
	}
	if err := s.done(dat.DTORDMAWrite, n); err != nil {
		return err
	}
	if err := s.together(); err != nil {
		return err
	}
	if !bytes.Equal(s.bytes(burst*n, n), pattern(!s.server, 0, n)) {
		return fmt.Errorf("the fenced RDMA Write has other bytes")
	}
	s.say("a fenced RDMA Write of what was read")
	return s.together()
}
