// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/internal/lifetime"
)

// AHAttr describes a path (struct ibv_ah_attr). All numbers are in host order.
type AHAttr struct {
	GRH         GlobalRoute // grh: if IsGlobal; always on RoCE
	DLID        uint16      // dlid: the LID to which packets go; InfiniBand only
	SL          uint8       // sl: service level
	SrcPathBits uint8       // src_path_bits: the low bits of the LID from which they come; InfiniBand only
	StaticRate  uint8       // static_rate: the most that is sent on the path, enum ibv_rate; 0 = as fast as the port
	IsGlobal    bool        // is_global: GRH is valid
	PortNum     uint8       // port_num: the port that packets leave by, from 1
}

// GlobalRoute is the part of a path that a Global Routing Header carries (struct ibv_global_route).
type GlobalRoute struct {
	DGID         GID    // dgid
	FlowLabel    uint32 // flow_label, 20 bits
	SGIDIndex    uint8  // sgid_index: index of the local GID
	HopLimit     uint8  // hop_limit: routers that a packet may pass
	TrafficClass uint8  // traffic_class
}

// AH is an address handle: the path to a receiver of datagrams. All methods may be called
// concurrently.
type AH struct {
	node lifetime.Node
	pd   *PD
	p    ProviderAH
	attr AHAttr
}

// CreateAH makes an address handle (ibv_create_ah(3)). On devices without datagrams the error Is
// [ErrNotSupported]; it Is [ErrInvalid] if the device has no such port, or the flow label has more
// than 20 bits.
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

// Provider returns the provider's object of the handle.
func (ah *AH) Provider() ProviderAH { return ah.p }

// Close destroys the handle (ibv_destroy_ah(3)). Requests that name it should have completed. It is
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
