// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/goverbs/goverbs/internal/lifetime"
)

// MR is a registered memory region. Nothing deregisters it but Close: a peer that holds its key is a reference that the
// garbage collector cannot see. All methods may be called concurrently.
type MR struct {
	node    lifetime.Node
	pd      *PD
	p       ProviderMR
	buf     []byte
	foreign int // length of memory that buf cannot show, 0 where it can
	iova    uint64
	access  AccessFlags
	release func() // gives the memory back after deregistration

	closing sync.Mutex // guards gone
	gone    bool       // deregistered
}

// AllocMR allocates n bytes of zeroed, page-aligned memory outside of the Go heap and registers it. With AccessHugeTLB
// huge pages are asked for and used where the system has them. Close takes the memory away: a later access of the
// slice that Bytes returned faults instead of reading somebody else's data.
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
	mem, err := mapMemory(n, access&AccessHugeTLB != 0)
	if err != nil {
		return nil, opError("AllocMR", pd.ctx.dev.Name(), fmt.Errorf("mapping %d bytes: %w", n, err))
	}
	return pd.newMR("AllocMR", mem[:n:n], iovaOf(mem, access), access, func() { unmapMemory(mem) })
}

// RegMR registers the caller's memory (ibv_reg_mr(3)). The region's addresses are the memory's own, or offsets from its
// start with AccessZeroBased. buf is pinned and kept until Close; it may be Go memory without pointers or memory of
// any other origin.
func (pd *PD) RegMR(buf []byte, access AccessFlags) (*MR, error) {
	return pd.regMR("RegMR", buf, iovaOf(buf, access), access)
}

// RegMRIova registers buf under the address iova (ibv_reg_mr_iova(3)): the peer, and SGEs, reach its first byte as iova.
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
	// The node in the table of live objects keeps the MR, and so the Pinner, reachable: a Pinner that is collected
	// while it pins ends the process.
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
	m := &MR{pd: pd, p: p, buf: buf, iova: iova, access: access, release: release}
	if err := m.node.Init("MR", m.Close, &pd.node); err != nil {
		err = errors.Join(err, p.Dereg())
		release()
		return nil, opError(op, pd.ctx.dev.Name(), err)
	}
	return m, nil
}

// checkMR judges length and rights before anything is allocated.
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

// PD returns the protection domain of the region.
func (m *MR) PD() *PD { return m.pd }

// Bytes returns the registered memory. After Close of a region that AllocMR made it must not be touched.
func (m *MR) Bytes() []byte { return m.buf }

// Len returns the length in bytes.
func (m *MR) Len() int { return max(len(m.buf), m.foreign) }

// Addr returns the address of the first byte as SGEs and peers use it: the memory's own, the iova, or 0.
func (m *MR) Addr() uint64 { return m.iova }

// Access returns the rights.
func (m *MR) Access() AccessFlags { return m.access }

// LKey returns the key for SGEs.
func (m *MR) LKey() uint32 { return m.p.LKey() }

// RKey returns the key for peers.
func (m *MR) RKey() uint32 { return m.p.RKey() }

// SGE returns the element that names n bytes from offset off. The error Is [ErrBounds] if they are not all inside.
func (m *MR) SGE(off, n int) (SGE, error) {
	if off < 0 || n < 0 || off > m.Len() || n > m.Len()-off || uint64(n) > 1<<32-1 {
		return SGE{}, opError("MR.SGE", m.pd.ctx.dev.Name(), fmt.Errorf("%w: offset %d length %d of %d", ErrBounds, off, n, m.Len()))
	}
	return SGE{Addr: m.iova + uint64(off), Length: uint32(n), LKey: m.p.LKey()}, nil
}

// Provider returns what executes the region.
func (m *MR) Provider() ProviderMR { return m.p }

// Close deregisters the region (ibv_dereg_mr(3)). When it returns, neither the peer nor the device touches the memory.
// Operations in progress on it are waited for; a connection that does not let go in time is ended. Windows that
// are bound to the region give no access any more; drivers of the kernel refuse the call as long as there are any, with an
// error that Is [ErrBusy]. After any error the device still has the memory, which stays in its place, and Close can be
// called again. Close is idempotent and may be called on nil.
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
