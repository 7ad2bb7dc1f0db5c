// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

import "sync"

// rxeRegions are the regions of a context by their local keys. librxe registers memory in one way only, and changes no region.
type rxeRegions struct {
	sync.RWMutex
	byKey map[uint32]rxeRegion
}

type rxeRegion struct {
	pd            rawPD
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

// allow reports whether a QP or SRQ of pd may use all the memory that elements name.
func (r *rxeRegions) allow(pd rawPD, sgl []SGE, write bool) bool {
	r.RLock()
	defer r.RUnlock()
	for _, e := range sgl {
		if e.Length == 0 {
			continue // the key does not count
		}
		m, ok := r.byKey[e.LKey]
		off := e.Addr - m.start // huge if it is before the region
		if !ok || m.pd != pd || write && !m.write || off > m.length || uint64(e.Length) > m.length-off {
			return false
		}
	}
	return true
}
