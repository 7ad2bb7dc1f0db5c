// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"github.com/goverbs/goverbs/internal/iwarp/mpa"
	"github.com/goverbs/goverbs/internal/regmem"
)

// Memory of a region may go away if Config.GuardMemory says so. Every access to registered memory
// is in this file, but for the system call that sends it, which fails by itself, and inline data,
// which belong to the program until the post returns.

// place writes data to memory of the region, which the caller has entered, and exits the region. It
// returns rejectSTag if the memory is gone.
func (r *region) place(mem, data []byte) reject {
	if !r.fragile {
		regmem.Place(mem, data)
		r.exit()
		return accepted
	}
	return r.used(regmem.Guard(mem, func() { regmem.Place(mem, data) }))
}

// fetch reads memory of the region as place writes it.
func (r *region) fetch(b, mem []byte) reject {
	if !r.fragile {
		regmem.Fetch(b, mem)
		r.exit()
		return accepted
	}
	return r.used(regmem.Guard(mem, func() { regmem.Fetch(b, mem) }))
}

// sumLen is how much is copied before it is summed: it is in the processor's first cache then.
const sumLen = 16 << 10

// fetchSum is fetch, and adds what b has then to a CRC.
func (r *region) fetchSum(b, mem []byte, crc *uint32) reject {
	if !r.fragile {
		fetchSum(b, mem, crc)
		r.exit()
		return accepted
	}
	return r.used(regmem.Guard(mem, func() { fetchSum(b, mem, crc) }))
}

func fetchSum(b, mem []byte, crc *uint32) {
	for len(mem) > 0 {
		n := min(len(mem), sumLen)
		regmem.Fetch(b[:n], mem[:n])
		*crc = mpa.CRC(*crc, b[:n])
		b, mem = b[n:], mem[n:]
	}
}

// change performs an atomic operation, which returns the original value, on memory of the region as
// place writes it.
func (r *region) change(mem []byte, operation func([]byte) uint64) (v uint64, why reject) {
	if !r.fragile {
		v = operation(mem)
		r.exit()
		return v, accepted
	}
	why = r.used(regmem.Guard(mem, func() { v = operation(mem) }))
	return v, why
}

// used ends an access, and the region if its memory is gone.
func (r *region) used(ok bool) reject {
	r.exit()
	if ok {
		return accepted
	}
	r.vanish()
	return rejectSTag
}

// vanish ends the region: from now on its key is invalid, as after deregistration. That still has
// to be done.
func (r *region) vanish() {
	r.guard.Shut()
	if r.parent != nil {
		r.parent.guard.Shut()
	}
}
