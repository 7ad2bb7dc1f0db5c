// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/asleep"
	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/verbs"
)

// rig is one of everything on a device of fakeverbs.
type rig struct {
	testing.TB
	dev *verbs.Device
	ctx *verbs.Context
	pd  *verbs.PD
	mr  *verbs.MR
	cq  *verbs.CQ
	qp  *verbs.QP
}

const allRights = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic |
	verbs.AccessMWBind

func newRig(t testing.TB, dev string) *rig {
	t.Helper()
	fakeverbs.Start(t)
	return openRig(t, dev)
}

// newRXERig has a device of which the provider believes that it is rxe's, so that its requests are
// in ledgers.
func newRXERig(t testing.TB) *rig {
	t.Helper()
	fakeverbs.Start(t)
	attr := fakeverbs.DeviceAttr(fakeverbs.Fake0)
	attr.VendorID = 0xffffff // RXE_VENDOR_ID
	fakeverbs.SetDeviceAttr(fakeverbs.Fake0, attr)
	return openRig(t, "fake0")
}

func openRig(t testing.TB, dev string) *rig {
	t.Helper()
	r := &rig{TB: t}
	var err error
	r.dev, err = verbs.DeviceByName(dev)
	require.NoError(t, err)
	r.ctx, err = r.dev.Open()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.ctx.CloseAll()) })
	r.pd, err = r.ctx.AllocPD()
	require.NoError(t, err)
	r.mr, err = r.pd.AllocMR(4096, allRights)
	require.NoError(t, err)
	r.cq, err = r.ctx.CreateCQ(verbs.CQConfig{})
	require.NoError(t, err)
	r.qp = r.newQP(verbs.QPConfig{})
	return r
}

func (r *rig) newQP(cfg verbs.QPConfig) *verbs.QP {
	r.Helper()
	cfg.SendCQ, cfg.RecvCQ = r.cq, r.cq
	if cfg.Cap == (verbs.QPCap{}) {
		cfg.Cap = verbs.QPCap{MaxSendSGE: 4, MaxRecvSGE: 4, MaxInlineData: 64}
	}
	qp, err := r.pd.CreateQP(cfg)
	require.NoError(r, err)
	return qp
}

// up brings a QP to RTS, on iWARP as the connection manager does.
func (r *rig) up(qp *verbs.QP) {
	r.Helper()
	if r.dev.Info().Transport != verbs.TransportIWARP {
		toRTS(r, qp)
		return
	}
	require.NoError(r, qp.Modify(verbs.QPAttr{State: verbs.QPStateInit}, verbs.QPAttrState|verbs.QPAttrAccessFlags))
	qp.Provider().(verbs.ProviderQPMover).Moved(verbs.QPStateRTS, nil)
	qp.Provider().(verbs.ProviderQPLimiter).SetDepths(4, 4)
}

func (r *rig) srq() *verbs.SRQ {
	r.Helper()
	s, err := r.pd.CreateSRQ(verbs.SRQAttr{})
	require.NoError(r, err)
	return s
}

func (r *rig) sge(off, n int) verbs.SGE {
	r.Helper()
	s, err := r.mr.SGE(off, n)
	require.NoError(r, err)
	return s
}

func (r *rig) post(qp *verbs.QP, wrs ...verbs.SendWR) {
	r.Helper()
	n, err := qp.PostSend(wrs)
	require.NoError(r, err)
	require.Equal(r, len(wrs), n)
}

func (r *rig) poll() []verbs.WC {
	r.Helper()
	wcs := make([]verbs.WC, 200)
	n, err := r.cq.Poll(wcs)
	require.NoError(r, err)
	return wcs[:n]
}

func wcIDs(wcs []verbs.WC) []uint64 {
	ids := []uint64{}
	for _, wc := range wcs {
		ids = append(ids, wc.ID)
	}
	return ids
}

// TestNothingOfTheLibraries: whatever the provider calls is fakeverbs'.
func TestNothingOfTheLibraries(t *testing.T) {
	_, err := verbs.Devices()
	require.NoError(t, err)
	faked, missing := fakeverbs.Lookups()
	require.Contains(t, faked, "ibv_create_qp")
	require.Empty(t, missing)
}

func TestKernelDevices(t *testing.T) {
	fakeverbs.Start(t)
	first, err := verbs.Devices()
	require.NoError(t, err)
	require.Equal(t, "fake0 (ibverbs)", first[0].String())
	require.Equal(t, verbs.TransportIWARP, first[1].Info().Transport)
	require.Equal(t, verbs.NodeRNIC, first[1].Info().NodeType)
	fakeverbs.SetHidden(fakeverbs.Fake0, true)
	second, err := verbs.Devices()
	require.NoError(t, err)
	require.Equal(t, first[1:], second)
	_, err = first[0].Open()
	require.ErrorIs(t, err, verbs.ErrNoDevice, "it was unplugged")
	fakeverbs.SetHidden(fakeverbs.Fake0, false)
	third, err := verbs.Devices()
	require.NoError(t, err)
	require.Same(t, first[0], third[0])

	// A kernel without RDMA has no devices; what else goes wrong is an error.
	fakeverbs.Fail("ibv_get_device_list", 1, syscall.ENOSYS)
	none, err := verbs.Devices()
	require.NoError(t, err)
	require.Empty(t, none)
	fakeverbs.Fail("ibv_get_device_list", 1, syscall.EMFILE)
	_, err = verbs.Devices()
	require.ErrorIs(t, err, syscall.EMFILE)
}

// TestForkInit: ibv_fork_init is called once in a process, before the first device is opened; its
// failure is nobody's.
func TestForkInit(t *testing.T) {
	const variable = "GOVERBS_TEST_FORK_INIT"
	if os.Getenv(variable) == "" {
		for _, outcome := range []syscall.Errno{0, syscall.EINVAL} {
			cmd := exec.Command(os.Args[0], "-test.run=^TestForkInit$")
			cmd.Env = append(os.Environ(), variable+"="+strconv.Itoa(int(outcome)))
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.Contains(t, string(out), "PASS")
		}
		return
	}
	// A process in which no device has been open.
	fakeverbs.Start(t)
	outcome, err := strconv.Atoi(os.Getenv(variable))
	require.NoError(t, err)
	fakeverbs.ForkStatus(syscall.Errno(outcome), 0)
	dev, err := verbs.DeviceByName("fake0")
	require.NoError(t, err)
	require.Zero(t, fakeverbs.Calls("ibv_fork_init"), "not by looking at devices")
	fakeverbs.Fail("ibv_open_device", 1, syscall.EIO)
	_, err = dev.Open()
	require.ErrorIs(t, err, syscall.EIO)
	require.Equal(t, 1, fakeverbs.Calls("ibv_fork_init"), "before the device is opened")
	for range 2 {
		ctx, err := dev.Open()
		require.NoError(t, err)
		require.NoError(t, ctx.Close())
	}
	require.Equal(t, 1, fakeverbs.Calls("ibv_fork_init"))
}

// TestModifyExplained: an EINVAL of ibv_modify_qp comes with what was asked for, another errno does
// not need it.
func TestModifyExplained(t *testing.T) {
	r := newRig(t, "fake0")
	toInit := func() error {
		return r.qp.Modify(verbs.QPAttr{State: verbs.QPStateInit, PortNum: 1},
			verbs.QPAttrState|verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrAccessFlags)
	}
	const explanation = "one of the values is wrong"
	fakeverbs.Fail("ibv_modify_qp", 1, syscall.EINVAL)
	err := toInit()
	require.ErrorIs(t, err, verbs.ErrInvalid)
	require.ErrorIs(t, err, syscall.EINVAL)
	for _, part := range []string{"fake0", "ibv_modify_qp", "RESET to INIT", verbs.QPAttrPKeyIndex.String(),
		explanation, "PortNum:1"} {
		require.ErrorContains(t, err, part)
	}
	require.Equal(t, verbs.QPStateReset, r.qp.State())
	fakeverbs.Fail("ibv_modify_qp", 1, syscall.ENOMEM)
	err = toInit()
	require.ErrorIs(t, err, syscall.ENOMEM)
	require.NotContains(t, err.Error(), explanation)
	// What the state diagram does not have never gets there.
	before := fakeverbs.Calls("ibv_modify_qp")
	require.ErrorIs(t, r.qp.Modify(verbs.QPAttr{State: verbs.QPStateRTS}, verbs.QPAttrState), verbs.ErrState)
	require.Equal(t, before, fakeverbs.Calls("ibv_modify_qp"))
	require.NoError(t, toInit())
}

// TestErrorsOfCalls: every call that fails says which one it was, on which device, and why;
// EOPNOTSUPP is ErrNotSupported.
func TestErrorsOfCalls(t *testing.T) {
	dest := verbs.AHAttr{IsGlobal: true, PortNum: 1}
	group := verbs.GID{0: 0xff, 15: 1}
	for call, do := range map[string]func(r *rig) error{
		"ibv_open_device":         func(r *rig) error { _, err := r.dev.Open(); return err },
		"ibv_query_port":          func(r *rig) error { _, err := r.ctx.QueryPort(1); return err },
		"ibv_query_gid_ex":        func(r *rig) error { _, err := r.ctx.QueryGID(1, 0); return err },
		"ibv_query_pkey":          func(r *rig) error { _, err := r.ctx.QueryPKey(1, 0); return err },
		"ibv_alloc_pd":            func(r *rig) error { _, err := r.ctx.AllocPD(); return err },
		"ibv_reg_mr":              func(r *rig) error { _, err := r.pd.AllocMR(4096, 0); return err },
		"ibv_reg_dmabuf_mr":       func(r *rig) error { _, err := r.pd.RegDmabufMR(0, 4096, 0, 3, 0); return err },
		"ibv_alloc_mw":            func(r *rig) error { _, err := r.pd.AllocMW(verbs.MWType2); return err },
		"ibv_create_comp_channel": func(r *rig) error { _, err := r.ctx.CreateCompChannel(); return err },
		"ibv_create_cq":           func(r *rig) error { _, err := r.ctx.CreateCQ(verbs.CQConfig{}); return err },
		"ibv_resize_cq":           func(r *rig) error { return r.cq.Resize(500) },
		"ibv_req_notify_cq":       func(r *rig) error { return r.cq.ReqNotify(false) },
		"ibv_create_qp": func(r *rig) error {
			_,
				err := r.pd.CreateQP(verbs.QPConfig{SendCQ: r.cq, RecvCQ: r.cq})
			return err
		},
		"ibv_query_qp":   func(r *rig) error { _, err := r.qp.Query(); return err },
		"ibv_create_srq": func(r *rig) error { _, err := r.pd.CreateSRQ(verbs.SRQAttr{}); return err },
		"ibv_create_ah":  func(r *rig) error { _, err := r.pd.CreateAH(dest); return err },
		"ibv_modify_qp": func(r *rig) error {
			return r.qp.Modify(verbs.QPAttr{State: verbs.QPStateInit, PortNum: 1},
				verbs.QPAttrState|verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrAccessFlags)
		},
		"ibv_post_send": func(r *rig) error {
			r.up(r.qp)
			_, err := r.qp.PostSend([]verbs.SendWR{{Opcode: verbs.WRSend}})
			return err
		},
		"ibv_post_recv": func(r *rig) error {
			r.up(r.qp)
			_, err := r.qp.PostRecv([]verbs.RecvWR{{}})
			return err
		},
		"ibv_query_device": func(r *rig) error { _, err := r.dev.Open(); return err },
		"ibv_query_srq":    func(r *rig) error { _, err := r.srq().Query(); return err },
		"ibv_modify_srq": func(r *rig) error {
			return r.srq().Modify(verbs.SRQAttr{SRQLimit: 1},
				verbs.SRQAttrLimit)
		},
		"ibv_post_srq_recv": func(r *rig) error {
			_, err := r.srq().PostRecv([]verbs.RecvWR{{}})
			return err
		},
		"ibv_bind_mw": func(r *rig) error {
			r.up(r.qp)
			mw, err := r.pd.AllocMW(verbs.MWType1)
			require.NoError(r, err)
			return r.qp.BindMW(1, 0,
				verbs.MWBind{MW: mw, MR: r.mr, Addr: r.mr.Addr(), Length: 8, Access: verbs.AccessRemoteRead})
		},
		"ibv_attach_mcast": func(r *rig) error {
			return r.newQP(verbs.QPConfig{Type: verbs.QPTypeUD}).AttachMcast(group,
				0)
		},
		"ibv_detach_mcast": func(r *rig) error {
			return r.newQP(verbs.QPConfig{Type: verbs.QPTypeUD}).DetachMcast(group,
				0)
		},
		"ibv_rereg_mr": func(r *rig) error {
			return r.mr.Rereg(verbs.ReregAccess, nil, nil,
				verbs.AccessLocalWrite)
		},
	} {
		t.Run(call, func(t *testing.T) {
			r := newRig(t, "fake0")
			inC := call
			if call == "ibv_reg_mr" {
				inC = "ibv_reg_mr_iova2" // what the macro calls
			}
			fakeverbs.Fail(inC, 1, syscall.EOPNOTSUPP)
			err := do(r)
			require.ErrorIs(t, err, verbs.ErrNotSupported)
			require.ErrorContains(t, err, "fake0")
			require.ErrorContains(t, err, call)
			var errno syscall.Errno
			require.ErrorAs(t, err, &errno)
			require.Equal(t, syscall.EOPNOTSUPP, errno)
			require.ErrorContains(t, err, "EOPNOTSUPP")
			var op *verbs.OpError
			require.ErrorAs(t, err, &op)
		})
	}
	r := newRig(t, "fake0")
	fakeverbs.Fail("ibv_poll_cq", 1, syscall.EIO)
	_, err := r.cq.Poll(make([]verbs.WC, 1))
	require.ErrorContains(t, err, "ibv_poll_cq")
}

func TestRegistration(t *testing.T) {
	r := newRig(t, "fake0")
	m, ok := fakeverbs.MRByKey(r.mr.LKey())
	require.True(t, ok)
	require.Equal(t, m.Addr, m.IOVA)
	require.EqualValues(t, 4096, m.Length)
	require.EqualValues(t, allRights, m.Access)

	// Flags that the kernel takes reach it; huge pages and offsets are the provider's own business.
	buf := r.mr.Bytes()
	for _, c := range []struct {
		access verbs.AccessFlags
		iova   uint64
	}{
		{verbs.AccessOnDemand, m.Addr},
		{verbs.AccessRelaxedOrdering, 1 << 40},
		{verbs.AccessHugeTLB, 0x2000},
		{verbs.AccessZeroBased, 0},
	} {
		mr, err := r.pd.RegMRIova(buf, c.iova, c.access)
		require.NoError(t, err)
		m, _ := fakeverbs.MRByKey(mr.LKey())
		require.Equal(t, c.iova, m.IOVA)
		require.EqualValues(t, c.access&^(verbs.AccessHugeTLB|verbs.AccessZeroBased), m.Access)
	}
	_, err := r.pd.RegMRIova(buf, 1, 0)
	require.ErrorIs(t, err, verbs.ErrNotSupported, "the kernel wants the offset in the page to be the memory's")

	d, err := r.pd.RegDmabufMR(64, 128, 0x3000, 7, verbs.AccessLocalWrite)
	require.NoError(t, err)
	m, _ = fakeverbs.MRByKey(d.LKey())
	require.Equal(t, fakeverbs.MR{Length: 128, IOVA: 0x3000, Offset: 64, Access: 1, RKey: d.RKey(), PD: m.PD, FD: 7}, m)
}

// TestOnDemandPaging: a device without it refuses the flag with EINVAL, which says nothing.
func TestOnDemandPaging(t *testing.T) {
	r := newRig(t, "fake0")
	fakeverbs.Fail("ibv_reg_mr_iova2", 1, syscall.EINVAL)
	_, err := r.pd.AllocMR(4096, verbs.AccessOnDemand)
	require.ErrorIs(t, err, verbs.ErrInvalid, "fake0 has on-demand paging")
	require.NotErrorIs(t, err, verbs.ErrNotSupported)
	attr := fakeverbs.DeviceAttr(fakeverbs.Fake0)
	attr.ODPGeneral = 0
	fakeverbs.SetDeviceAttr(fakeverbs.Fake0, attr)
	fakeverbs.Fail("ibv_reg_mr_iova2", 1, syscall.EINVAL)
	_, err = r.pd.AllocMR(4096, verbs.AccessOnDemand)
	require.ErrorIs(t, err, verbs.ErrNotSupported)
	require.ErrorIs(t, err, syscall.EINVAL)
}

func TestReregistration(t *testing.T) {
	r := newRig(t, "fake0")
	fakeverbs.Fail("ibv_rereg_mr", 1, syscall.EIO)
	require.ErrorIs(t, r.mr.Rereg(verbs.ReregAccess, nil, nil, verbs.AccessLocalWrite), verbs.ErrMRLost,
		"IBV_REREG_MR_ERR_CMD")
	mr, err := r.pd.AllocMR(4096, verbs.AccessLocalWrite)
	require.NoError(t, err)
	require.NoError(t, mr.Rereg(verbs.ReregAccess, nil, nil, verbs.AccessLocalWrite|verbs.AccessRemoteRead))
	m, _ := fakeverbs.MRByKey(mr.LKey())
	require.EqualValues(t, verbs.AccessLocalWrite|verbs.AccessRemoteRead, m.Access)
}

// TestRequestsArrive posts one request of every opcode in one list, on UD also datagrams, and looks
// at what arrived in C.
func TestRequestsArrive(t *testing.T) {
	r := newRig(t, "fake0")
	r.up(r.qp)
	mw, err := r.pd.AllocMW(verbs.MWType2)
	require.NoError(t, err)
	key, s := mw.NextRKey(), r.sge(8, 16)
	copy(r.mr.Bytes()[8:], "inline data here")
	r.post(r.qp,
		verbs.SendWR{ID: 1, Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled, SGL: []verbs.SGE{s, r.sge(0, 8)},
			RemoteAddr: 1 << 40, RKey: 9},
		verbs.SendWR{ID: 2, Opcode: verbs.WRRDMAWriteWithImm, SGL: []verbs.SGE{s}, RemoteAddr: 2, RKey: 3,
			Imm: 0x01020304},
		verbs.SendWR{ID: 3, Opcode: verbs.WRSend, Flags: verbs.SendInline | verbs.SendSolicited, SGL: []verbs.SGE{s}},
		verbs.SendWR{ID: 4, Opcode: verbs.WRSendWithImm, Imm: 7},
		verbs.SendWR{ID: 5, Opcode: verbs.WRRDMARead, Flags: verbs.SendFence, SGL: []verbs.SGE{s}, RemoteAddr: 5,
			RKey: 6},
		verbs.SendWR{ID: 6, Opcode: verbs.WRAtomicCmpAndSwp, SGL: []verbs.SGE{r.sge(0, 8)}, RemoteAddr: 16, RKey: 6,
			Compare: 10, Swap: 11}, verbs.SendWR{ID: 7, Opcode: verbs.WRAtomicFetchAndAdd,
			SGL: []verbs.SGE{r.sge(0, 8)}, RemoteAddr: 24, RKey: 6, Add: 12},
		verbs.SendWR{ID: 8, Opcode: verbs.WRSendWithInv, InvalidateRKey: 0xabc},
		verbs.SendWR{ID: 9, Opcode: verbs.WRBindMW, RKey: key,
			Bind: &verbs.MWBind{MW: mw, MR: r.mr, Addr: r.mr.Addr() + 64, Length: 32, Access: verbs.AccessRemoteRead}},
		verbs.SendWR{ID: 10, Opcode: verbs.WRLocalInv, InvalidateRKey: key},
	)
	require.Equal(t, key, mw.RKey())
	got := fakeverbs.Posted()
	require.Len(t, got, 10)
	for i := range got {
		require.EqualValues(t, i+1, got[i].WRID)
		require.Equal(t, r.qp.Num(), got[i].QPN)
	}
	flat := func(s verbs.SGE) fakeverbs.SGE { return fakeverbs.SGE{Addr: s.Addr, Length: s.Length, LKey: s.LKey} }
	require.Equal(t, []fakeverbs.SGE{flat(s), flat(r.sge(0, 8))}, got[0].SGEs)
	require.EqualValues(t, verbs.SendSignaled, got[0].Flags)
	require.EqualValues(t, []uint64{1 << 40, 9}, []uint64{got[0].RemoteAddr, uint64(got[0].RKey)})
	require.EqualValues(t, 0x01020304, got[1].Imm)
	require.Equal(t, "inline data here", string(got[2].Inline))
	require.EqualValues(t, verbs.SendInline|verbs.SendSolicited, got[2].Flags)
	require.EqualValues(t, 7, got[3].Imm)
	require.Zero(t, got[3].NumSGE)
	require.EqualValues(t, verbs.WRRDMARead, got[4].Opcode)
	require.EqualValues(t, []uint64{16, 10, 11}, []uint64{got[5].RemoteAddr, got[5].CompareAdd, got[5].Swap})
	require.EqualValues(t, []uint64{24, 12}, []uint64{got[6].RemoteAddr, got[6].CompareAdd})
	require.EqualValues(t, 0xabc, got[7].InvalidateRKey)
	require.EqualValues(t, []uint64{uint64(key), uint64(r.mr.LKey()), r.mr.Addr() + 64, 32,
		uint64(verbs.AccessRemoteRead)},
		[]uint64{uint64(got[8].BindRKey), uint64(got[8].BindLKey), got[8].BindAddr, got[8].BindLength,
			uint64(got[8].BindAccess)})
	require.EqualValues(t, key, got[9].InvalidateRKey)

	ud := r.newQP(verbs.QPConfig{Type: verbs.QPTypeUD})
	for _, step := range []struct {
		a verbs.QPAttr
		m verbs.QPAttrMask
	}{
		{verbs.QPAttr{State: verbs.QPStateInit, PortNum: 1, QKey: 5},
			verbs.QPAttrState | verbs.QPAttrPKeyIndex | verbs.QPAttrPort | verbs.QPAttrQKey},
		{verbs.QPAttr{State: verbs.QPStateRTR}, verbs.QPAttrState},
		{verbs.QPAttr{State: verbs.QPStateRTS}, verbs.QPAttrState | verbs.QPAttrSQPSN},
	} {
		require.NoError(t, ud.Modify(step.a, step.m))
	}
	path := verbs.AHAttr{IsGlobal: true, PortNum: 1, SL: 3,
		GRH: verbs.GlobalRoute{DGID: verbs.GID{15: 9}, HopLimit: 64, TrafficClass: 4, FlowLabel: 77, SGIDIndex: 1}}
	ah, err := r.pd.CreateAH(path)
	require.NoError(t, err)
	r.post(ud, verbs.SendWR{ID: 1, Opcode: verbs.WRSendWithImm, Imm: 6, SGL: []verbs.SGE{s},
		UD: &verbs.UDDest{AH: ah, RemoteQPN: 70, RemoteQKey: 80}})
	d := fakeverbs.LastPosted()[0]
	require.EqualValues(t, []uint32{70, 80, 6}, []uint32{d.RemoteQPN, d.RemoteQKey, d.Imm})
	to, ok := fakeverbs.AHByID(d.AH)
	require.True(t, ok)
	require.Equal(t, fakeverbs.AHAttr{DGID: path.GRH.DGID, FlowLabel: 77, SGIDIndex: 1, HopLimit: 64, TrafficClass: 4,
		SL: 3, IsGlobal: true, Port: 1}, to)
}

// TestLists: the library gets a list in pieces, the program does not notice.
func TestLists(t *testing.T) {
	r := newRig(t, "fake0")
	r.up(r.qp)
	wrs := writes(r.mr, 100)
	r.post(r.qp, wrs...)
	posted := fakeverbs.Posted()
	require.Len(t, posted, 100)
	for i := range posted {
		require.EqualValues(t, i, posted[i].WRID)
	}
	n, err := r.qp.PostSend(wrs)
	require.Equal(t, 28, n, "the queue has 128 places")
	require.ErrorIs(t, err, verbs.ErrQueueFull)
	require.ErrorIs(t, err, syscall.ENOMEM)
	require.ErrorContains(t, err, "request 28")
	require.Equal(t, 128, fakeverbs.CompleteSend(r.qp.Num(), 200, 0))
	wcs := r.poll()
	require.Len(t, wcs, 128)
	require.EqualValues(t, 99, wcs[99].ID)

	before := fakeverbs.Calls("ibv_post_send")
	r.post(r.qp, writes(r.mr, 16)...)
	require.Equal(t, before+1, fakeverbs.Calls("ibv_post_send"), "a list is one call")
	bad := writes(r.mr, 3)
	bad[2].Opcode = 99
	n, err = r.qp.PostSend(bad)
	require.Equal(t, 2, n, "those before it are queued")
	require.ErrorIs(t, err, verbs.ErrInvalid)
	fakeverbs.FailPost("ibv_post_send", 1, fakeverbs.PostFailure{Index: 1, Result: int(syscall.EINVAL)})
	n, err = r.qp.PostSend(writes(r.mr, 3))
	require.Equal(t, 1, n)
	require.ErrorIs(t, err, syscall.EINVAL)
	require.ErrorContains(t, err, "ibv_post_send")

	recvs := make([]verbs.RecvWR, 70)
	for i := range recvs {
		recvs[i] = verbs.RecvWR{ID: uint64(i), SGL: []verbs.SGE{r.sge(0, 8), r.sge(8, 8)}[:i%3%2+1]}
	}
	n, err = r.qp.PostRecv(recvs)
	require.NoError(t, err)
	require.Equal(t, 70, n)
	fakeverbs.FailPost("ibv_post_recv", 1, fakeverbs.PostFailure{Index: 2, Result: int(syscall.ENOMEM)})
	n, err = r.qp.PostRecv(recvs[:4])
	require.Equal(t, 2, n)
	require.ErrorIs(t, err, verbs.ErrQueueFull)
}

// TestBrokenQP: where the library does not tell what it took, the QP is broken and says so.
func TestBrokenQP(t *testing.T) {
	r := newRig(t, "fake0")
	r.up(r.qp)
	failed := r.qp.Provider().(verbs.ProviderQPWatcher).Failed()
	fakeverbs.FailPost("ibv_post_send", 1, fakeverbs.PostFailure{Index: 9, Result: -1, NoBadWR: true})
	_, err := r.qp.PostSend(writes(r.mr, 2))
	require.ErrorContains(t, err, "does not tell")
	<-failed
	require.Equal(t, verbs.QPStateErr, r.qp.State())
	require.ErrorContains(t, r.qp.Err(), "ibv_post_send")
}

func TestCompletionsArrive(t *testing.T) {
	r := newRig(t, "fake0")
	r.up(r.qp)
	num := r.qp.Num()
	fakeverbs.InjectWC(num, true, fakeverbs.WC{WRID: 1, Opcode: 129, ByteLen: 3, Imm: 0x01020304, Flags: 2})
	fakeverbs.InjectWC(num, true, fakeverbs.WC{WRID: 2, Opcode: 128, ByteLen: 4, InvalidatedRKey: 0x55, Flags: 8})
	fakeverbs.InjectWC(num, true,
		fakeverbs.WC{WRID: 3, Opcode: 128, ByteLen: 50, SrcQP: 6, Flags: 1, PKeyIndex: 7, SLID: 8, SL: 9, PathBits: 10})
	fakeverbs.InjectWC(num, false, fakeverbs.WC{WRID: 4, Opcode: 2, ByteLen: 5})
	require.Equal(t, []verbs.WC{
		{ID: 1, Opcode: verbs.WCRecvRDMAWithImm, ByteLen: 3, Flags: verbs.WCWithImm, Imm: 0x01020304,
			Imm64: 0x01020304 << 32, QPNum: num},
		{ID: 2, Opcode: verbs.WCRecv, ByteLen: 4, Flags: verbs.WCWithInv, InvalidatedRKey: 0x55, QPNum: num},
		{ID: 3, Opcode: verbs.WCRecv, ByteLen: 50, Flags: verbs.WCGRH, SrcQP: 6, PKeyIndex: 7, SLID: 8, SL: 9,
			DLIDPathBits: 10, QPNum: num}, {ID: 4, Opcode: verbs.WCRDMARead, ByteLen: 5, QPNum: num},
	}, r.poll())

	fakeverbs.InjectWC(num, false, fakeverbs.WC{WRID: 5, Status: 10, VendorErr: 0x77})
	failed := r.poll()
	require.Equal(t, []verbs.WC{{ID: 5, Status: verbs.WCRemAccessErr, VendorErr: 0x77, QPNum: num}}, failed)
	require.Equal(t, &verbs.RequestError{QPNum: num, ID: 5, Status: verbs.WCRemAccessErr, VendorErr: 0x77},
		r.qp.Cause(&failed[0]))
	require.Equal(t, verbs.QPStateErr, r.qp.State(), "an error of an RC QP ends it")
	require.ErrorIs(t, r.qp.Err(), verbs.WCRemAccessErr)
}

// TestWaits: events reach those who wait, a context ends a wait, and Close ends all.
func TestWaits(t *testing.T) {
	for _, dev := range []string{"fake0", "fake1"} {
		t.Run(dev, func(t *testing.T) {
			r := newRig(t, dev)
			r.up(r.qp)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			short, stop := context.WithTimeout(ctx, 20*time.Millisecond)
			defer stop()
			wcs := make([]verbs.WC, 4)
			_, err := r.cq.Wait(short, wcs)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			_, err = r.ctx.WaitEvent(short)
			require.ErrorIs(t, err, context.DeadlineExceeded)

			_, err = r.qp.PostRecv([]verbs.RecvWR{{ID: 77}})
			require.NoError(t, err)
			var wg sync.WaitGroup
			wg.Go(func() {
				n, err := r.cq.Wait(ctx, wcs)
				require.NoError(t, err)
				require.Equal(t, []uint64{77}, wcIDs(wcs[:n]))
			})
			asleep.Until(t, 1, "verbs.(*CQ).Wait", "verbs_test.TestWaits")
			require.Equal(t, 1, fakeverbs.CompleteRecv(r.qp.Num(), 1, 0, 0))
			wg.Wait()

			require.Equal(t, 1, fakeverbs.InjectAsync(r.index(), 4, r.qp.Num())) // IBV_EVENT_COMM_EST
			ev, err := r.ctx.WaitEvent(ctx)
			require.NoError(t, err)
			require.Equal(t, verbs.AsyncEvent{Type: verbs.EventCommEst, QP: r.qp}, ev)
			require.Positive(t, fakeverbs.InjectAsync(r.index(), 9, 1)) // IBV_EVENT_PORT_ACTIVE
			ev, err = r.ctx.WaitEvent(ctx)
			require.NoError(t, err)
			require.Equal(t, verbs.AsyncEvent{Type: verbs.EventPortActive, Port: 1}, ev)

			for range 3 {
				wg.Go(func() {
					_, err := r.ctx.WaitEvent(ctx)
					require.ErrorIs(t, err, verbs.ErrClosed)
				})
				wg.Go(func() {
					_, err := r.cq.Wait(ctx, make([]verbs.WC, 1))
					require.ErrorIs(t, err, verbs.ErrClosed)
				})
			}
			asleep.Until(t, 3, "verbs.(*Context).WaitEvent", "verbs_test.TestWaits")
			asleep.Until(t, 3, "verbs.(*CQ).Wait", "verbs_test.TestWaits")
			require.NoError(t, r.ctx.CloseAll())
			wg.Wait()
		})
	}
}

// index is the number that fakeverbs gives the device.
func (r *rig) index() int {
	if r.dev.Name() == "fake1" {
		return fakeverbs.Fake1
	}
	return fakeverbs.Fake0
}

// TestFailureEvent: an event that ends a QP moves it, and is its reason. Connection managers learn
// of it later, when the refusal of the peer's request has had time to reach the peer.
func TestFailureEvent(t *testing.T) {
	for _, dev := range []string{"fake0", "fake1"} {
		t.Run(dev, func(t *testing.T) {
			r := newRig(t, dev)
			r.up(r.qp)
			failed := r.qp.Provider().(verbs.ProviderQPWatcher).Failed()
			began := time.Now()
			fakeverbs.InjectAsync(r.index(), 3, r.qp.Num()) // IBV_EVENT_QP_ACCESS_ERR
			<-failed
			require.GreaterOrEqual(t, time.Since(began), 200*time.Millisecond)
			ev, err := r.ctx.WaitEvent(t.Context())
			require.NoError(t, err)
			require.Equal(t, verbs.EventQPAccessErr, ev.Type)
			require.Same(t, r.qp, ev.QP)
			require.Equal(t, r.qp.Err(), ev.Err)
			require.Equal(t, verbs.QPStateErr, r.qp.State())
		})
	}
}

// TestCloseFlushes: what a QP has when it is closed is completed, by the device or by the provider,
// and the marks of the drain are not seen.
func TestCloseFlushes(t *testing.T) {
	for _, dev := range []string{"fake0", "fake1"} {
		t.Run(dev, func(t *testing.T) {
			r := newRig(t, dev)
			r.up(r.qp)
			_, err := r.qp.PostRecv([]verbs.RecvWR{{ID: 1}, {ID: 2}})
			require.NoError(t, err)
			r.post(r.qp, writes(r.mr, 3)...)
			require.NoError(t, r.qp.Close())
			wcs := r.poll()
			require.ElementsMatch(t, []uint64{0, 1, 2, 1, 2}, wcIDs(wcs))
			for _, wc := range wcs {
				require.Equal(t, verbs.WCWRFlushErr, wc.Status)
			}
			require.Empty(t, r.poll())
		})
	}
}

func TestDrain(t *testing.T) {
	for _, dev := range []string{"fake0", "fake1"} {
		t.Run(dev, func(t *testing.T) {
			r := newRig(t, dev)
			r.up(r.qp)
			r.post(r.qp, writes(r.mr, 128)...) // the queue is full: a mark finds no place at first
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			require.NoError(t, r.qp.Drain(ctx))
			require.Len(t, r.poll(), 128)
			require.NoError(t, r.qp.Drain(ctx), "again")
			require.ErrorIs(t, r.qp.Err(), verbs.ErrClosed)
			r.post(r.qp, writes(r.mr, 1)...)
			_, err := r.qp.PostRecv([]verbs.RecvWR{{ID: 9}})
			require.NoError(t, err)
			wcs := r.poll()
			require.ElementsMatch(t, []uint64{0, 9}, wcIDs(wcs), "posts in ERR are flushed")
			done, stop := context.WithCancel(ctx)
			stop()
			require.ErrorIs(t, r.qp.Drain(done), context.Canceled)
		})
	}
}

// TestNoAllocations: posting and polling allocate nothing, with and without a ledger.
func TestNoAllocations(t *testing.T) {
	for _, dev := range []string{"fake0", "fake1"} {
		t.Run(dev, func(t *testing.T) {
			r := newRig(t, dev)
			r.up(r.qp)
			wcs := make([]verbs.WC, 64)
			for _, n := range []int{1, 16, 64} {
				wrs := writes(r.mr, n)
				require.Zero(t, testing.AllocsPerRun(50, func() {
					if k, err := r.qp.PostSend(wrs); k != n || err != nil {
						panic(err)
					}
					fakeverbs.CompleteSend(r.qp.Num(), n, 0)
					if k, err := r.cq.Poll(wcs); k != n || err != nil {
						panic(err)
					}
				}), n)
			}
		})
	}
}

// TestLimitsOfObjects: the object that is one too many is refused by name.
func TestLimitsOfObjects(t *testing.T) {
	fakeverbs.Start(t)
	attr := fakeverbs.DeviceAttr(fakeverbs.Fake0)
	attr.MaxPD, attr.MaxMW = 2, 0
	fakeverbs.SetDeviceAttr(fakeverbs.Fake0, attr)
	d, err := verbs.DeviceByName("fake0")
	require.NoError(t, err)
	ctx, err := d.Open()
	require.NoError(t, err)
	defer func() { require.NoError(t, ctx.CloseAll()) }()
	pd, err := ctx.AllocPD()
	require.NoError(t, err)
	_, err = ctx.AllocPD()
	require.NoError(t, err)
	_, err = ctx.AllocPD()
	var le *verbs.LimitError
	require.True(t, errors.As(err, &le))
	require.Equal(t, verbs.LimitError{Name: "max_pd", Limit: 2, Value: 3}, *le)
	_, err = pd.AllocMW(verbs.MWType2)
	require.ErrorIs(t, err, verbs.ErrNotSupported)
}
