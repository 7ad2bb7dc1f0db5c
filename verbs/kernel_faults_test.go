// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

import (
	"context"
	"errors"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/internal/mapmem"
)

// faultRig has one of everything that a driver's types make, on a device that has some faults.
type faultRig struct {
	*testing.T
	ctx ProviderContext
	ch  ProviderCompChannel
	cq  ProviderCQ
	pd  ProviderPD
	mr  ProviderMR
	qp  ProviderQP
	mem []byte
	// patience is how long to wait for what comes if the fault is corrected.
	patience time.Duration
}

// newFaultRig gives fake0, which does what it is asked to, a driver's types.
func newFaultRig(t *testing.T, wrap func(*kernelContext) ProviderContext) *faultRig {
	fakeverbs.Start(t)
	dev, err := DeviceByName("fake0")
	require.NoError(t, err)
	p, err := dev.p.Open(nil)
	require.NoError(t, err)
	r := &faultRig{T: t, ctx: wrap(p.(*kernelContext))}
	t.Cleanup(func() { require.NoError(t, r.ctx.Close()) })
	r.ch, err = r.ctx.CreateCompChannel()
	require.NoError(t, err)
	r.cq, err = r.ctx.CreateCQ(new(CQ), 100, r.ch, 0)
	require.NoError(t, err)
	r.pd, err = r.ctx.AllocPD()
	require.NoError(t, err)
	r.mem, err = mapmem.Map(2*pageSize, false)
	require.NoError(t, err)
	r.mr, err = r.pd.RegMR(r.mem, uint64(mapmem.Address(r.mem)), AccessLocalWrite)
	require.NoError(t, err)
	r.qp, _, err = r.pd.CreateQP(nil, ProviderQPConfig{SendCQ: r.cq, RecvCQ: r.cq, Type: QPTypeRC,
		Cap: QPCap{MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 3, MaxRecvSGE: 3}})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, r.qp.Destroy())
		require.NoError(t, r.mr.Dereg())
		require.NoError(t, r.pd.Dealloc())
		require.NoError(t, r.ch.Close())
		require.NoError(t, r.cq.Destroy())
		mapmem.Unmap(r.mem)
	})
	require.True(t, fakeverbs.MoveQP(r.qp.Num(), int(QPStateRTS)))
	r.qp.(ProviderQPMover).Moved(QPStateRTS, nil)
	r.depth(4)
	return r
}

func (r *faultRig) depth(n int) { r.qp.(ProviderQPLimiter).SetDepths(n, n) }

// sge names n bytes of the memory, the boundary of whose pages is at pageSize.
func (r *faultRig) sge(off, n int) SGE {
	return SGE{Addr: uint64(mapmem.Address(r.mem)) + uint64(off), Length: uint32(n), LKey: r.mr.LKey()}
}

// post posts requests and returns what the device has got of them.
func (r *faultRig) post(wrs ...SendWR) []fakeverbs.WR {
	before := len(fakeverbs.Posted())
	for i := range wrs {
		wrs[i].ID, wrs[i].Flags = uint64(i), wrs[i].Flags|SendSignaled
	}
	n, err := r.qp.PostSend(wrs)
	require.NoError(r, err)
	require.Equal(r, len(wrs), n)
	return fakeverbs.Posted()[before:]
}

func (r *faultRig) read(n int) SendWR {
	return SendWR{Opcode: WRRDMARead, SGL: []SGE{r.sge(0, n)}}
}

// status is that of the oldest send, which the device completes with status.
func (r *faultRig) status(status WCStatus, wr SendWR) WCStatus {
	r.post(wr)
	require.Equal(r, 1, fakeverbs.CompleteSend(r.qp.Num(), 1, uint32(status)))
	return r.poll().Status
}

// received is the completion of a receive, which the device completes with wc.
func (r *faultRig) received(wc fakeverbs.WC, sgl ...SGE) WC {
	_, err := r.qp.PostRecv([]RecvWR{{ID: 7, SGL: sgl}})
	require.NoError(r, err)
	wc.WRID = fakeverbs.LastPosted()[0].WRID
	require.True(r, fakeverbs.Receive(r.qp.Num(), wc))
	got := r.poll()
	require.EqualValues(r, 7, got.ID)
	return got
}

func (r *faultRig) poll() WC {
	var wcs [1]WC
	n, err := r.cq.Poll(wcs[:])
	require.NoError(r, err)
	require.Equal(r, 1, n)
	return wcs[0]
}

// corrected says for each fault that is asked for how one sees that it is corrected.
var corrected = map[fault]func(r *faultRig) bool{
	siwQueryUnreliable: func(r *faultRig) bool {
		require.True(r, fakeverbs.SetDepths(r.qp.Num(), 3, 5))
		attr, err := r.qp.Query()
		require.NoError(r, err)
		return attr.MaxRdAtomic == 5
	},
	siwReadEmpty: func(r *faultRig) bool { return len(r.post(SendWR{Opcode: WRRDMARead})[0].SGEs) == 1 },
	siwReceiveEmpty: func(r *faultRig) bool {
		_, err := r.qp.PostRecv([]RecvWR{{}})
		require.NoError(r, err)
		return len(fakeverbs.LastPosted()[0].SGEs) == 1
	},
	siwElementEmpty: func(r *faultRig) bool {
		return len(r.post(SendWR{Opcode: WRSend, SGL: []SGE{r.sge(0, 8), {}, r.sge(0, 9)}})[0].SGEs) == 2
	},
	siwFencedRead: func(r *faultRig) bool {
		fenced := r.read(8)
		fenced.Flags = SendFence
		return len(r.post(r.read(8), fenced)) == 2
	},
	siwNoDepthJams: failsWithoutDepth,
	siwTurnJams: func(r *faultRig) bool {
		r.depth(1)
		return len(r.post(r.read(8), r.read(8))) == 1
	},
	siwReadOfNothing: func(r *faultRig) bool { return len(r.post(r.read(8), r.read(0))) == 1 },
	siwPageTorn: func(r *faultRig) bool {
		return len(r.post(SendWR{Opcode: WRSend, SGL: []SGE{r.sge(pageSize-1, 2)}})[0].SGEs) == 2
	},
	siwMissesFirstMessages: func(r *faultRig) bool {
		r.qp.(ProviderQPInitiator).Initiated()
		r.post(SendWR{Opcode: WRSend})
		sent := len(fakeverbs.Posted())
		for end := time.Now().Add(r.patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if len(fakeverbs.Posted()) > sent {
				return true
			}
		}
		return false
	},
	siwOpensSilently: func(r *faultRig) bool {
		r.qp.(ProviderQPInitiator).Initiated()
		return len(fakeverbs.Posted()) == 1
	},
	siwNeverSolicited: func(r *faultRig) bool {
		require.NoError(r, r.cq.ReqNotify(true))
		_, err := r.qp.PostRecv([]RecvWR{{}})
		require.NoError(r, err)
		fakeverbs.Receive(r.qp.Num(), fakeverbs.WC{WRID: fakeverbs.LastPosted()[0].WRID, Opcode: uint32(WCRecv)})
		ctx, cancel := context.WithTimeout(r.Context(), r.patience)
		defer cancel()
		_, err = r.ch.Wait(ctx)
		return err == nil
	},
	siwIovaIgnored: func(r *faultRig) bool {
		mr, err := r.pd.RegMR(r.mem, 0, AccessLocalWrite)
		if err == nil {
			require.NoError(r, mr.Dereg())
		}
		return errors.Is(err, ErrNotSupported)
	},
	siwResetRefused: func(r *faultRig) bool {
		return errors.Is(r.qp.Modify(QPAttr{State: QPStateReset}, QPAttrState), ErrNotSupported)
	},
	siwOffsetRefused: func(r *faultRig) bool { return r.ctx.(*siwContext).offset != nil },
	siwKeyElsewhere: func(r *faultRig) bool {
		var l sendList
		l.fill([]SendWR{{Opcode: WRSendWithInv, InvalidateRKey: 77}})
		siwElements{faults: r.ctx.(*siwContext).faults}.adapt(&l)
		return l.wrs[0].RKey == 77
	},

	rxeFenceLost: func(r *faultRig) bool {
		return len(r.post(r.read(8), SendWR{Opcode: WRRDMAWrite, Flags: SendFence})) == 1
	},
	rxeNoDepthJams: failsWithoutDepth,
	rxeWrongFlag: func(r *faultRig) bool {
		return r.received(fakeverbs.WC{Opcode: uint32(WCRecv), Flags: uint32(WCGRH)}).Flags&WCGRH == 0
	},
	rxeBusyInvalid: func(r *faultRig) bool {
		fakeverbs.Fail("ibv_dereg_mr", 1, syscall.EINVAL)
		err := r.mr.Dereg()
		require.Error(r, err)
		return errors.Is(err, ErrBusy)
	},
	rxeWindowKeepsQP: func(r *faultRig) bool {
		w, err := r.pd.AllocMW(MWType2)
		require.NoError(r, err)
		key := w.RKey()
		qp, _, err := r.pd.CreateQP(nil,
			ProviderQPConfig{SendCQ: r.cq, RecvCQ: r.cq, Type: QPTypeRC, Cap: QPCap{MaxSendWR: 8}})
		require.NoError(r, err)
		require.True(r, fakeverbs.MoveQP(qp.Num(), int(QPStateRTS)))
		qp.(ProviderQPMover).Moved(QPStateRTS, nil)
		bind := &MWBind{MW: &MW{p: w, typ: MWType2}, MR: &MR{p: r.mr}, Addr: uint64(mapmem.Address(r.mem)), Length: 8}
		_, err = qp.PostSend([]SendWR{{Opcode: WRBindMW, RKey: key + 1, Bind: bind}})
		require.NoError(r, err)
		require.NoError(r, qp.Destroy())
		anew := w.RKey() != key
		require.NoError(r, w.Dealloc())
		return anew
	},
	rxeLengthStatus: func(r *faultRig) bool { return r.status(WCRemOpErr, SendWR{Opcode: WRSend}) == WCRemInvReqErr },
	rxeReceiveStatus: func(r *faultRig) bool {
		return r.received(fakeverbs.WC{Status: uint32(WCLocQPOpErr)}, r.sge(0, 8)).Status == WCLocLenErr
	},
	rxeSourceStatus: func(r *faultRig) bool {
		return r.status(WCLocQPOpErr, SendWR{Opcode: WRSend, SGL: []SGE{{Addr: 8, Length: 8, LKey: 1}}}) == WCLocProtErr
	},
	rxeInvalidateStatus: func(r *faultRig) bool {
		return r.status(WCLocQPOpErr, SendWR{Opcode: WRLocalInv, InvalidateRKey: 9}) == WCMWBindErr
	},
	rxeOnDemandMisplaced: func(r *faultRig) bool {
		mr, err := r.pd.RegMR(r.mem, uint64(mapmem.Address(r.mem)), AccessLocalWrite|AccessOnDemand)
		if err == nil {
			require.NoError(r, mr.Dereg())
		}
		return errors.Is(err, ErrNotSupported)
	},
}

func failsWithoutDepth(r *faultRig) bool {
	r.depth(0)
	r.post(r.read(8))
	var wcs [1]WC
	n, err := r.cq.Poll(wcs[:])
	require.NoError(r, err)
	return n == 1 && wcs[0].Status == WCLocQPOpErr
}

// byType are the faults for which a driver's types are there at all: the ledger, siwOps and
// gv_post_send see to them.
var byType = map[fault]bool{siwForgetsRequests: true, siwWrongOrder: true, siwOpcodeUnchecked: true,
	siwPostMiscounts: true, rxeReceiveForgotten: true}

// TestRepairedFaults: what a driver has repaired is not corrected, and everything else is.
func TestRepairedFaults(t *testing.T) {
	for f := range faultsEnd {
		check := corrected[f]
		require.NotEqual(t, byType[f], check != nil, "fault %d", f)
		if check == nil {
			continue
		}
		t.Run(faultInfos[f].what, func(t *testing.T) {
			for _, repaired := range []bool{false, true} {
				wrap := func(c *kernelContext) ProviderContext {
					faults := siwFaults | rxeFaults
					if repaired {
						faults = faults.without(f)
					}
					if siwFaults.has(f) {
						return newSiwContext(c, faults)
					}
					return newRXEContext(c, faults)
				}
				t.Run(map[bool]string{false: "faulty", true: "repaired"}[repaired], func(t *testing.T) {
					r := newFaultRig(t, wrap)
					r.patience = 30 * time.Second
					if repaired {
						r.patience = nudgeAfter[0] + 150*time.Millisecond
					}
					require.Equal(t, !repaired, check(r))
				})
			}
		})
	}
}

// TestFaultInfos: of each fault is said where it is and on which kernels it was seen.
func TestFaultInfos(t *testing.T) {
	seen := make(map[string]bool)
	for f, info := range faultInfos {
		require.NotEmpty(t, info.what, f)
		require.False(t, seen[info.what], info.what)
		seen[info.what] = true
		require.Regexp(t, `^[a-z_]+\.c [a-z0-9_]+(; (6\.12: )?[a-z_]+\.c( [a-z0-9_]+)?)?$`, info.in, info.what)
		prefix := "siw"
		if rxeFaults.has(fault(f)) {
			prefix = "rxe"
		}
		require.True(t, strings.HasPrefix(info.in, prefix), info.what)
		require.Equal(t, info.library, info.in[:len(prefix)+1] == prefix+".", info.what)
		for _, k := range strings.Split(info.kernels, ", ") {
			_, err := os.Stat("../testbed/matrix/linux-" + k + ".md")
			require.NoError(t, err, "a kernel that the test bed has")
		}
	}
	require.Zero(t, siwFaults&rxeFaults)
	require.Equal(t, faultSet(1)<<faultsEnd-1, siwFaults|rxeFaults)
}

// TestPlainTypes: what is for all devices says nothing of the drivers with faults.
func TestPlainTypes(t *testing.T) {
	names := regexp.MustCompile(`(?i)(\b|[a-z])(rxe|siw)`)
	own := regexp.MustCompile(`^kernel_(rxe|siw)|^kernel_(faults|drivers)\.go$|_test\.go$`)
	files, err := os.ReadDir(".")
	require.NoError(t, err)
	looked := 0
	for _, f := range files {
		if name := f.Name(); strings.HasPrefix(name, "kernel_") && !own.MatchString(name) {
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			require.NotRegexp(t, names, string(text), name)
			looked++
		}
	}
	require.Greater(t, looked, 20)
}
