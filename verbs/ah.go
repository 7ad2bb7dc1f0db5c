// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/internal/lifetime"
)

// AHAttr describes a path (struct ibv_ah_attr). All numbers are in host byte order.
type AHAttr struct {
	GRH         GlobalRoute // grh: valid if IsGlobal; required on RoCE
	DLID        uint16      // dlid: destination LID; InfiniBand only
	SL          uint8       // sl: service level
	SrcPathBits uint8       // src_path_bits: low bits of the source LID; InfiniBand only
	StaticRate  uint8       // static_rate: maximum rate on the path, enum ibv_rate; 0 = port rate
	IsGlobal    bool        // is_global: GRH is valid
	PortNum     uint8       // port_num: the local port, from 1
}

// GlobalRoute holds the fields of a path that go into the Global Routing Header (struct
// ibv_global_route).
type GlobalRoute struct {
	DGID         GID    // dgid
	FlowLabel    uint32 // flow_label, 20 bits
	SGIDIndex    uint8  // sgid_index: index of the local GID
	HopLimit     uint8  // hop_limit: maximum number of routers on the path
	TrafficClass uint8  // traffic_class
}

// AH is an address handle: the path to a destination of datagrams. All methods may be called
// concurrently.
type AH struct {
	node lifetime.Node
	pd   *PD
	p    ProviderAH
	attr AHAttr
}

// CreateAH creates an address handle (ibv_create_ah(3)). The error Is [ErrNotSupported] on devices
// without datagrams, and [ErrInvalid] if the device has no such port or the flow label exceeds 20
// bits.
func (pd *PD) CreateAH(attr AHAttr) (*AH, error) {
	if err := pd.enter("CreateAH"); err != nil {
		return nil, err
	}
	defer pd.node.Exit()
	ah, err := pd.createAH(attr)
	return ah, opError("CreateAH", pd.ctx.dev.Name(), err)
}

func (pd *PD) createAH(attr AHAttr) (*AH, error) {
	maker, ok := Ability[ProviderAHCreator](pd.p)
	if !ok {
		return nil, fmt.Errorf("%w: address handles", ErrNotSupported)
	}
	if err := pd.ctx.checkPort(int(attr.PortNum)); err != nil {
		return nil, err
	}
	if attr.GRH.FlowLabel >= 1<<20 {
		return nil, invalid("flow_label %#x has more than 20 bits", attr.GRH.FlowLabel)
	}
	ah := &AH{pd: pd, attr: attr}
	var err error
	if ah.p, err = maker.CreateAH(attr); err != nil {
		return nil, err
	}
	if err := ah.node.Init("AH", ah.Close, &pd.node); err != nil {
		return nil, errors.Join(err, ah.p.Destroy())
	}
	return ah, nil
}

// PD returns the handle's protection domain.
func (ah *AH) PD() *PD { return ah.pd }

// Attr returns the path.
func (ah *AH) Attr() AHAttr { return ah.attr }

// Provider returns the provider's AH object.
func (ah *AH) Provider() ProviderAH { return ah.p }

// Close destroys the handle (ibv_destroy_ah(3)). Requests that use it should have completed. It is
// idempotent and may be called on nil.
func (ah *AH) Close() error {
	if ah == nil {
		return nil
	}
	first, err := ah.node.BeginClose()
	if !first || err != nil {
		return opError("AH.Close", ah.pd.ctx.dev.Name(), err)
	}
	ah.node.Drain(0)
	err = ah.p.Destroy()
	ah.node.End()
	return opError("AH.Close", ah.pd.ctx.dev.Name(), err)
}
