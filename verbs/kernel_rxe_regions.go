// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

import (
	"sync"

	"github.com/goverbs/goverbs/internal/ibverbs"
)

// rxeRegions maps local keys to the regions of a context. librxe has only one way to register
// memory and cannot change a region.
type rxeRegions struct {
	sync.RWMutex
	byKey map[uint32]rxeRegion
}

type rxeRegion struct {
	pd            ibverbs.PD
	start, length uint64 // start is the iova
	write         bool   // the device may write
}

func (r *rxeRegions) add(lkey uint32, region rxeRegion) {
	r.Lock()
	defer r.Unlock()
	if r.byKey == nil {
		r.byKey = make(map[uint32]rxeRegion)
	}
	r.byKey[lkey] = region
}

func (r *rxeRegions) remove(lkey uint32) rxeRegion {
	r.Lock()
	defer r.Unlock()
	region := r.byKey[lkey]
	delete(r.byKey, lkey)
	return region
}

// deny returns why a QP or SRQ of pd may not access the memory that the elements describe, nil if
// it may access all of it.
func (r *rxeRegions) deny(pd ibverbs.PD, sgl []SGE, write bool) *AccessError {
	r.RLock()
	defer r.RUnlock()
	for i, e := range sgl {
		if e.Length == 0 {
			continue // the key is not checked
		}
		why := &AccessError{Key: e.LKey, Addr: e.Addr, Length: uint64(e.Length), Element: i}
		m, ok := r.byKey[e.LKey]
		off := e.Addr - m.start // wraps to a huge value before the region
		switch {
		case !ok:
			why.Fault = AccessBadKey
		case m.pd != pd:
			why.Fault = AccessForeign
		case write && !m.write:
			why.Fault, why.Right = AccessMissingRight, AccessLocalWrite
		case off > m.length || uint64(e.Length) > m.length-off:
			why.Fault = AccessBounds
		default:
			continue
		}
		return why
	}
	return nil
}
