// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

import (
	"sync"

	"github.com/goverbs/goverbs/internal/ibverbs"
)

// rxeRegions are the regions of a context by their local keys. librxe registers memory in one way
// only, and changes no region.
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

// deny returns why a QP or SRQ of pd may not use the memory that elements name, nil if it may use
// all.
func (r *rxeRegions) deny(pd ibverbs.PD, sgl []SGE, write bool) *AccessError {
	r.RLock()
	defer r.RUnlock()
	for i, e := range sgl {
		if e.Length == 0 {
			continue // the key does not count
		}
		why := &AccessError{Key: e.LKey, Addr: e.Addr, Length: uint64(e.Length), Element: i}
		m, ok := r.byKey[e.LKey]
		off := e.Addr - m.start // huge if it is before the region
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
