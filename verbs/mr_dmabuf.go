// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"errors"
	"fmt"
)

// RegDmabufMR registers memory of another device, for example a GPU, by the file descriptor of its
// dma-buf (ibv_reg_dmabuf_mr(3)): length bytes from offset, whose addresses begin at iova. The
// program cannot access the memory through the region: Bytes returns nil. The device keeps its own
// reference to the buffer; fd may be closed.
func (pd *PD) RegDmabufMR(offset, length, iova uint64, fd int, access AccessFlags) (*MR, error) {
	const op = "RegDmabufMR"
	if err := pd.enter(op); err != nil {
		return nil, err
	}
	defer pd.node.Exit()
	m, err := pd.regDmabufMR(offset, length, iova, fd, access)
	return m, opError(op, pd.ctx.dev.Name(), err)
}

func (pd *PD) regDmabufMR(offset, length, iova uint64, fd int, access AccessFlags) (*MR, error) {
	r, ok := Ability[ProviderDmabufRegistrar](pd.p)
	switch {
	case !ok:
		return nil, fmt.Errorf("%w: dma-buf memory", ErrNotSupported)
	case length == 0 || length >= 1<<62:
		return nil, invalid("length %d", length)
	case offset+length < offset || iova+length < iova:
		return nil, invalid("offset %#x or iova %#x plus length %d wraps around", offset, iova, length)
	case fd < 0:
		return nil, invalid("file descriptor %d", fd)
	}
	if err := pd.checkMR(int(length), access); err != nil {
		return nil, err
	}
	p, err := r.RegDmabufMR(offset, length, iova, fd, access)
	if err != nil {
		return nil, err
	}
	m := &MR{ctx: pd.ctx, pd: pd, p: p, iova: iova, foreign: int(length), access: access, release: func() {}}
	m.place()
	if err := m.node.Init("MR", m.Close, &pd.node); err != nil {
		return nil, errors.Join(err, p.Dereg())
	}
	return m, nil
}
