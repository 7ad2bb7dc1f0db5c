// SPDX-License-Identifier: BSD-3-Clause

package dat

import (
	"errors"

	"github.com/goverbs/goverbs/internal/lifetime"
	"github.com/goverbs/goverbs/verbs"
)

// PZ is a protection zone: the DTOs of an EP can access only memory of its own zone, here and at
// the peer. All methods may be called concurrently.
type PZ struct {
	node lifetime.Node
	ia   *IA
	pd   *verbs.PD
}

// CreatePZ creates a protection zone (dat_pz_create).
func (ia *IA) CreatePZ() (*PZ, error) {
	const call = "IA.CreatePZ"
	if err := ia.enter(call); err != nil {
		return nil, err
	}
	defer ia.node.Exit()
	pd, err := ia.ctx.AllocPD()
	if err != nil {
		return nil, below(call, ResourcePD, err)
	}
	pz := &PZ{ia: ia, pd: pd}
	if err := pz.node.Init("dat.PZ", pz.Free, &ia.node); err != nil {
		return nil, fault(call, InvalidHandle, InvalidHandleIA, errors.Join(err, pd.Close()))
	}
	return pz, nil
}

// IA returns the IA of the zone (dat_pz_query).
func (pz *PZ) IA() *IA { return pz.ia }

// Free frees the zone (dat_pz_free). It is idempotent. The error is [InvalidState] with
// [InvalidStatePZInUse] while EPs or LMRs use it.
func (pz *PZ) Free() error {
	const call = "PZ.Free"
	if pz == nil {
		return fault(call, InvalidHandle, InvalidHandlePZ, nil)
	}
	first, err := pz.node.BeginClose()
	if err != nil {
		return fault(call, InvalidState, InvalidStatePZInUse, err)
	}
	if !first {
		return nil
	}
	pz.node.Drain(0)
	err = pz.pd.Close()
	pz.node.End()
	return below(call, NoSubtype, err)
}
