// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"github.com/goverbs/goverbs/internal/iwarp/mpa"
	"github.com/goverbs/goverbs/internal/regmem"
)

// With Config.GuardMemory, the memory of a region may disappear at any time. This file contains
// every access to registered memory, with two exceptions: the system call that sends it, which then
// fails with an error, and inline data, which belong to the program until the post returns.

// place writes data to the region's memory and exits the region, which the caller has entered. It
// returns rejectSTag if the memory is gone.
func (r *region) place(mem, data []byte) reject {
	if !r.fragile {
		regmem.Place(mem, data)
		r.exit()
		return accepted
	}
	return r.used(regmem.Guard(mem, func() { regmem.Place(mem, data) }))
}

// fetch is the reverse of place: it reads the region's memory into b.
func (r *region) fetch(b, mem []byte) reject {
	if !r.fragile {
		regmem.Fetch(b, mem)
		r.exit()
		return accepted
	}
	return r.used(regmem.Guard(mem, func() { regmem.Fetch(b, mem) }))
}

// sumLen is how much is copied before its CRC is computed, while it is still in the L1 cache.
const sumLen = 16 << 10

// fetchSum is like fetch, and also adds the bytes in b to a CRC.
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

// change performs an atomic operation on the region's memory and returns the original value.
// Otherwise it is like place.
func (r *region) change(mem []byte, operation func([]byte) uint64) (v uint64, why reject) {
	if !r.fragile {
		v = operation(mem)
		r.exit()
		return v, accepted
	}
	why = r.used(regmem.Guard(mem, func() { v = operation(mem) }))
	return v, why
}

// used ends an access, and invalidates the region if its memory is gone.
func (r *region) used(ok bool) reject {
	r.exit()
	if ok {
		return accepted
	}
	r.vanish()
	return rejectSTag
}

// vanish invalidates the region's key, as deregistration does. The program must still deregister
// the region.
func (r *region) vanish() {
	r.guard.Shut()
	if r.parent != nil {
		r.parent.guard.Shut()
	}
}
