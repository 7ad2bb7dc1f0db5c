// SPDX-License-Identifier: BSD-3-Clause

package ibcompat

import (
	"encoding/binary"
	"errors"
	"sync"

	"github.com/goverbs/goverbs/internal/regmem"
	"github.com/goverbs/goverbs/verbs"
)

// sinkPage is the size of a registered block of words, in bytes.
const sinkPage = 4096

// sinks allocates 8-byte words of registered memory, one for each QP of a PD that composes atomics.
// Original values are returned there and not to the program's sinks: several requests of the
// program may share a sink, and a value left by another request would be mistaken for the answer.
type sinks struct {
	mu    sync.Mutex // guards the following
	pages []*verbs.MR
	free  []sink
}

// sink is one such word.
type sink struct {
	sge verbs.SGE
	mem []byte
}

func (s *sinks) take(pd *verbs.PD) (sink, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.free) == 0 {
		page, err := pd.AllocMR(sinkPage, verbs.AccessLocalWrite)
		if err != nil {
			return sink{}, err
		}
		s.pages = append(s.pages, page)
		for off := 0; off < sinkPage; off += 8 {
			sge, err := page.SGE(off, 8)
			if err != nil {
				return sink{}, err
			}
			s.free = append(s.free, sink{sge, page.Bytes()[off:][:8]})
		}
	}
	last := len(s.free) - 1
	w := s.free[last]
	s.free = s.free[:last]
	return w, nil
}

func (s *sinks) give(w sink) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, w)
}

func (s *sinks) close() (err error) {
	for _, page := range s.pages {
		err = errors.Join(err, page.Close())
	}
	return err
}

// value returns the original value, which the device stores in host byte order.
func (w *sink) value() uint64 {
	var b [8]byte
	regmem.Fetch(b[:], w.mem)
	return binary.NativeEndian.Uint64(b[:])
}

// store writes a value to the program's memory in host byte order, as a device does.
func store(mem []byte, v uint64) {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], v)
	regmem.Place(mem, b[:])
}
