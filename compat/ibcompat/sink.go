// SPDX-License-Identifier: BSD-3-Clause

package ibcompat

import (
	"encoding/binary"
	"errors"
	"sync"

	"github.com/goverbs/goverbs/internal/regmem"
	"github.com/goverbs/goverbs/verbs"
)

// sinkPage is how much memory is registered at a time, in bytes.
const sinkPage = 4096

// sinks are words of 8 bytes in registered memory, one for each QP of a PD that composes atomics.
// The original values arrive there, and not in the sinks of the program: several requests of the
// program may have the same one, and a value that another request has left there would be taken for
// the answer.
type sinks struct {
	mu    sync.Mutex // guards what follows
	pages []*verbs.MR
	free  []sink
}

// sink is such a word.
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

// value returns what has arrived, which the device has stored in the order of the host.
func (w *sink) value() uint64 {
	var b [8]byte
	regmem.Fetch(b[:], w.mem)
	return binary.NativeEndian.Uint64(b[:])
}

// store puts a value into memory of the program, as a device does.
func store(mem []byte, v uint64) {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], v)
	regmem.Place(mem, b[:])
}
