// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/lifetime"
)

// stub is a device that does nothing but count its objects, for tests of what the handles do
// themselves.
type stub struct {
	attr DeviceAttr

	mu     sync.Mutex     // guards made and calls
	made   map[string]int // objects that have been made and not destroyed, by kind
	during func()         // runs within each call that makes an object, before it returns
	making bool           // such a call is in progress
	early  []string       // what was destroyed meanwhile
	fail   error          // what calls that make an object return, if it is not nil
	calls  []string       // what else has reached the device
	mem    []byte         // the memory of the last region
	ids    []uint64       // of the last send requests
	refuse error          // what calls that change an object return, if it is not nil
	direct bool           // QPs and CQs check and poll by themselves
	state  QPState        // what QPs say they are in
	spin   time.Duration  // how long CQs are to be polled before a wait sleeps
	plain  bool           // CQs cannot be driven
	gids   map[int]GID    // the GID table
	end    error          // why QPs have failed
	reason error          // why requests have failed; the device knows which ones if it is not nil
}

// newStub opens a stub that has every ability.
func newStub(t *testing.T) (*stub, *Context) {
	s := &stub{made: make(map[string]int),
		attr: DeviceAttr{MaxMRSize: 1 << 40, MaxQPWR: 100, MaxSGE: 4, MaxSGERd: 3, MaxCQE: 1000, MaxSRQWR: 50,
			MaxSRQSGE: 2, PhysPortCnt: 2, MaxInlineData: 64, NumCompVectors: 3}}
	ctx, err := NewDevice(s).Open()
	require.NoError(t, err)
	return s, ctx
}

// openStub opens a stub of which the test needs only the context.
func openStub(t *testing.T) *Context {
	_, ctx := newStub(t)
	return ctx
}

// closed asserts that the device has no object any more, and nor has this process.
func (s *stub) closed(t *testing.T, ctx *Context) {
	t.Helper()
	require.NoError(t, ctx.Close())
	require.Empty(t, s.made)
	require.Empty(t, lifetime.LiveOf(ctx.dev))
}

// reached returns what has reached the device since the last call.
func (s *stub) reached() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = nil
	return calls
}

// make counts a new object.
func (s *stub) make(kind string) error {
	s.mu.Lock()
	s.making = true
	s.mu.Unlock()
	if s.during != nil {
		s.during()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.making = false
	if s.fail != nil {
		return s.fail
	}
	s.made[kind]++
	return nil
}

// destroy counts the end of an object.
func (s *stub) destroy(kind string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.making {
		s.early = append(s.early, kind)
	}
	switch s.made[kind] {
	case 0:
		return fmt.Errorf("there is no %s", kind)
	case 1:
		delete(s.made, kind)
	default:
		s.made[kind]--
	}
	return nil
}

// called notes a call.
func (s *stub) called(format string, args ...any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, fmt.Sprintf(format, args...))
	return s.refuse
}

func (s *stub) Info() DeviceInfo { return DeviceInfo{Name: "stub"} }

func (s *stub) Open(*Context) (ProviderContext, error) {
	if err := s.make("Context"); err != nil {
		return nil, err
	}
	return stubContext{s}, nil
}

// The stub's objects.
type (
	stubContext struct{ *stub }
	stubPD      struct{ *stub }
	stubMR      struct{ *stub }
	stubMW      struct{ *stub }
	stubChannel struct{ *stub }
	stubAH      struct{ *stub }
	stubSRQ     struct{ *stub }
	stubCQ      struct {
		*stub
		cqe    int
		err    error // what Poll returns
		sleep  error // what Sleep and ReqNotify return
		polls  int   // how often it has been polled
		full   int   // from which poll on it has a completion, 0 = never
		driven int   // the same, once it has been driven
		failAt int   // the poll that fails, 0 = none
		queue  []WC  // completions
	}
	stubQP struct {
		ProviderQP
		*stub
	}
	// stubDriver is a CQ that is driven by who polls it.
	stubDriver struct{ *stubCQ }
)

func (c stubContext) QueryDevice() (DeviceAttr, error) { return c.attr, nil }
func (c stubContext) QueryPort(port int) (PortAttr, error) {
	return PortAttr{LID: uint16(port), GIDTblLen: 300, PKeyTblLen: 2}, nil
}
func (c stubContext) Ops() OpSet                   { return AllOps }
func (c stubContext) AllocPD() (ProviderPD, error) { return stubPD(c), c.make("PD") }
func (c stubContext) CreateCompChannel() (ProviderCompChannel, error) {
	return stubChannel(c), c.make("CompChannel")
}
func (c stubContext) WaitEvent(context.Context) (AsyncEvent, error) { return AsyncEvent{}, nil }
func (c stubContext) Close() error                                  { return c.destroy("Context") }

func (c stubContext) CreateCQ(_ *CQ, cqe int, _ ProviderCompChannel, vector int) (ProviderCQ, error) {
	_ = c.called("CreateCQ %d, vector %d", cqe, vector)
	cq := &stubCQ{stub: c.stub, cqe: cqe}
	if c.plain {
		return cq, c.make("CQ")
	}
	return stubDriver{cq}, c.make("CQ")
}

func (c stubContext) QueryGID(port, index int) (GIDEntry, error) {
	gid, ok := c.gids[index]
	if !ok {
		return GIDEntry{}, ErrNoGID
	}
	return GIDEntry{GID: gid, Port: port, Index: index, Type: GIDTypeRoCEv2}, nil
}

func (c stubContext) QueryPKey(_, index int) (uint16, error) { return uint16(0x8000 + index), nil }

func (p stubPD) RegMR(mem []byte, _ uint64, _ AccessFlags) (ProviderMR, error) {
	p.mem = mem
	return stubMR(p), p.make("MR")
}

func (p stubPD) RegDmabufMR(_, _, _ uint64, _ int, _ AccessFlags) (ProviderMR, error) {
	return stubMR(p), p.make("MR")
}

func (p stubPD) AllocMW(MWType) (ProviderMW, error) { return stubMW(p), p.make("MW") }

func (p stubPD) CreateQP(_ *QP, cfg ProviderQPConfig) (ProviderQP, QPCap, error) {
	return stubQP{stub: p.stub}, cfg.Cap, p.make("QP")
}

func (p stubPD) CreateSRQ(_ *SRQ, attr SRQAttr) (ProviderSRQ, SRQAttr, error) {
	return stubSRQ(p), attr, p.make("SRQ")
}

func (p stubPD) CreateAH(AHAttr) (ProviderAH, error) { return stubAH(p), p.make("AH") }
func (p stubPD) Dealloc() error                      { return p.destroy("PD") }

func (m stubMR) LKey() uint32 { return 1 }
func (m stubMR) RKey() uint32 { return 2 }
func (m stubMR) Dereg() error { return m.destroy("MR") }

func (m stubMR) Rereg(flags ReregFlags, _ ProviderPD, mem []byte, iova uint64, access AccessFlags) error {
	return m.called("Rereg %v, %d bytes at %#x, %v", flags, len(mem), iova, access)
}

func (w stubMW) RKey() uint32   { return 0x300 }
func (w stubMW) Dealloc() error { return w.destroy("MW") }

func (ch stubChannel) Wait(context.Context) (*CQ, error) { return nil, ch.called("Wait") }
func (ch stubChannel) Close() error                      { return ch.destroy("CompChannel") }

func (cq *stubCQ) ReqNotify(bool) error { return errors.Join(cq.sleep, cq.called("ReqNotify")) }
func (cq *stubCQ) CQE() int             { return cq.cqe }
func (cq *stubCQ) Resize(cqe int) error { cq.cqe = cqe; return cq.called("Resize %d", cqe) }
func (cq *stubCQ) Destroy() error       { return cq.destroy("CQ") }
func (cq *stubCQ) canPollDirect() bool  { return cq.direct }

func (cq *stubCQ) Poll(wcs []WC) (int, error) {
	cq.polls++
	if cq.polls == cq.failAt {
		return 0, ErrCQOverflow
	}
	if n := copy(wcs, cq.queue); n > 0 {
		cq.queue = cq.queue[n:]
		return n, nil
	}
	if cq.full == 0 || cq.polls < cq.full || len(wcs) == 0 {
		return 0, cq.err
	}
	return 1, nil
}

func (cq *stubCQ) pollDirect([]WC) (int, bool, error) {
	return 0, true, errors.Join(cq.err, cq.called("pollDirect"))
}

func (cq stubDriver) Drive()              { cq.full = cq.driven; _ = cq.called("Drive") }
func (cq stubDriver) Spin() time.Duration { return cq.spin }
func (cq stubDriver) Sleep(context.Context, bool) error {
	return errors.Join(cq.sleep, cq.called("Sleep"))
}

func (q stubQP) Num() uint32         { return 7 }
func (q stubQP) KnownState() QPState { return q.state }
func (q stubQP) canPostDirect() bool { return q.direct }
func (q stubQP) Destroy() error      { return q.destroy("QP") }
func (q stubQP) Err() error          { return q.end }

func (q stubQP) Explain(*WC) (WCOpcode, bool, error) { return WCRDMARead, q.reason != nil, q.reason }

// posted notes a post of n requests, all or none of which are taken.
func (s *stub) posted(what string, n int) (int, error) {
	if err := s.called("%s %d", what, n); err != nil {
		return 0, err
	}
	return n, nil
}

func (q stubQP) PostSend(wrs []SendWR) (int, error) {
	q.ids = nil
	for i := range wrs {
		q.ids = append(q.ids, wrs[i].ID)
	}
	return q.posted("PostSend", len(wrs))
}

func (q stubQP) PostRecv(wrs []RecvWR) (int, error) { return q.posted("PostRecv", len(wrs)) }

func (q stubQP) postSendDirect(_ *QP, wrs []SendWR) (int, error) {
	return len(wrs), q.called("postSendDirect %d", len(wrs))
}

func (q stubQP) postRecvDirect(_ *QP, wrs []RecvWR) (int, error) {
	return len(wrs), q.called("postRecvDirect %d", len(wrs))
}

func (ah stubAH) Destroy() error { return ah.destroy("AH") }

func (s stubSRQ) Query() (SRQAttr, error)            { return SRQAttr{}, nil }
func (s stubSRQ) Destroy() error                     { return s.destroy("SRQ") }
func (s stubSRQ) PostRecv(wrs []RecvWR) (int, error) { return s.posted("SRQ.PostRecv", len(wrs)) }
func (s stubSRQ) Modify(attr SRQAttr, mask SRQAttrMask) error {
	return s.called("Modify %v %+v", mask, attr)
}

func (q stubQP) BindMW(id uint64, flags SendFlags, _ *MWBind) (uint32, error) {
	return 0x301, q.called("BindMW %d %v", id, flags)
}
