// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"context"

	"github.com/goverbs/goverbs/internal/queue"
	"github.com/goverbs/goverbs/verbs"
)

// vcontext is an open device (verbs.ProviderContext).
type vcontext struct {
	dev    *device
	owner  *verbs.Context
	events *queue.Events[verbs.AsyncEvent]
}

// Open implements verbs.ProviderDevice.
func (d *device) Open(owner *verbs.Context) (verbs.ProviderContext, error) {
	if d.guard.Closed() {
		return nil, verbs.ErrClosed
	}
	return &vcontext{dev: d, owner: owner, events: queue.NewEvents(verbs.AsyncEvent.OfClosed)}, nil
}

func (v *vcontext) QueryDevice() (verbs.DeviceAttr, error) {
	cfg := &v.dev.cfg
	attr := verbs.DeviceAttr{
		FwVer: "usiw", NodeGUID: v.dev.guid, SysImageGUID: v.dev.guid,
		MaxMRSize: maxMRSize, PageSizeCap: ^uint64(0xfff),
		MaxQP: cfg.MaxQP, MaxQPWR: maxQPWR, MaxSGE: maxSGE, MaxSGERd: maxSGERd,
		MaxCQ: cfg.MaxCQ, MaxCQE: cfg.MaxCQE, MaxMR: cfg.MaxMR, MaxPD: cfg.MaxPD,
		MaxQPRdAtom: cfg.MaxIRD, MaxQPInitRdAtom: cfg.MaxIRD, MaxResRdAtom: cfg.MaxQP * cfg.MaxIRD,
		MaxSRQ: cfg.MaxSRQ, MaxSRQWR: maxQPWR, MaxSRQSGE: maxSGE,
		MaxPKeys: 1, PhysPortCnt: 1, MaxInlineData: maxInlineData, NumCompVectors: 1,
	}
	if v.dev.ops.Has(verbs.OpBindMW) {
		attr.MaxMW = cfg.MaxMW
		attr.DeviceCapFlags |= verbs.DeviceMemWindow | verbs.DeviceMemWindowType2B
	}
	if v.dev.ops.Has(verbs.OpFetchAdd) {
		// The operations are compare-and-swap loops on the host's CPU, so they are atomic with
		// respect to every program on it.
		attr.AtomicCap = verbs.AtomicGlob
	}
	return attr, nil
}

func (v *vcontext) QueryPort(int) (verbs.PortAttr, error) {
	state := verbs.PortActive
	if v.dev.guard.Closed() {
		state = verbs.PortDown
	}
	return verbs.PortAttr{State: state, MaxMTU: verbs.MTU4096, ActiveMTU: verbs.MTU4096, GIDTblLen: 1,
		MaxMsgSz: 1<<32 - 1, PKeyTblLen: 1, LinkLayer: verbs.LinkLayerEthernet}, nil
}

func (v *vcontext) Ops() verbs.OpSet { return v.dev.ops }

// LocalSinks implements verbs.ProviderLocalSinks.
func (v *vcontext) LocalSinks() bool { return true }

func (v *vcontext) WaitEvent(ctx context.Context) (verbs.AsyncEvent, error) {
	return v.events.Wait(ctx)
}

func (v *vcontext) Close() error {
	v.events.Close()
	return nil
}

// domain is a protection domain (verbs.ProviderPD).
type domain struct {
	dev *device
	ctx *vcontext
}

func (v *vcontext) AllocPD() (verbs.ProviderPD, error) {
	if v.dev.guard.Closed() {
		return nil, verbs.ErrClosed
	}
	if err := v.dev.pds.take(); err != nil {
		return nil, err
	}
	return &domain{dev: v.dev, ctx: v}, nil
}

func (p *domain) Dealloc() error {
	p.dev.pds.give()
	return nil
}
