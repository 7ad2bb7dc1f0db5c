// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ibverbs"
)

// Conversion between the records of package ibverbs and the public ones. Completions, elements and
// address vectors have the same layout in both, so lists of them are only reinterpreted: a poll
// writes into the caller's list. Everything else is copied.

// Compilation fails if one of these is not 0.
var (
	_ [0]struct{} = [unsafe.Sizeof(WC{}) - unsafe.Sizeof(ibverbs.WC{})]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(WC{}.Flags) - unsafe.Offsetof(ibverbs.WC{}.Flags)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(WC{}.ByteLen) - unsafe.Offsetof(ibverbs.WC{}.ByteLen)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(WC{}.Imm64) - unsafe.Offsetof(ibverbs.WC{}.Imm64)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(WC{}.InvalidatedRKey) - unsafe.Offsetof(ibverbs.WC{}.InvalidatedRKey)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(WC{}.SrcQP) - unsafe.Offsetof(ibverbs.WC{}.SrcQP)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(WC{}.DLIDPathBits) - unsafe.Offsetof(ibverbs.WC{}.DLIDPathBits)]struct{}{}
	_ [0]struct{} = [unsafe.Sizeof(AHAttr{}) - unsafe.Sizeof(ibverbs.AHAttr{})]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(GlobalRoute{}.TrafficClass) -
		unsafe.Offsetof(ibverbs.AHAttr{}.TrafficClass)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(AHAttr{}.DLID) - unsafe.Offsetof(ibverbs.AHAttr{}.DLID)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(AHAttr{}.IsGlobal) - unsafe.Offsetof(ibverbs.AHAttr{}.IsGlobal)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(AHAttr{}.PortNum) - unsafe.Offsetof(ibverbs.AHAttr{}.PortNum)]struct{}{}
	_             = ibverbs.SGE(SGE{})
)

func flatWCs(wcs []WC) []ibverbs.WC {
	return unsafe.Slice((*ibverbs.WC)(unsafe.Pointer(unsafe.SliceData(wcs))), len(wcs))
}

func flatSGEs(sgl []SGE) []ibverbs.SGE {
	return unsafe.Slice((*ibverbs.SGE)(unsafe.Pointer(unsafe.SliceData(sgl))), len(sgl))
}

func flatAH(a *AHAttr) *ibverbs.AHAttr { return (*ibverbs.AHAttr)(unsafe.Pointer(a)) }

func flatCap(c QPCap) ibverbs.QPCap {
	return ibverbs.QPCap{MaxSendWR: uint32(c.MaxSendWR), MaxRecvWR: uint32(c.MaxRecvWR),
		MaxSendSGE: uint32(c.MaxSendSGE), MaxRecvSGE: uint32(c.MaxRecvSGE), MaxInlineData: uint32(c.MaxInlineData)}
}

func publicCap(c ibverbs.QPCap) QPCap {
	return QPCap{MaxSendWR: int(c.MaxSendWR), MaxRecvWR: int(c.MaxRecvWR), MaxSendSGE: int(c.MaxSendSGE),
		MaxRecvSGE: int(c.MaxRecvSGE), MaxInlineData: int(c.MaxInlineData)}
}

// flatAttr converts the attributes that can be changed, which excludes the capacities.
func flatAttr(a *QPAttr) *ibverbs.QPAttr {
	f := &ibverbs.QPAttr{
		State:           uint32(a.State),
		CurState:        uint32(a.CurState),
		PathMTU:         uint32(a.PathMTU),
		QKey:            a.QKey,
		RQPSN:           a.RQPSN,
		SQPSN:           a.SQPSN,
		DestQPNum:       a.DestQPNum,
		AccessFlags:     uint32(a.AccessFlags),
		AH:              *flatAH(&a.AH),
		PKeyIndex:       a.PKeyIndex,
		MaxRdAtomic:     uint8(a.MaxRdAtomic),
		MaxDestRdAtomic: uint8(a.MaxDestRdAtomic),
		MinRNRTimer:     a.MinRNRTimer,
		PortNum:         a.PortNum,
		Timeout:         a.Timeout,
		RetryCnt:        a.RetryCnt,
		RNRRetry:        a.RNRRetry,
	}
	if a.SQDAsyncNotify {
		f.SQDAsyncNotify = 1
	}
	return f
}

func publicAttr(f *ibverbs.QPAttr) QPAttr {
	a := QPAttr{
		State:           QPState(f.State),
		CurState:        QPState(f.CurState),
		PathMTU:         MTU(f.PathMTU),
		QKey:            f.QKey,
		RQPSN:           f.RQPSN,
		SQPSN:           f.SQPSN,
		DestQPNum:       f.DestQPNum,
		AccessFlags:     AccessFlags(f.AccessFlags),
		PKeyIndex:       f.PKeyIndex,
		SQDAsyncNotify:  f.SQDAsyncNotify != 0,
		MaxRdAtomic:     int(f.MaxRdAtomic),
		MaxDestRdAtomic: int(f.MaxDestRdAtomic),
		MinRNRTimer:     f.MinRNRTimer,
		PortNum:         f.PortNum,
		Timeout:         f.Timeout,
		RetryCnt:        f.RetryCnt,
		RNRRetry:        f.RNRRetry,
		Cap:             publicCap(f.Cap),
	}
	*flatAH(&a.AH) = f.AH
	return a
}

func publicSRQAttr(a ibverbs.SRQAttr) SRQAttr {
	return SRQAttr{MaxWR: int(a.MaxWR), MaxSGE: int(a.MaxSGE), SRQLimit: int(a.Limit)}
}

func flatSRQAttr(a SRQAttr) ibverbs.SRQAttr {
	return ibverbs.SRQAttr{MaxWR: uint32(a.MaxWR), MaxSGE: uint32(a.MaxSGE), Limit: uint32(a.SRQLimit)}
}

func publicDevice(d *ibverbs.Device) DeviceInfo {
	return DeviceInfo{Name: d.Name, Provider: "ibverbs", NodeType: NodeType(d.NodeType),
		Transport: Transport(d.Transport), NodeGUID: GUID(d.GUID)}
}

func publicDeviceAttr(a *ibverbs.DeviceAttr) DeviceAttr {
	return DeviceAttr{
		FwVer:           unix.ByteSliceToString(a.FwVer[:]),
		NodeGUID:        GUID(a.NodeGUID),
		SysImageGUID:    GUID(a.SysImageGUID),
		MaxMRSize:       a.MaxMRSize,
		PageSizeCap:     a.PageSizeCap,
		VendorID:        a.VendorID,
		VendorPartID:    a.VendorPartID,
		HWVer:           a.HWVer,
		MaxQP:           int(a.MaxQP),
		MaxQPWR:         int(a.MaxQPWR),
		DeviceCapFlags:  DeviceCapFlags(a.CapFlags),
		MaxSGE:          int(a.MaxSGE),
		MaxSGERd:        int(a.MaxSGERd),
		MaxCQ:           int(a.MaxCQ),
		MaxCQE:          int(a.MaxCQE),
		MaxMR:           int(a.MaxMR),
		MaxPD:           int(a.MaxPD),
		MaxQPRdAtom:     int(a.MaxQPRdAtom),
		MaxResRdAtom:    int(a.MaxResRdAtom),
		MaxQPInitRdAtom: int(a.MaxQPInitRdAtom),
		AtomicCap:       AtomicCap(a.AtomicCap),
		MaxMW:           int(a.MaxMW),
		MaxAH:           int(a.MaxAH),
		MaxSRQ:          int(a.MaxSRQ),
		MaxSRQWR:        int(a.MaxSRQWR),
		MaxSRQSGE:       int(a.MaxSRQSGE),
		MaxPKeys:        int(a.MaxPKeys),
		LocalCAAckDelay: a.LocalCAAckDelay,
		PhysPortCnt:     int(a.PhysPortCnt),
		NumCompVectors:  int(a.NumCompVectors),

		MaxEERdAtom:           int(a.MaxEERdAtom),
		MaxEEInitRdAtom:       int(a.MaxEEInitRdAtom),
		MaxEE:                 int(a.MaxEE),
		MaxRDD:                int(a.MaxRDD),
		MaxRawIPv6QP:          int(a.MaxRawIPv6QP),
		MaxRawEthyQP:          int(a.MaxRawEthyQP),
		MaxMcastGrp:           int(a.MaxMcastGrp),
		MaxMcastQPAttach:      int(a.MaxMcastQPAttach),
		MaxTotalMcastQPAttach: int(a.MaxTotalMcastQPAttach),
		MaxFMR:                int(a.MaxFMR),
		MaxMapPerFMR:          int(a.MaxMapPerFMR),
	}
}

func publicDeviceAttrEx(a *ibverbs.DeviceAttrEx) DeviceAttrEx {
	return DeviceAttrEx{
		ODP: ODPCaps{General: ODPGeneralCaps(a.ODPGeneral), RC: ODPTransportCaps(a.ODPRC),
			UC: ODPTransportCaps(a.ODPUC), UD: ODPTransportCaps(a.ODPUD), XRC: ODPTransportCaps(a.ODPXRC)},
		CompletionTimestampMask: a.CompletionTimestampMask,
		HCACoreClock:            a.HCACoreClock,
		DeviceCapFlagsEx:        DeviceCapFlagsEx(a.CapFlagsEx),
		RawPacketCaps:           a.RawPacketCaps,
		MaxWQTypeRQ:             a.MaxWQTypeRQ,
		MaxDMSize:               a.MaxDMSize,
		TSO:                     TSOCaps{MaxTSO: a.TSOMax, SupportedQPTs: a.TSOQPTs},
		RSS: RSSCaps{SupportedQPTs: a.RSSQPTs, MaxRWQIndirectionTables: a.RSSTables,
			MaxRWQIndirectionTableSize: a.RSSTableSize, RXHashFieldsMask: a.RSSFieldsMask,
			RXHashFunction: a.RSSFunction},
		PacketPacing: PacketPacingCaps{QPRateLimitMin: a.PacingMin, QPRateLimitMax: a.PacingMax,
			SupportedQPTs: a.PacingQPTs},
		TagMatching: TagMatchingCaps{MaxRndvHdrSize: a.TMHdr, MaxNumTags: a.TMTags,
			Flags: a.TMFlags, MaxOps: a.TMOps, MaxSGE: a.TMSGE},
		CQModeration: CQModerationCaps{MaxCQCount: a.ModCount, MaxCQPeriod: a.ModPeriod},
		PCIAtomic: PCIAtomicCaps{FetchAdd: a.PCIFetchAdd, Swap: a.PCISwap,
			CompareSwap: a.PCICompareSwap},
	}
}

func publicPortAttr(a *ibverbs.PortAttr) PortAttr {
	return PortAttr{
		State:       PortState(a.State),
		MaxMTU:      MTU(a.MaxMTU),
		ActiveMTU:   MTU(a.ActiveMTU),
		GIDTblLen:   int(a.GIDTblLen),
		MaxMsgSz:    a.MaxMsgSz,
		PKeyTblLen:  int(a.PKeyTblLen),
		LID:         a.LID,
		SMLID:       a.SMLID,
		LMC:         a.LMC,
		ActiveWidth: a.ActiveWidth,
		ActiveSpeed: a.ActiveSpeed,
		PhysState:   a.PhysState,
		LinkLayer:   LinkLayer(a.LinkLayer),

		PortCapFlags:  a.PortCapFlags,
		PortCapFlags2: a.PortCapFlags2,
		BadPKeyCntr:   a.BadPKeyCntr,
		QKeyViolCntr:  a.QKeyViolCntr,
		MaxVLNum:      a.MaxVLNum,
		SMSL:          a.SMSL,
		SubnetTimeout: a.SubnetTimeout,
		InitTypeReply: a.InitTypeReply,
		Flags:         a.Flags,
	}
}

func publicGID(port, index int, g *ibverbs.GID) GIDEntry {
	return GIDEntry{Port: port, Index: index, GID: g.Raw, Type: GIDType(g.Type),
		NetDev: unix.ByteSliceToString(g.NetDev[:])}
}
