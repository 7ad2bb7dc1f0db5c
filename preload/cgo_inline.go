// SPDX-License-Identifier: BSD-3-Clause

package main

import "C" // built only together with the cgo files

import (
	"unsafe"

	"github.com/goverbs/goverbs/verbs"
)

// room returns memory for the inline data of the i-th request of a chunk. The memory is registered:
// libibverbs ignores the keys of inline data, which programs leave 0, but the Go handle needs valid
// ones.
func (s *sender) room(q *verbs.QP, i int) ([]byte, error) {
	size := q.Cap().MaxInlineData
	if s.inline == nil {
		var err error
		if s.inline, err = q.PD().AllocMR(chunk*size, 0); err != nil {
			return nil, err
		}
	}
	return s.inline.Bytes()[i*size : i*size : (i+1)*size], nil
}

// close frees the memory for inline data once the QP is closed.
func (s *sender) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	mr := s.inline
	s.inline = nil
	return mr.Close()
}

// copyInline copies the data of the inline requests among the first n. It skips those that the
// handle will refuse.
func (s *sender) copyInline(q *verbs.QP, n int) error {
	for i := range n {
		wr := &s.wrs[i]
		if wr.Flags&verbs.SendInline == 0 {
			continue
		}
		var length uint64
		for _, e := range wr.SGL {
			length += uint64(e.Length)
		}
		if length == 0 || length > uint64(q.Cap().MaxInlineData) || len(wr.SGL) > q.Cap().MaxSendSGE {
			continue
		}
		b, err := s.room(q, i)
		if err != nil {
			return err
		}
		for _, e := range wr.SGL {
			b = append(b, unsafe.Slice((*byte)(pointer(e.Addr)), e.Length)...)
		}
		wr.SGL = wr.SGL[:1]
		wr.SGL[0] = verbs.SGE{Addr: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))), Length: uint32(len(b)),
			LKey: s.inline.LKey()}
	}
	return nil
}

// pointer converts an address to a pointer to C memory.
func pointer(addr uint64) unsafe.Pointer {
	p := uintptr(addr)
	return *(*unsafe.Pointer)(unsafe.Pointer(&p)) // go vet reports a direct conversion from an integer
}
