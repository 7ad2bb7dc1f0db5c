// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs_test

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/verbs"
)

// TestDeviceAttributes: each is what the kernel says, in host order.
func TestDeviceAttributes(t *testing.T) {
	fakeverbs.Start(t)
	a := fakeverbs.DeviceAttr(fakeverbs.Fake0)
	a.MaxMRSize, a.PageSizeCap, a.CapFlags = 1<<41+1, 0x3000, uint64(verbs.DeviceMemMgtExt)|2
	a.MaxQP, a.MaxQPWR, a.MaxSGE, a.MaxSGERd, a.MaxCQ, a.MaxCQE, a.MaxMR, a.MaxPD, a.MaxMW = 101, 102, 103, 104, 105,
		106, 107, 108, 109
	a.MaxQPRdAtom, a.MaxResRdAtom, a.MaxQPInitRdAtom, a.AtomicCap = 110, 111, 112, int(verbs.AtomicGlob)
	a.MaxSRQ, a.MaxSRQWR, a.MaxSRQSGE, a.MaxAH, a.MaxPKeys, a.PhysPortCnt = 113, 114, 115, 116, 117, 2
	a.NumCompVectors, a.MaxEERdAtom, a.MaxEEInitRdAtom, a.MaxEE, a.MaxRDD, a.MaxRawIPv6QP, a.MaxRawEthyQP = 122, 123,
		124, 125, 126, 127, 128
	a.MaxMcastGrp, a.MaxMcastQPAttach, a.MaxTotalMcastQPAttach, a.MaxFMR, a.MaxMapPerFMR = 129, 130, 131, 132, 133
	a.VendorID, a.VendorPartID, a.HWVer, a.SysImageGUID, a.LocalCAAckDelay = 118, 119, 120, 0x0102030405060708, 121
	fakeverbs.SetDeviceAttr(fakeverbs.Fake0, a)
	dev, err := verbs.DeviceByName("fake0")
	require.NoError(t, err)
	require.EqualValues(t, 0x0200000000000001, dev.Info().NodeGUID)
	ctx, err := dev.Open()
	require.NoError(t, err)
	defer func() { require.NoError(t, ctx.Close()) }()
	got, err := ctx.QueryDevice()
	require.NoError(t, err)
	require.Positive(t, got.MaxInlineData)
	got.MaxInlineData = 0
	require.Equal(t, verbs.DeviceAttr{
		FwVer: "1.0.0", NodeGUID: 0x0200000000000001, SysImageGUID: 0x0102030405060708, MaxMRSize: 1<<41 + 1,
		PageSizeCap: 0x3000,
		VendorID:    118, VendorPartID: 119, HWVer: 120, MaxQP: 101, MaxQPWR: 102,
		DeviceCapFlags: verbs.DeviceMemMgtExt | 2, MaxSGE: 103,
		MaxSGERd: 104, MaxCQ: 105, MaxCQE: 106, MaxMR: 107, MaxPD: 108, MaxQPRdAtom: 110, MaxResRdAtom: 111,
		MaxQPInitRdAtom: 112,
		AtomicCap:       verbs.AtomicGlob, MaxMW: 109, MaxAH: 116, MaxSRQ: 113, MaxSRQWR: 114, MaxSRQSGE: 115,
		MaxPKeys:        117,
		LocalCAAckDelay: 121, PhysPortCnt: 2, NumCompVectors: 122, MaxEERdAtom: 123, MaxEEInitRdAtom: 124, MaxEE: 125,
		MaxRDD:       126,
		MaxRawIPv6QP: 127, MaxRawEthyQP: 128, MaxMcastGrp: 129, MaxMcastQPAttach: 130, MaxTotalMcastQPAttach: 131,
		MaxFMR:       132,
		MaxMapPerFMR: 133,
	}, got)
}

// TestPortAttributes: of both ports.
func TestPortAttributes(t *testing.T) {
	fakeverbs.Start(t)
	a := fakeverbs.DeviceAttr(fakeverbs.Fake0)
	a.PhysPortCnt = 2
	fakeverbs.SetDeviceAttr(fakeverbs.Fake0, a)
	for port := 1; port <= 2; port++ {
		fakeverbs.SetPortAttr(fakeverbs.Fake0, port,
			fakeverbs.Port{State: 3, MaxMTU: 5, ActiveMTU: 2, GIDTableLen: 16, PKeyTableLen: 60 + port,
				MaxMsgSize: 1<<31 + 1, LID: 0x0102, SMLID: 0x0304, LMC: 5, ActiveWidth: 8, ActiveSpeed: 32,
				PhysState: 7, LinkLayer: 1, CapFlags: 0x0506, CapFlags2: 0x0708,
				BadPKeyCntr: 9, QKeyViolCntr: 10, MaxVLNum: 11, SMSL: 12, SubnetTimeout: 13, InitTypeReply: 14,
				Flags: 15})
	}
	r := openRig(t, "fake0")
	for port := 1; port <= 2; port++ {
		got, err := r.ctx.QueryPort(port)
		require.NoError(t, err)
		require.Equal(t, verbs.PortAttr{State: verbs.PortState(3), MaxMTU: verbs.MTU4096, ActiveMTU: verbs.MTU512,
			GIDTblLen: 16, PKeyTblLen: 60 + port, MaxMsgSz: 1<<31 + 1, LID: 0x0102, SMLID: 0x0304, LMC: 5,
			ActiveWidth: 8, ActiveSpeed: 32, PhysState: 7,
			LinkLayer: verbs.LinkLayer(1), PortCapFlags: 0x0506, PortCapFlags2: 0x0708, BadPKeyCntr: 9,
			QKeyViolCntr: 10, MaxVLNum: 11, SMSL: 12,
			SubnetTimeout: 13, InitTypeReply: 14, Flags: 15}, got)
	}
}

// TestExtendedAttributes: each is what the library says; without the call, or for a kernel without
// it, there are none.
func TestExtendedAttributes(t *testing.T) {
	fakeverbs.Start(t)
	const first = 1<<32 + 0x0101
	a := fakeverbs.DeviceAttr(fakeverbs.Fake0)
	a.ODPGeneral, a.ODPRC, a.ODPUC, a.ODPUD = 1<<40|1, 2, 3, 1<<30|4
	fakeverbs.SetDeviceAttr(fakeverbs.Fake0, a)
	fakeverbs.SetExtended(fakeverbs.Fake0, first)
	ctx := openRig(t, "fake0").ctx
	got, err := ctx.QueryDeviceEx()
	require.NoError(t, err)
	const n = first & 0xffff
	require.Equal(t, verbs.DeviceAttrEx{
		ODP: verbs.ODPCaps{General: 1<<40 | verbs.ODPSupport, RC: 2, UC: 3, UD: 1<<30 | 4,
			XRC: n + 26},
		CompletionTimestampMask: first, HCACoreClock: first + 1, DeviceCapFlagsEx: first + 2,
		TSO: verbs.TSOCaps{MaxTSO: n + 3, SupportedQPTs: n + 4},
		RSS: verbs.RSSCaps{SupportedQPTs: n + 5, MaxRWQIndirectionTables: n + 6, MaxRWQIndirectionTableSize: n + 7,
			RXHashFieldsMask: first + 8,
			RXHashFunction:   n&0xff + 9},
		MaxWQTypeRQ:   n + 10,
		PacketPacing:  verbs.PacketPacingCaps{QPRateLimitMin: n + 11, QPRateLimitMax: n + 12, SupportedQPTs: n + 13},
		RawPacketCaps: n + 14,
		TagMatching: verbs.TagMatchingCaps{MaxRndvHdrSize: n + 15, MaxNumTags: n + 16, Flags: n + 17, MaxOps: n + 18,
			MaxSGE: n + 19}, CQModeration: verbs.CQModerationCaps{MaxCQCount: n + 20, MaxCQPeriod: n + 21},
		MaxDMSize: first + 22,
		PCIAtomic: verbs.PCIAtomicCaps{FetchAdd: n + 23, Swap: n + 24, CompareSwap: n + 25},
	}, got)

	for _, none := range []syscall.Errno{syscall.EOPNOTSUPP, syscall.ENOSYS} {
		fakeverbs.Fail("ibv_query_device_ex", 1, none)
		got, err = ctx.QueryDeviceEx()
		require.NoError(t, err)
		require.Zero(t, got)
	}
	fakeverbs.Fail("ibv_query_device_ex", 1, syscall.EIO)
	_, err = ctx.QueryDeviceEx()
	require.ErrorIs(t, err, syscall.EIO)
}

// TestCompVector: a CQ is made on the vector that it asks for, and one that the device does not
// have is refused.
func TestCompVector(t *testing.T) {
	fakeverbs.Start(t)
	for dev, name := range []string{"fake0", "fake1"} {
		a := fakeverbs.DeviceAttr(dev)
		a.NumCompVectors = 3
		fakeverbs.SetDeviceAttr(dev, a)
		ctx := openRig(t, name).ctx
		attr, err := ctx.QueryDevice()
		require.NoError(t, err)
		require.Equal(t, 3, attr.NumCompVectors)
		for vector := range 3 {
			_, err := ctx.CreateCQ(verbs.CQConfig{CompVector: vector})
			require.NoError(t, err)
			require.EqualValues(t, vector, fakeverbs.Args("ibv_create_cq")[4])
		}
		for _, vector := range []int{-1, 3} {
			_, err := ctx.CreateCQ(verbs.CQConfig{CompVector: vector})
			require.ErrorIs(t, err, verbs.ErrInvalid)
			require.ErrorContains(t, err, "completion vector")
		}
	}
}

// TestTables: a row of the table of GIDs has type and index, one that is empty or of zeros is none;
// partition keys are in host order.
func TestTables(t *testing.T) {
	r := newRig(t, "fake0")
	fakeverbs.SetGIDs(fakeverbs.Fake0, []fakeverbs.GID{
		{GID: [16]byte{0: 0xfe, 1: 0x80, 15: 1}, Port: 1, Index: 2, Type: 2, IfIndex: 1},
		{Port: 1, Index: 3, Type: 1},
	})
	got, err := r.ctx.QueryGID(1, 2)
	require.NoError(t, err)
	require.Equal(t, verbs.GIDEntry{GID: verbs.GID{0: 0xfe, 1: 0x80, 15: 1}, Port: 1, Index: 2, Type: verbs.GIDType(2),
		NetDev: "lo"}, got)
	for _, index := range []int{0, 3} {
		_, err = r.ctx.QueryGID(1, index)
		require.ErrorIs(t, err, verbs.ErrNoGID)
	}

	keys := []uint16{0xffff, 0x8001, 0x7f02, 0}
	fakeverbs.SetPKeys(fakeverbs.Fake0, keys...)
	for i, key := range keys {
		got, err := r.ctx.QueryPKey(1, i)
		require.NoError(t, err)
		require.Equal(t, key, got)
	}
}

// TestPathAttributes: what a path is made of arrives, in an address handle and in a QP, and comes
// back from the QP.
func TestPathAttributes(t *testing.T) {
	path := verbs.AHAttr{IsGlobal: true, PortNum: 1, DLID: 0x0102, SL: 3, SrcPathBits: 4, StaticRate: 5,
		GRH: verbs.GlobalRoute{DGID: verbs.GID{0: 0xfe, 15: 9}, FlowLabel: 0xabcde, SGIDIndex: 2, HopLimit: 64,
			TrafficClass: 7}}
	inC := fakeverbs.AHAttr{DGID: path.GRH.DGID, FlowLabel: 0xabcde, SGIDIndex: 2, HopLimit: 64, TrafficClass: 7,
		DLID: 0x0102, SL: 3, SrcPathBits: 4, StaticRate: 5, IsGlobal: true, Port: 1}
	r := newRig(t, "fake0")
	_, err := r.pd.CreateAH(path)
	require.NoError(t, err)
	got, ok := fakeverbs.AHByID(fakeverbs.LastID("AH"))
	require.True(t, ok)
	require.Equal(t, inC, got)

	require.NoError(t, r.qp.Modify(
		verbs.QPAttr{State: verbs.QPStateInit, PortNum: 1, PKeyIndex: 0x0203, AccessFlags: verbs.AccessRemoteRead},
		verbs.QPAttrState|verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrAccessFlags))
	require.NoError(t, r.qp.Modify(
		verbs.QPAttr{State: verbs.QPStateRTR, PathMTU: verbs.MTU2048, DestQPNum: 0x040506, RQPSN: 0x070809,
			MaxDestRdAtomic: 11, MinRNRTimer: 12, AH: path},
		verbs.QPAttrState|verbs.QPAttrAV|verbs.QPAttrPathMTU|verbs.QPAttrDestQPN|
			verbs.QPAttrRQPSN|verbs.QPAttrMaxDestRdAtomic|verbs.QPAttrMinRNRTimer))
	require.NoError(t, r.qp.Modify(
		verbs.QPAttr{State: verbs.QPStateRTS, CurState: verbs.QPStateRTR, SQPSN: 0x0a0b0c, Timeout: 14, RetryCnt: 5,
			RNRRetry: 6, MaxRdAtomic: 13},
		verbs.QPAttrState|verbs.QPAttrCurState|verbs.QPAttrSQPSN|verbs.QPAttrTimeout|verbs.QPAttrRetryCnt|
			verbs.QPAttrRNRRetry|
			verbs.QPAttrMaxRdAtomic))
	require.NoError(t, r.qp.Modify(verbs.QPAttr{State: verbs.QPStateSQD, SQDAsyncNotify: true},
		verbs.QPAttrState|verbs.QPAttrSQDAsyncNotify))
	qp, ok := fakeverbs.QPByNum(r.qp.Num())
	require.True(t, ok)
	require.Equal(t, inC, qp.AH)
	attr, err := r.qp.Query()
	require.NoError(t, err)
	require.Equal(t, verbs.QPAttr{State: verbs.QPStateSQD, CurState: verbs.QPStateSQD, PathMTU: verbs.MTU2048,
		RQPSN: 0x070809, SQPSN: 0x0a0b0c, DestQPNum: 0x040506, AccessFlags: verbs.AccessRemoteRead, PKeyIndex: 0x0203,
		PortNum: 1, MaxRdAtomic: 13, MaxDestRdAtomic: 11,
		MinRNRTimer: 12, Timeout: 14, RetryCnt: 5, RNRRetry: 6, AH: path, SQDAsyncNotify: true, Cap: r.qp.Cap()}, attr)

	// An address handle without a global route is one of InfiniBand.
	port := fakeverbs.PortAttr(fakeverbs.Fake0, 1)
	port.LinkLayer = 1
	fakeverbs.SetPortAttr(fakeverbs.Fake0, 1, port)
	_, err = r.pd.CreateAH(verbs.AHAttr{PortNum: 1, DLID: 7})
	require.NoError(t, err)
	got, ok = fakeverbs.AHByID(fakeverbs.LastID("AH"))
	require.True(t, ok)
	require.Equal(t, fakeverbs.AHAttr{DLID: 7, Port: 1}, got)

	ud := r.newQP(verbs.QPConfig{Type: verbs.QPTypeUD})
	require.NoError(t, ud.Modify(verbs.QPAttr{State: verbs.QPStateInit, PortNum: 1, QKey: 0x11121314},
		verbs.QPAttrState|verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrQKey))
	attr, err = ud.Query()
	require.NoError(t, err)
	require.EqualValues(t, 0x11121314, attr.QKey)
}
