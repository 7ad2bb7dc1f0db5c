// SPDX-License-Identifier: BSD-3-Clause

package dat

import (
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/internal/lifetime"
	"github.com/goverbs/goverbs/verbs"
)

// LMRTriplet is a segment of local memory (DAT_LMR_TRIPLET). If it is empty, its other fields are
// ignored.
type LMRTriplet struct {
	VirtualAddress uint64
	SegmentLength  uint32 // bytes
	LMRContext     uint32 // of the LMR
}

// RMRTriplet is memory of the peer (DAT_RMR_TRIPLET). The peer creates it from an LMR with
// [LMR.Remote] and sends it to this side.
type RMRTriplet struct {
	VirtualAddress uint64 // in the peer's address space
	SegmentLength  uint32 // bytes
	RMRContext     uint32 // of the peer's LMR
}

// LMR is a local memory region. All methods may be called concurrently.
type LMR struct {
	node lifetime.Node
	ia   *IA
	pz   *PZ
	mr   *verbs.MR
	priv MemPriv
	va   VAType
}

// LMRParam describes an LMR (DAT_LMR_PARAM).
type LMRParam struct {
	IA                *IA
	PZ                *PZ
	Privileges        MemPriv
	VAType            VAType
	LMRContext        uint32
	RMRContext        uint32
	RegisteredSize    uint64 // bytes
	RegisteredAddress uint64
}

// CreateLMR registers memory of the program (dat_lmr_create with DAT_MEM_TYPE_VIRTUAL), which stays
// in place until Free. It may be Go memory without pointers. The error is [InvalidParameter] for
// privileges that require MemPrivLocalWrite without it.
func (pz *PZ) CreateLMR(mem []byte, priv MemPriv, va VAType) (*LMR, error) {
	return pz.newLMR("PZ.CreateLMR", priv, va,
		func(access verbs.AccessFlags) (*verbs.MR, error) { return pz.pd.RegMR(mem, access) })
}

// AllocLMR registers n bytes of new, zeroed and page-aligned memory outside the Go heap. Free also
// frees the memory. DAT has no such call; this memory suits devices best.
func (pz *PZ) AllocLMR(n int, priv MemPriv) (*LMR, error) {
	return pz.newLMR("PZ.AllocLMR", priv, VATypeVA,
		func(access verbs.AccessFlags) (*verbs.MR, error) { return pz.pd.AllocMR(n, access) })
}

func (pz *PZ) newLMR(call string, priv MemPriv, va VAType,
	register func(verbs.AccessFlags) (*verbs.MR, error)) (*LMR, error) {
	if pz == nil || !pz.node.Enter() {
		return nil, fault(call, InvalidHandle, InvalidHandlePZ, lifetime.ErrClosed)
	}
	defer pz.node.Exit()
	switch {
	case priv&^(MemPrivAll|MemPrivRemoteAtomic) != 0:
		return nil, argument(call, InvalidArg6, "privileges %v", priv)
	case priv&(MemPrivRemoteWrite|MemPrivRemoteAtomic) != 0 && priv&MemPrivLocalWrite == 0:
		return nil, argument(call, InvalidArg6, "privileges %v without LOCAL_WRITE", priv)
	case va != VATypeVA && va != VATypeZB:
		return nil, argument(call, InvalidArg7, "addresses of type %d", uint32(va))
	}
	var access verbs.AccessFlags
	for _, f := range []struct {
		priv   MemPriv
		access verbs.AccessFlags
	}{{MemPrivLocalWrite, verbs.AccessLocalWrite}, {MemPrivRemoteRead, verbs.AccessRemoteRead},
		{MemPrivRemoteWrite, verbs.AccessRemoteWrite}, {MemPrivRemoteAtomic, verbs.AccessRemoteAtomic}} {
		if priv&f.priv != 0 {
			access |= f.access
		}
	}
	if va == VATypeZB {
		access |= verbs.AccessZeroBased
	}
	mr, err := register(access)
	if err != nil {
		return nil, below(call, ResourceMemoryRegion, err)
	}
	l := &LMR{ia: pz.ia, pz: pz, mr: mr, priv: priv, va: va}
	if err := l.node.Init("dat.LMR", l.Free, &pz.node); err != nil {
		return nil, fault(call, InvalidHandle, InvalidHandlePZ, errors.Join(err, mr.Close()))
	}
	note(pz.ia, pz.ia.lms, mr.LKey(), l)
	return l, nil
}

// Query describes the LMR (dat_lmr_query).
func (l *LMR) Query() (LMRParam, error) {
	if l == nil || !l.node.Enter() {
		return LMRParam{}, fault("LMR.Query", InvalidHandle, InvalidHandleLMR, lifetime.ErrClosed)
	}
	defer l.node.Exit()
	return LMRParam{IA: l.ia, PZ: l.pz, Privileges: l.priv, VAType: l.va, LMRContext: l.mr.LKey(),
		RMRContext: l.mr.RKey(), RegisteredSize: uint64(l.mr.Len()), RegisteredAddress: l.mr.Addr()}, nil
}

// Bytes returns the memory. If it was allocated with AllocLMR, it must not be accessed after Free.
func (l *LMR) Bytes() []byte { return l.mr.Bytes() }

// MR returns the underlying region, which belongs to the LMR, for example for [verbs.MR.Word].
func (l *LMR) MR() *verbs.MR { return l.mr }

// Segment returns n bytes starting at offset off as a segment of a DTO. The error is
// [InvalidParameter] if they are not all inside the LMR.
func (l *LMR) Segment(off, n int) (LMRTriplet, error) {
	sge, err := l.mr.SGE(off, n)
	if err != nil {
		return LMRTriplet{}, fault("LMR.Segment", InvalidParameter, NoSubtype, err)
	}
	return LMRTriplet{VirtualAddress: sge.Addr, SegmentLength: sge.Length, LMRContext: sge.LKey}, nil
}

// Remote returns n bytes starting at offset off in the form that a peer uses. The error is that of
// Segment.
func (l *LMR) Remote(off, n int) (RMRTriplet, error) {
	s, err := l.Segment(off, n)
	return RMRTriplet{VirtualAddress: s.VirtualAddress, SegmentLength: s.SegmentLength, RMRContext: l.mr.RKey()}, err
}

// Free deregisters the memory (dat_lmr_free). After it returns, neither the device nor a peer
// accesses the memory. It is idempotent.
func (l *LMR) Free() error {
	const call = "LMR.Free"
	if l == nil {
		return fault(call, InvalidHandle, InvalidHandleLMR, nil)
	}
	if !freeing(&l.node) {
		return nil
	}
	note[uint32, LMR](l.ia, l.ia.lms, l.mr.LKey(), nil)
	err := l.mr.Close()
	l.node.End()
	if errors.Is(err, verbs.ErrBusy) {
		return fault(call, InvalidState, InvalidStateLMRInUse, err)
	}
	return below(call, NoSubtype, err)
}

// SyncRDMARead makes local memory written by the program visible to RDMA Reads of the peer
// (dat_lmr_sync_rdma_read). Memory is coherent on every supported device
// (ProviderAttr.LMRSyncRequired), so it only checks the segments: the error is [InvalidParameter]
// for one that is not inside an LMR of the IA.
func (ia *IA) SyncRDMARead(segments []LMRTriplet) error { return ia.sync("IA.SyncRDMARead", segments) }

// SyncRDMAWrite makes data that the peer wrote by RDMA visible to the program
// (dat_lmr_sync_rdma_write); see SyncRDMARead.
func (ia *IA) SyncRDMAWrite(segments []LMRTriplet) error {
	return ia.sync("IA.SyncRDMAWrite", segments)
}

func (ia *IA) sync(call string, segments []LMRTriplet) error {
	if err := ia.enter(call); err != nil {
		return err
	}
	defer ia.node.Exit()
	ia.mu.Lock()
	defer ia.mu.Unlock()
	for i, s := range segments {
		if s.SegmentLength == 0 {
			continue
		}
		l := ia.lms[s.LMRContext]
		if l == nil || s.VirtualAddress < l.mr.Addr() || s.VirtualAddress-l.mr.Addr() > uint64(l.mr.Len()) ||
			uint64(s.SegmentLength) > uint64(l.mr.Len())-(s.VirtualAddress-l.mr.Addr()) {
			return fault(call, InvalidParameter, InvalidArg2, fmt.Errorf("segment %d, %+v, is not inside an LMR", i, s))
		}
	}
	return nil
}
