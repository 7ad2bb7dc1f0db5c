// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package scenario

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/forward"
	"github.com/goverbs/goverbs/verbs"
)

// liar is a device that forwards everything and changes one thing.
type liar struct {
	verbs.ProviderDevice
	lie lie
}

// lie is what a liar changes; nil functions change nothing.
type lie struct {
	poll func(wcs []verbs.WC)                              // completions returned
	post func(n int, err error) (int, error)               // results of PostSend
	recv func(n int, err error) (int, error)               // results of PostRecv
	send func(wrs []verbs.SendWR) (changed []verbs.SendWR) // requests posted
}

// Unwrap gives access to the connection manager.
func (d liar) Unwrap() verbs.ProviderDevice { return d.ProviderDevice }

func (d liar) Open(owner *verbs.Context) (verbs.ProviderContext, error) {
	c, err := d.ProviderDevice.Open(owner)
	if err != nil {
		return nil, err
	}
	return &liarContext{c.(*forward.Context), d.lie}, nil
}

type liarContext struct {
	*forward.Context
	lie lie
}

func (c *liarContext) CreateCQ(owner *verbs.CQ, cqe int, ch verbs.ProviderCompChannel,
	vector int) (verbs.ProviderCQ, error) {
	in, err := c.NewCQ(owner, cqe, ch, vector)
	if err != nil {
		return nil, err
	}
	return &liarCQ{in, c.lie}, nil
}

func (c *liarContext) AllocPD() (verbs.ProviderPD, error) {
	in, err := c.NewPD()
	if err != nil {
		return nil, err
	}
	return &liarPD{in, c.lie}, nil
}

type liarCQ struct {
	*forward.CQ
	lie lie
}

func (c *liarCQ) Poll(wcs []verbs.WC) (int, error) {
	n, err := c.In.Poll(wcs)
	if n > 0 && c.lie.poll != nil {
		c.lie.poll(wcs[:n])
	}
	return n, err
}

type liarPD struct {
	*forward.PD
	lie lie
}

func (p *liarPD) CreateQP(owner *verbs.QP, cfg verbs.ProviderQPConfig) (verbs.ProviderQP, verbs.QPCap, error) {
	in, err := p.NewQP(owner, cfg)
	if err != nil {
		return nil, verbs.QPCap{}, err
	}
	return &liarQP{in, p.lie}, in.In.Cap(), nil
}

type liarQP struct {
	*forward.QP
	lie lie
}

func (q *liarQP) PostSend(wrs []verbs.SendWR) (int, error) {
	if q.lie.send != nil {
		wrs = q.lie.send(wrs)
	}
	n, err := q.QP.PostSend(wrs)
	if q.lie.post != nil {
		return q.lie.post(n, err)
	}
	return n, err
}

func (q *liarQP) PostRecv(wrs []verbs.RecvWR) (int, error) {
	n, err := q.QP.PostRecv(wrs)
	if q.lie.recv != nil {
		return q.lie.recv(n, err)
	}
	return n, err
}

// planted returns the fake fabric through a liar.
func planted(t *testing.T, honest Fabric, l lie) Fabric {
	t.Helper()
	dev := verbs.NewDevice(liar{forward.Wrap(honest.Active).Provider(), l})
	t.Cleanup(func() { require.NoError(t, dev.CloseShared()) })
	return Fabric{Name: "liar", Active: dev, Passive: dev, Listen: honest.Listen}
}

// TestPlanted checks that a difference in any single thing that a program observes is found, and
// that none is reported otherwise.
func TestPlanted(t *testing.T) {
	once := func(f func(wc *verbs.WC) bool) func([]verbs.WC) {
		done := false
		return func(wcs []verbs.WC) {
			for i := range wcs {
				if !done {
					done = f(&wcs[i])
				}
			}
		}
	}
	received := func(wc *verbs.WC) bool { return wc.Status == verbs.WCSuccess && wc.IsRecv() }
	for _, c := range []struct {
		name, scenario string
		lie            lie
		differs        bool
	}{
		{"nothing", "row05/send-imm", lie{}, false},
		{"wr_id", "row05/send-imm", lie{poll: once(func(wc *verbs.WC) bool { wc.ID ^= 1 << 40; return true })}, true},
		{"status", "row05/send-imm",
			lie{poll: once(func(wc *verbs.WC) bool { wc.Status = verbs.WCGeneralErr; return true })}, true},
		{"status of a failure", "row03/write-denied", lie{poll: once(func(wc *verbs.WC) bool {
			failed := wc.Status == verbs.WCRemAccessErr
			if failed {
				wc.Status = verbs.WCRemOpErr
			}
			return failed
		})}, true},
		{"opcode", "row05/send-imm", lie{poll: once(func(wc *verbs.WC) bool { wc.Opcode ^= 1; return true })}, true},
		{"byte_len", "row05/send-imm", lie{poll: once(func(wc *verbs.WC) bool { wc.ByteLen++; return received(wc) })},
			true},
		{"immediate", "row05/send-imm", lie{poll: once(func(wc *verbs.WC) bool { wc.Imm++; return received(wc) })},
			true},
		{"WITH_IMM", "row05/send-imm",
			lie{poll: once(func(wc *verbs.WC) bool { wc.Flags ^= verbs.WCWithImm; return received(wc) })}, true},
		{"undefined: byte_len of a Send", "row05/send-imm", lie{poll: once(func(wc *verbs.WC) bool {
			if !received(wc) {
				wc.ByteLen += 7
			}
			return false
		})}, false},
		{"undefined: opcode of a failure", "row03/write-denied", lie{poll: once(func(wc *verbs.WC) bool {
			if wc.Status != verbs.WCSuccess {
				wc.Opcode, wc.ByteLen, wc.Imm, wc.Flags, wc.VendorErr = 1, 2, 3, verbs.WCWithImm, 4
			}
			return false
		})}, false},
		{"count of PostSend", "row03/write-denied",
			lie{post: func(n int, err error) (int, error) { return n - 1, errors.Join(err, verbs.ErrQueueFull) }},
			true}, {"error of PostRecv", "row03/write-denied",
			lie{recv: func(int, error) (int, error) { return 0, verbs.ErrInvalid }}, true},
		{"immediate on the wire", "row04/write-imm", lie{send: func(wrs []verbs.SendWR) []verbs.SendWR {
			wrs[0].Imm ^= 1 << 31
			return wrs
		}}, true},
		{"a byte of memory", "row06/cmp-swap", lie{send: func(wrs []verbs.SendWR) []verbs.SendWR {
			wrs[len(wrs)-1].Swap ^= 1 << 8
			return wrs
		}}, true},
		{"order", "row09/read-scatters", lie{send: func(wrs []verbs.SendWR) []verbs.SendWR {
			wrs[0], wrs[1] = wrs[1], wrs[0]
			return wrs
		}}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			honest := fakeFabric(t)
			s := named(t, c.scenario)
			r, err := Compare(t.Context(), []Fabric{honest, planted(t, honest, c.lie)}, []*Scenario{s}, nil)
			require.NoError(t, err)
			require.Equal(t, !c.differs, r.OK, r.Scenarios[0].Difference)
			require.Equal(t, !c.differs, r.Scenarios[0].TracesEqual)
			require.Equal(t, c.differs, r.Scenarios[0].Difference != "")
		})
	}
}
