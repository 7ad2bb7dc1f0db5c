// SPDX-License-Identifier: BSD-3-Clause

package main

import "C" // so that it is built with the files that call C

import (
	"unsafe"

	"github.com/goverbs/goverbs/verbs"
)

// room returns memory for the inline data of request i of a chunk. It is registered: libibverbs
// does not look at the keys of inline data, and programs leave them 0, but a handle needs valid
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

// close frees the memory for inline data, when the QP has been closed.
func (s *sender) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	mr := s.inline
	s.inline = nil
	return mr.Close()
}

// copyInline copies the data of the inline requests among the first n. It leaves alone those that
// the handle refuses.
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

// pointer is memory of C at an address.
func pointer(addr uint64) unsafe.Pointer {
	p := uintptr(addr)
	return *(*unsafe.Pointer)(unsafe.Pointer(&p)) // go vet takes a conversion of an integer for a mistake
}
