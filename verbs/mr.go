// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/lifetime"
	"github.com/goverbs/goverbs/internal/mapmem"
)

// MR is a registered memory region. Only Close deregisters it: the garbage collector cannot know
// whether a peer still holds its key. All methods may be called concurrently.
//
// A nil *MR is an empty region: Bytes returns nil, its keys are 0, and [MR.SGE] and [MR.Word]
// return an error.
type MR struct {
	node    lifetime.Node
	ctx     *Context
	pd      *PD
	p       ProviderMR
	buf     []byte
	foreign int // length of memory that buf cannot refer to, otherwise 0
	iova    uint64
	access  AccessFlags
	release func() // frees the memory after deregistration
	placed  atomic.Pointer[placed]

	closing sync.Mutex // guards gone
	gone    bool       // deregistered
}

// AllocMR allocates n bytes of zeroed, page-aligned memory outside the Go heap and registers them.
// With AccessHugeTLB it uses huge pages if the system has any. Close frees the memory; a later
// access through the slice that Bytes returned faults instead of reading other data. The error Is
// [ErrInvalid] if n is not positive or access lacks a right that another requires, and [ErrLimit]
// above max_mr_size.
func (pd *PD) AllocMR(n int, access AccessFlags) (*MR, error) {
	if err := pd.enter("AllocMR"); err != nil {
		return nil, err
	}
	defer pd.node.Exit()
	if n <= 0 {
		return nil, opError("AllocMR", pd.ctx.dev.Name(), invalid("length %d", n))
	}
	if err := pd.checkMR(n, access); err != nil {
		return nil, opError("AllocMR", pd.ctx.dev.Name(), err)
	}
	mem, err := mapmem.Map(n, access&AccessHugeTLB != 0)
	if err != nil {
		return nil, opError("AllocMR", pd.ctx.dev.Name(), fmt.Errorf("mapping %d bytes: %w", n, err))
	}
	return pd.newMR("AllocMR", mem[:n:n], iovaOf(mem, access), access, func() { mapmem.Unmap(mem) })
}

// RegMR registers memory of the caller (ibv_reg_mr(3)). The region has the addresses of the memory
// or, with AccessZeroBased, offsets from its start. buf is pinned and kept reachable until Close.
// It may be pointer-free Go memory or memory outside the Go heap.
func (pd *PD) RegMR(buf []byte, access AccessFlags) (*MR, error) {
	return pd.regMR("RegMR", buf, iovaOf(buf, access), access)
}

// RegMRIova registers buf at address iova (ibv_reg_mr_iova(3)): peers and SGEs address its first
// byte as iova.
func (pd *PD) RegMRIova(buf []byte, iova uint64, access AccessFlags) (*MR, error) {
	if access&AccessZeroBased != 0 && iova != 0 {
		return nil, opError("RegMRIova", pd.ctx.dev.Name(), invalid("iova %#x with AccessZeroBased", iova))
	}
	return pd.regMR("RegMRIova", buf, iova, access)
}

func (pd *PD) regMR(op string, buf []byte, iova uint64, access AccessFlags) (*MR, error) {
	if err := pd.enter(op); err != nil {
		return nil, err
	}
	defer pd.node.Exit()
	if len(buf) == 0 {
		return nil, opError(op, pd.ctx.dev.Name(), invalid("empty buffer"))
	}
	if err := pd.checkMR(len(buf), access); err != nil {
		return nil, opError(op, pd.ctx.dev.Name(), err)
	}
	// The table of live objects keeps the MR, and thus the Pinner, reachable: the runtime panics
	// when a Pinner is collected while it pins memory.
	pinner := new(runtime.Pinner)
	pinner.Pin(&buf[0])
	return pd.newMR(op, buf, iova, access, pinner.Unpin)
}

func (pd *PD) newMR(op string, buf []byte, iova uint64, access AccessFlags, release func()) (*MR, error) {
	if iova+uint64(len(buf)) < iova {
		release()
		return nil, opError(op, pd.ctx.dev.Name(), invalid("iova %#x plus length %d wraps around", iova, len(buf)))
	}
	p, err := pd.p.RegMR(buf, iova, access)
	if err != nil {
		release()
		return nil, opError(op, pd.ctx.dev.Name(), err)
	}
	m := &MR{ctx: pd.ctx, pd: pd, p: p, buf: buf, iova: iova, access: access, release: release}
	m.place()
	if err := m.node.Init("MR", m.Close, &pd.node); err != nil {
		err = errors.Join(err, p.Dereg())
		release()
		return nil, opError(op, pd.ctx.dev.Name(), err)
	}
	return m, nil
}

// checkMR checks length and access rights before anything is allocated.
func (pd *PD) checkMR(n int, access AccessFlags) error {
	if uint64(n) > pd.ctx.attr.MaxMRSize {
		return &LimitError{Name: "max_mr_size", Limit: pd.ctx.attr.MaxMRSize, Value: uint64(n)}
	}
	if unknown := access &^ accessKnown; unknown != 0 {
		return invalid("access flags %v", unknown)
	}
	if access&(AccessRemoteWrite|AccessRemoteAtomic) != 0 && access&AccessLocalWrite == 0 {
		return invalid("access %v needs LOCAL_WRITE", access)
	}
	return nil
}

// errNoRegion is returned for a nil region, such as that of an endpoint without memory.
var errNoRegion = fmt.Errorf(
	"%w: there is no memory region (nil; an Endpoint of package cm has one if EndpointConfig.Memory is set)",
	ErrInvalid)

// PD returns the protection domain of the region.
func (m *MR) PD() *PD {
	if m == nil {
		return nil
	}
	return m.pd
}

// Bytes returns the registered memory. Memory from AllocMR must not be touched after Close.
func (m *MR) Bytes() []byte {
	if m == nil {
		return nil
	}
	return m.buf
}

// Len returns the length in bytes.
func (m *MR) Len() int {
	if m == nil {
		return 0
	}
	return max(len(m.buf), m.foreign)
}

// Addr returns the address of the first byte as SGEs and peers use it: the memory's own address,
// the iova, or 0 for a zero-based region.
func (m *MR) Addr() uint64 {
	if m == nil {
		return 0
	}
	return m.iova
}

// Access returns the region's access rights.
func (m *MR) Access() AccessFlags {
	if m == nil {
		return 0
	}
	return m.access
}

// LKey returns the local key, used in SGEs.
func (m *MR) LKey() uint32 {
	if m == nil {
		return 0
	}
	return m.p.LKey()
}

// RKey returns the remote key, used by peers.
func (m *MR) RKey() uint32 {
	if m == nil {
		return 0
	}
	return m.p.RKey()
}

// SGE returns the element for n bytes at offset off. The error Is [ErrBounds] if the range exceeds
// the region, and [ErrClosed] if the region is closed.
func (m *MR) SGE(off, n int) (SGE, error) {
	if m == nil {
		return SGE{}, opError("MR.SGE", "", errNoRegion)
	}
	if m.node.Closed() {
		return SGE{}, opError("MR.SGE", m.ctx.dev.Name(), ErrClosed)
	}
	if off < 0 || n < 0 || off > m.Len() || n > m.Len()-off || uint64(n) > 1<<32-1 {
		return SGE{}, opError("MR.SGE", m.pd.ctx.dev.Name(),
			fmt.Errorf("%w: offset %d length %d of %d", ErrBounds, off, n, m.Len()))
	}
	return SGE{Addr: m.iova + uint64(off), Length: uint32(n), LKey: m.p.LKey()}, nil
}

// Provider returns the provider's MR object.
func (m *MR) Provider() ProviderMR { return m.p }

// Close deregisters the region (ibv_dereg_mr(3)). When it returns without error, neither the peer
// nor the device accesses the memory any longer. It waits for operations in progress on the region,
// and ends a connection that uses the region for too long. Windows bound to the region lose their
// access; kernel drivers instead refuse the call while windows are bound, with an error that Is
// [ErrBusy]. After any error the device can still access the memory, which stays in place, and
// Close can be called again. Close is idempotent and may be called on nil.
func (m *MR) Close() error {
	if m == nil {
		return nil
	}
	if _, err := m.node.BeginClose(); err != nil {
		return opError("MR.Close", m.pd.ctx.dev.Name(), err)
	}
	m.closing.Lock()
	defer m.closing.Unlock()
	m.node.Drain(0)
	if m.gone {
		return nil
	}
	if err := m.p.Dereg(); err != nil {
		return opError("MR.Close", m.pd.ctx.dev.Name(), err)
	}
	m.gone = true
	m.release()
	m.node.End()
	return nil
}

// RegDmabufMR registers memory of another device, such as a GPU, through the file descriptor of its
// dma-buf (ibv_reg_dmabuf_mr(3)): length bytes at offset, addressed from iova. The program cannot
// access the memory through the region: Bytes returns nil. The device holds its own reference to
// the buffer; fd may be closed.
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

// iovaOf returns the address at which buf is registered: its own, or 0 for a zero-based region.
func iovaOf(buf []byte, access AccessFlags) uint64 {
	if access&AccessZeroBased != 0 || len(buf) == 0 {
		return 0
	}
	return uint64(mapmem.Address(buf))
}
