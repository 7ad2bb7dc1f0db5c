// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package fakeverbs

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/dynlib"
)

func TestLookups(t *testing.T) {
	names := []string{"ibv_create_qp", "rdma_connect", "ibv_of_the_future", ""}
	t.Cleanup(func() {
		lookups.missing = slices.DeleteFunc(lookups.missing, func(s string) bool { return s == names[2] })
	})
	found := make(map[int]uintptr)
	set := func(i int, address uintptr) { found[i] = address }
	require.NoError(t, dynlib.Load("libibverbs.so.1", func(i int) (string, bool) { return names[i], i == 2 }, set))
	require.Len(t, found, 3)
	require.NotZero(t, found[0])
	require.NotZero(t, found[1])
	require.Zero(t, found[2])
	faked, missing := Lookups()
	require.Subset(t, faked, names[:2])
	require.Contains(t, missing, names[2])

	err := dynlib.Load("libibverbs.so.1", func(i int) (string, bool) { return names[i], false }, set)
	require.EqualError(t, err, "library libibverbs.so.1 is too old: it has no ibv_of_the_future")
}

func TestCallsAreCounted(t *testing.T) {
	Start(t)
	ctx := open(t, Fake0)
	require.Equal(t, 1, Calls("ibv_open_device"))
	require.Zero(t, Calls("ibv_query_port"))
	require.Nil(t, Args("ibv_query_port"))
	_, err := ctx.queryPort(1)
	require.NoError(t, err)
	require.Equal(t, 1, Calls("ibv_query_port"), "inline in verbs.h")
	require.Equal(t, uint64(1), Args("ibv_query_port")[1])
	require.Panics(t, func() { Calls("ibv_query_prot") })
	require.Panics(t, func() { Fail("ibv_query_prot", 1, syscall.EIO) })
	Reset()
	require.Zero(t, Calls("ibv_query_port"))
}

// Every error convention of the libraries.
func TestFailuresInEachConvention(t *testing.T) {
	r := newRig(t, Fake0)
	r.up(t)
	mr, err := r.pd.regMR(0x10000, 4096, 1)
	require.NoError(t, err)
	for _, c := range []struct {
		name string
		call func() error
		want error
	}{
		{"ibv_alloc_pd", func() error { _, err := r.ctx.allocPD(); return err }, syscall.ENOSPC},                     // NULL, errno
		{"ibv_reg_mr_iova2", func() error { _, err := r.pd.regMR(0, 1, 1); return err }, syscall.ENOSPC},             // NULL, errno
		{"ibv_modify_qp", func() error { return r.qp.modify(stateErr, 0) }, syscall.ENOSPC},                          // errno
		{"ibv_query_port", func() error { _, err := r.ctx.queryPort(1); return err }, syscall.ENOSPC},                // errno
		{"ibv_query_gid", func() error { _, err := r.ctx.queryGID(0); return err }, syscall.ENOSPC},                  // -1, errno
		{"ibv_query_gid_table", func() error { _, err := r.ctx.gidTable(16); return err }, negative(-28)},            // negative
		{"ibv_poll_cq", func() error { _, err := r.cq.poll(1); return err }, negative(-28)},                          // negative
		{"ibv_req_notify_cq", func() error { return r.cq.notify(false) }, syscall.ENOSPC},                            // errno
		{"ibv_get_cq_event", func() error { _, err := r.ch.getEvent(); return err }, syscall.ENOSPC},                 // -1, errno
		{"ibv_dereg_mr", func() error { return mr.deregMR() }, syscall.ENOSPC},                                       // errno
		{"ibv_destroy_qp", func() error { return r.qp.destroyQP() }, syscall.ENOSPC},                                 // errno
		{"ibv_close_device", func() error { return r.ctx.closeDevice() }, syscall.ENOSPC},                            // -1, errno
		{"ibv_fork_init", callForkInit, syscall.ENOSPC},                                                              // errno
		{"ibv_post_send", func() error { _, err := r.qp.postSend(WR{Opcode: opWrite}); return err }, syscall.ENOSPC}, // errno
		{"rdma_create_event_channel", func() error { _, err := callEventChannel(); return err }, syscall.ENOSPC},     // NULL, errno
	} {
		t.Run(c.name, func(t *testing.T) {
			Fail(c.name, 1, syscall.ENOSPC)
			require.Equal(t, c.want, c.call())
		})
	}
	require.Empty(t, Faults())
	require.NoError(t, mr.deregMR(), "the object is still there")
}

// TestFailAfter checks that the call fails although it has done its work.
func TestFailAfter(t *testing.T) {
	r := newRig(t, Fake0)
	mr, err := r.pd.regMR(0x10000, 4096, 1)
	require.NoError(t, err)
	key := mr.lkey()
	before := Live()["MR"]
	FailAfter("ibv_dereg_mr", 1, syscall.EIO)
	require.Equal(t, syscall.EIO, mr.deregMR())
	require.Equal(t, before-1, Live()["MR"])
	_, ok := MRByKey(key)
	require.False(t, ok)
	_, err = r.ctx.queryPort(1)
	require.NoError(t, err, "only that call")
}

func TestFailNth(t *testing.T) {
	r := newRig(t, Fake0)
	_, err := r.ctx.queryPort(1)
	require.NoError(t, err)
	Fail("ibv_query_port", 2, syscall.EIO)
	_, err = r.ctx.queryPort(1)
	require.NoError(t, err)
	_, err = r.ctx.queryPort(1)
	require.Equal(t, syscall.EIO, err)
	_, err = r.ctx.queryPort(1)
	require.NoError(t, err)
}

func TestReregTellsWhatBecameOfTheRegion(t *testing.T) {
	r := newRig(t, Fake0)
	mr, err := r.pd.regMR(0x10000, 4096, 1)
	require.NoError(t, err)
	before := mr.lkey()
	Fail("ibv_rereg_mr", 1, syscall.ENOMEM)
	rc, err := mr.rereg(1<<2, 3)
	require.Equal(t, -4, rc)
	require.Equal(t, syscall.ENOMEM, err)
	rc, err = mr.rereg(0, 3)
	require.Equal(t, -1, rc)
	require.Equal(t, syscall.EINVAL, err)
	_, err = mr.rereg(1<<2, 3)
	require.NoError(t, err)
	require.NotEqual(t, before, mr.lkey(), "keys change")
	got, ok := MRByKey(mr.lkey())
	require.True(t, ok)
	require.Equal(t, uint32(3), got.Access)
	_, ok = MRByKey(before)
	require.False(t, ok)
	require.NoError(t, mr.deregMR())
}

func TestUseAfterDestroyIsAFault(t *testing.T) {
	r := newRig(t, Fake0)
	qp, err := r.pd.createQP(qptRC, r.cq, r.cq, 8)
	require.NoError(t, err)
	require.NoError(t, qp.destroyQP())
	require.Empty(t, Faults())
	require.Equal(t, syscall.EINVAL, qp.destroyQP())
	require.Regexp(t, `^ibv_destroy_qp: QP \d+ was destroyed before$`, Faults()[0])
	require.Equal(t, syscall.EINVAL, qp.modify(stateErr, 0))
	require.Len(t, Faults(), 1)
	require.Equal(t, syscall.EINVAL, r.ch.deallocPD(), "another kind of object")
	require.Regexp(t, `^ibv_dealloc_pd: no PD is at 0x`, Faults()[0])
	require.Empty(t, Faults(), "they are taken")
}

func TestParentsFirstIsAFault(t *testing.T) {
	r := newRig(t, Fake0)
	require.Equal(t, syscall.EBUSY, r.pd.deallocPD())
	require.Equal(t, syscall.EBUSY, r.cq.destroyCQ())
	require.Equal(t, syscall.EBUSY, r.ch.destroyChannel())
	faults := Faults()
	require.Len(t, faults, 3)
	require.Regexp(t, `^ibv_dealloc_pd: PD \d+ is still used by 1 objects$`, faults[0])
	require.Regexp(t, `^ibv_destroy_cq: CQ \d+ is still used by 2 objects$`, faults[1])
}

// libibverbs waits forever in these cases.
func TestDestroyWaitsForAcknowledgements(t *testing.T) {
	r := newRig(t, Fake0)
	cq, err := r.ctx.createCQ(16, r.ch)
	require.NoError(t, err)
	qp, err := r.pd.createQP(qptRC, cq, cq, 8)
	require.NoError(t, err)
	require.NoError(t, cq.notify(false))
	require.True(t, InjectWC(qp.num(), false, WC{}))
	got, err := r.ch.getEvent()
	require.NoError(t, err)
	require.Equal(t, cq, got)
	require.Equal(t, 1, InjectAsync(Fake0, 1, qp.num()))
	_, async, err := r.ctx.getAsync()
	require.NoError(t, err)
	SetBlockLimit(10 * time.Second)

	// Acknowledged in time: the call waits no longer than that.
	before := Calls("ibv_destroy_qp")
	go func() {
		for Calls("ibv_destroy_qp") == before {
			time.Sleep(time.Millisecond)
		}
		async.ackAsync()
	}()
	require.NoError(t, qp.destroyQP())
	require.Empty(t, Faults())

	SetBlockLimit(50 * time.Millisecond)
	require.NoError(t, cq.destroyCQ())
	require.Regexp(t, `^ibv_destroy_cq: blocked on CQ \d+: 1 events are not acknowledged$`, Faults()[0])
	cq.ackEvents(1)
	require.Len(t, Faults(), 1, "an acknowledgement after the end")
}

func TestEventsThatNobodyReadGoWithTheirObject(t *testing.T) {
	r := newRig(t, Fake0)
	cq, err := r.ctx.createCQ(16, r.ch)
	require.NoError(t, err)
	qp, err := r.pd.createQP(qptRC, cq, cq, 8)
	require.NoError(t, err)
	require.NoError(t, cq.notify(false))
	require.True(t, InjectWC(qp.num(), false, WC{}))
	require.Equal(t, 1, InjectAsync(Fake0, 1, qp.num()))
	require.True(t, readable(t, r.ch.fd()))
	require.True(t, readable(t, r.ctx.asyncFD()))
	require.NoError(t, qp.destroyQP())
	require.False(t, readable(t, r.ctx.asyncFD()))
	require.NoError(t, cq.destroyCQ())
	require.False(t, readable(t, r.ch.fd()))
}

func TestTooManyAcknowledgementsAreAFault(t *testing.T) {
	r := newRig(t, Fake0)
	cq, err := r.ctx.createCQ(16, r.ch)
	require.NoError(t, err)
	qp, err := r.pd.createQP(qptRC, cq, cq, 8)
	require.NoError(t, err)
	require.NoError(t, cq.notify(false))
	require.True(t, InjectWC(qp.num(), false, WC{}))
	_, err = r.ch.getEvent()
	require.NoError(t, err)
	cq.ackEvents(2)
	require.Regexp(t, `^ibv_ack_cq_events: CQ \d+ has 2 events acknowledged and 1 reported$`, Faults()[0])
	require.NoError(t, qp.destroyQP())
	SetBlockLimit(time.Millisecond)
	require.NoError(t, cq.destroyCQ())
	require.Regexp(t, `^ibv_destroy_cq: blocked on CQ \d+`, Faults()[0])
}

func TestStartFailsTestsThatLeaveSomething(t *testing.T) {
	var bad record
	Start(&bad)
	devices, err := callDevices()
	require.NoError(t, err)
	ctx, err := devices[0].open()
	require.NoError(t, err)
	pd, err := ctx.allocPD()
	require.NoError(t, err)
	require.NoError(t, pd.deallocPD())
	require.Error(t, pd.deallocPD())
	errors := bad.end()
	require.Len(t, errors, 2)
	require.Regexp(t, `^fakeverbs: ibv_dealloc_pd: PD \d+ was destroyed before$`, errors[0])
	require.Equal(t, "fakeverbs: objects that were not destroyed: context 1", errors[1])
	require.Equal(t, 1, Live()["context"])
	require.NoError(t, ctx.closeDevice())

	var good record
	Start(&good)
	require.Empty(t, good.end())
}

func TestDeviceHidden(t *testing.T) {
	Start(t)
	devices, err := callDevices()
	require.NoError(t, err)
	require.Equal(t, "fake0", devices[0].name())
	require.Equal(t, "fake1", devices[1].name())
	SetHidden(Fake0, true)
	left, err := callDevices()
	require.NoError(t, err)
	require.Equal(t, devices[1:], left)
	_, err = devices[0].open()
	require.Equal(t, syscall.ENODEV, err)
	Fail("ibv_get_device_list", 1, syscall.ENOSYS)
	_, err = callDevices()
	require.Equal(t, syscall.ENOSYS, err)
}

func TestDeviceAttr(t *testing.T) {
	Start(t)
	ctx := open(t, Fake0)
	for dev := range 2 {
		a := DeviceAttr(dev)
		a.MaxQP, a.ODPGeneral, a.PhysPortCnt = 7, 0, 2
		SetDeviceAttr(dev, a)
		require.Equal(t, a, DeviceAttr(dev))
		p := PortAttr(dev, 2)
		p.State, p.LinkLayer, p.LID = 1, 1, 9
		SetPortAttr(dev, 2, p)
		require.Equal(t, p, PortAttr(dev, 2))
		g := append(GIDs(dev), GID{GID: [16]byte{15: 1}, Port: 2, Index: 9, Type: 2, IfIndex: 3})
		SetGIDs(dev, g)
		require.Equal(t, g, GIDs(dev))
	}
	maxQP, err := ctx.queryDevice()
	require.NoError(t, err)
	require.Equal(t, 7, maxQP)
	state, err := ctx.queryPort(2)
	require.NoError(t, err)
	require.Equal(t, 1, state)
	_, err = ctx.queryPort(3)
	require.Equal(t, syscall.EINVAL, err)
	Reset()
	require.Equal(t, 1024, DeviceAttr(Fake0).MaxQP)
	_, err = ctx.queryPort(2)
	require.Equal(t, syscall.EINVAL, err)
	n, err := ctx.gidTable(16)
	require.NoError(t, err)
	require.Equal(t, 6, n)
	_, err = ctx.gidTable(2)
	require.Equal(t, negative(-22), err)
	gid, err := ctx.queryGID(3)
	require.NoError(t, err)
	require.Equal(t, []byte{10: 0xff, 11: 0xff, 12: 192, 13: 0, 14: 2, 15: 1}, gid)
	_, err = ctx.queryGID(16)
	require.Equal(t, syscall.EINVAL, err)
}

func TestForkStatus(t *testing.T) {
	Start(t)
	require.NoError(t, callForkInit())
	ForkStatus(syscall.EINVAL, 0)
	require.Equal(t, syscall.EINVAL, callForkInit())
}

func TestMemoryThatNoDeviceHereHas(t *testing.T) {
	const onDemand, localWrite = 1 << 6, 1
	r := newRig(t, Fake0)
	mr, err := r.pd.regMR(0x10000, 4096, localWrite|onDemand)
	require.NoError(t, err)
	got, ok := MRByKey(mr.lkey())
	require.True(t, ok)
	require.Equal(t, uint32(localWrite|onDemand), got.Access)
	require.Equal(t, -1, got.FD)
	require.NoError(t, mr.deregMR())

	mr, err = r.pd.regDMABuf(4096, 8192, 0x7000, 11, localWrite)
	require.NoError(t, err)
	got, ok = MRByKey(mr.lkey())
	require.True(t, ok)
	require.Equal(t, MR{Length: 8192, IOVA: 0x7000, Offset: 4096, Access: localWrite, FD: 11, RKey: got.RKey,
		PD: got.PD}, got)
	require.NoError(t, mr.deregMR())

	a := DeviceAttr(Fake0)
	a.ODPGeneral = 0
	SetDeviceAttr(Fake0, a)
	_, err = r.pd.regMR(0x10000, 4096, localWrite|onDemand)
	require.Equal(t, syscall.EOPNOTSUPP, err)
	_, err = r.pd.regMR(0x10000, 4096, 2) // remote write without local write
	require.Equal(t, syscall.EINVAL, err)
}

func TestMemoryOnFake1(t *testing.T) {
	r := newRig(t, Fake1)
	_, err := r.pd.regDMABuf(0, 8192, 0, 11, 1)
	require.Equal(t, syscall.EOPNOTSUPP, err)
	_, err = r.pd.regMR(0x10000, 4096, 1<<6)
	require.Equal(t, syscall.EOPNOTSUPP, err)
}
