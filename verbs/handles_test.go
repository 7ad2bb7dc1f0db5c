// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/lifetime"
)

// family has one object of each kind that is a parent of others.
type family struct {
	ctx  *Context
	pd   *PD
	ch   *CompChannel
	send *CQ
	recv *CQ
	srq  *SRQ
}

func newFamily(t *testing.T, ctx *Context) *family {
	f := &family{ctx: ctx}
	var err error
	f.pd, err = ctx.AllocPD()
	require.NoError(t, err)
	f.ch, err = ctx.CreateCompChannel()
	require.NoError(t, err)
	f.send, err = ctx.CreateCQ(CQConfig{})
	require.NoError(t, err)
	f.recv, err = ctx.CreateCQ(CQConfig{})
	require.NoError(t, err)
	f.srq, err = f.pd.CreateSRQ(SRQAttr{})
	require.NoError(t, err)
	return f
}

func (f *family) close(t *testing.T) {
	require.NoError(t, errors.Join(f.srq.Close(), f.send.Close(), f.recv.Close(), f.ch.Close(), f.pd.Close()))
}

// parent is one of them: its node, and how it is closed.
type parent struct {
	node  *lifetime.Node
	close func() error
}

// making are the calls that make an object, and the parents that the object has.
var making = []struct {
	kind    string
	make    func(f *family) (handle any, err error)
	parents func(f *family) map[string]parent
}{
	{"PD", func(f *family) (any, error) { return f.ctx.AllocPD() }, parentContext},
	{"CompChannel", func(f *family) (any, error) { return f.ctx.CreateCompChannel() }, parentContext},
	{"CQ", func(f *family) (any, error) { return f.ctx.CreateCQ(CQConfig{}) }, parentContext},
	{"CQ of a channel", func(f *family) (any, error) { return f.ctx.CreateCQ(CQConfig{Channel: f.ch}) },
		func(f *family) map[string]parent { return map[string]parent{"channel": {&f.ch.node, f.ch.Close}} }},
	{"AllocMR", func(f *family) (any, error) { return f.pd.AllocMR(4096, 0) }, parentPD},
	{"RegMR", func(f *family) (any, error) { return f.pd.RegMR(make([]byte, 64), 0) }, parentPD},
	{"RegDmabufMR", func(f *family) (any, error) { return f.pd.RegDmabufMR(0, 4096, 0, 3, 0) }, parentPD},
	{"MW", func(f *family) (any, error) { return f.pd.AllocMW(MWType2) }, parentPD},
	{"AH", func(f *family) (any, error) { return f.pd.CreateAH(AHAttr{PortNum: 1}) }, parentPD},
	{"SRQ", func(f *family) (any, error) { return f.pd.CreateSRQ(SRQAttr{}) }, parentPD},
	{"QP", func(f *family) (any, error) { return f.pd.CreateQP(QPConfig{SendCQ: f.send, RecvCQ: f.recv}) },
		func(f *family) map[string]parent {
			return map[string]parent{"PD": parentPD(f)["PD"], "SendCQ": {&f.send.node, f.send.Close},
				"RecvCQ": {&f.recv.node, f.recv.Close}}
		}},
	{"QP of an SRQ", func(f *family) (any, error) {
		return f.pd.CreateQP(QPConfig{SendCQ: f.send, RecvCQ: f.recv, SRQ: f.srq})
	}, func(f *family) map[string]parent { return map[string]parent{"SRQ": {&f.srq.node, f.srq.Close}} }},
}

func parentContext(f *family) map[string]parent {
	return map[string]parent{"context": {&f.ctx.node, func() error {
		return errors.Join(f.srq.Close(), f.send.Close(), f.recv.Close(), f.ch.Close(), f.pd.Close(), f.ctx.Close())
	}}}
}

func parentPD(f *family) map[string]parent {
	return map[string]parent{"PD": {&f.pd.node, func() error { return errors.Join(f.srq.Close(), f.pd.Close()) }}}
}

// TestParentClosesMeanwhile: if a parent is closed while the device makes an object, the object is
// destroyed again, its memory is released, and the parent's Close waits for that.
func TestParentClosesMeanwhile(t *testing.T) {
	for _, m := range making {
		f := newFamily(t, openStub(t))
		names := m.parents(f)
		f.close(t)
		require.NoError(t, f.ctx.Close())
		for name := range names {
			t.Run(m.kind+", "+name, func(t *testing.T) {
				s, ctx := newStub(t)
				f := newFamily(t, ctx)
				p := m.parents(f)[name]
				ended := make(chan error, 1)
				s.during = func() {
					s.during = nil
					go func() { ended <- p.close() }()
					for !p.node.Closed() {
						runtime.Gosched()
					}
					for range 100 {
						runtime.Gosched() // a parent that does not wait is destroyed now
					}
				}
				handle, err := m.make(f)
				require.ErrorIs(t, err, ErrClosed)
				require.Nil(t, handle)
				require.NoError(t, <-ended)
				kind, ok := map[string]string{"channel": "CompChannel", "context": "Context", "SendCQ": "CQ",
					"RecvCQ": "CQ"}[name]
				if !ok {
					kind = name
				}
				require.NotContains(t, s.early, kind, "it is destroyed when calls on it have returned")
				f.close(t)
				s.closed(t, ctx)
			})
		}
	}
}

// TestDeviceRefuses: if the device does not make an object, the error has its reason, and nothing
// is left.
func TestDeviceRefuses(t *testing.T) {
	for _, m := range making {
		t.Run(m.kind, func(t *testing.T) {
			s, ctx := newStub(t)
			f := newFamily(t, ctx)
			s.fail = fmt.Errorf("%w: no more of them", ErrLimit)
			handle, err := m.make(f)
			require.ErrorIs(t, err, ErrLimit)
			require.ErrorContains(t, err, "on stub: ")
			require.Nil(t, handle)
			s.fail = nil
			handle, err = m.make(f)
			require.NoError(t, err, "the parents are as they were")
			for range 2 {
				require.NoError(t, handle.(interface{ Close() error }).Close(), "idempotent")
			}
			f.close(t)
			s.closed(t, ctx)
		})
	}
}

// TestCloseNil: a handle that was not made can be closed.
func TestCloseNil(t *testing.T) {
	require.NoError(t, errors.Join((*Context)(nil).Close(), (*Context)(nil).CloseAll(), (*PD)(nil).Close(),
		(*CompChannel)(nil).Close(), (*CQ)(nil).Close(), (*MR)(nil).Close(), (*MW)(nil).Close(), (*AH)(nil).Close(),
		(*SRQ)(nil).Close(), (*QP)(nil).Close(), (*Pool)(nil).Close(), (*Device)(nil).CloseShared()))
}

// TestParentClosed: a closed parent makes nothing.
func TestParentClosed(t *testing.T) {
	for _, m := range making {
		s, ctx := newStub(t)
		f := newFamily(t, ctx)
		for _, p := range m.parents(f) {
			require.NoError(t, p.close(), m.kind)
		}
		s.during = func() { t.Error("the device is asked for a", m.kind) }
		handle, err := m.make(f)
		require.ErrorIs(t, err, ErrClosed, m.kind)
		require.Nil(t, handle, m.kind)
		f.close(t)
		s.closed(t, ctx)
	}
}

// TestRefusedRegion: the memory of a region that comes to nothing is released: what was allocated
// is unmapped, and what was pinned is not any more. A Pinner that is collected while it pins ends
// the process.
func TestRefusedRegion(t *testing.T) {
	s, ctx := newStub(t)
	pd, err := ctx.AllocPD()
	require.NoError(t, err)
	closing := make(chan error, 1)
	for name, during := range map[string]func(){
		"refused": func() { s.fail = ErrLimit },
		"closed": func() {
			go func() { closing <- pd.Close() }()
			for !pd.node.Closed() {
				runtime.Gosched()
			}
		},
	} {
		for kind, reg := range map[string]func() (*MR, error){
			"AllocMR": func() (*MR, error) { return pd.AllocMR(4096, 0) },
			"RegMR":   func() (*MR, error) { return pd.RegMR(make([]byte, 64), 0) },
		} {
			s.during = during
			_, err := reg()
			require.Error(t, err)
			require.NotEmpty(t, s.mem)
			if kind == "AllocMR" {
				require.True(t, unmapped(s.mem), name)
			}
			s.during, s.fail, s.mem = nil, nil, nil
			collect()
			if name == "closed" {
				require.NoError(t, <-closing)
				pd, err = ctx.AllocPD()
				require.NoError(t, err)
			}
		}
	}
	_, err = pd.RegMRIova(make([]byte, 64), 1<<64-63, 0)
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, "wraps around")
	collect()
	require.NoError(t, pd.Close())
	s.closed(t, ctx)
}

// collect runs the finalizers of everything that is not reachable now.
func collect() {
	for range 2 {
		ran := make(chan struct{})
		runtime.SetFinalizer(&struct{ self *int }{new(int)}, func(any) { close(ran) })
		runtime.GC()
		<-ran
	}
}
