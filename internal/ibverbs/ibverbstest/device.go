// SPDX-License-Identifier: BSD-3-Clause

package ibverbstest

import (
	"os"
	"sync"
	"syscall"

	"github.com/goverbs/goverbs/internal/ibverbs"
)

// Name is the name of the device.
const Name = "go0"

const guid = 0x0200_00ff_fe00_0001

// Device is a library with one device.
type Device struct {
	mu      sync.Mutex // guards everything that belongs to the device
	last    uint32     // QP number or key assigned
	qps     map[uint32]*qp
	regions map[uint32]*mr
}

// New returns a new device.
func New() *Device { return &Device{qps: make(map[uint32]*qp), regions: make(map[uint32]*mr)} }

// Devices lists the device.
func (d *Device) Devices() ([]ibverbs.Device, error) {
	return []ibverbs.Device{{Name: Name, GUID: guid, NodeType: 1, Transport: 0}}, nil
}

// Open opens the device.
func (d *Device) Open(name string, id uint64) (ibverbs.Context, error) {
	if name != Name || id != guid {
		return nil, syscall.ENODEV
	}
	c := &context{d: d}
	if err := c.open(); err != nil {
		return nil, err
	}
	return c, nil
}

// events is a queue whose file descriptor is readable while it is not empty. The Device's mutex
// guards it.
type events[E any] struct {
	r, w *os.File
	list []E
}

func (q *events[E]) open() (err error) {
	q.r, q.w, err = os.Pipe()
	return err
}

func (q *events[E]) close() error {
	_ = q.w.Close()
	return q.r.Close()
}

func (q *events[E]) put(e E) {
	q.list = append(q.list, e)
	_, _ = q.w.Write([]byte{0})
}

func (q *events[E]) take() (e E, err error) {
	if len(q.list) == 0 {
		return e, syscall.EAGAIN
	}
	if _, err := q.r.Read(make([]byte, 1)); err != nil {
		return e, syscall.EIO
	}
	e, q.list = q.list[0], q.list[1:]
	return e, nil
}

type context struct {
	d *Device
	events[ibverbs.Event]
}

func (c *context) FDs() (commands, events int) { return -1, int(c.r.Fd()) }

func (c *context) QueryDevice(a *ibverbs.DeviceAttr) error {
	*a = ibverbs.DeviceAttr{NodeGUID: guid, SysImageGUID: guid, MaxMRSize: 1 << 40, PageSizeCap: 1 << 12,
		MaxQP: 1 << 10, MaxQPWR: maxWR, MaxSGE: maxSGE, MaxSGERd: maxSGE, MaxCQ: 1 << 10, MaxCQE: maxCQE,
		MaxMR: 1 << 10, MaxPD: 1 << 10, MaxQPRdAtom: 16, MaxResRdAtom: 1 << 10, MaxQPInitRdAtom: 16,
		PhysPortCnt: 1, NumCompVectors: 1}
	copy(a.FwVer[:], "go")
	return nil
}

// The limits of a QP and a CQ.
const (
	maxWR     = 1 << 12
	maxSGE    = 8
	maxInline = 128
	maxCQE    = 1 << 16
)

func (c *context) QueryDeviceEx(*ibverbs.DeviceAttrEx) error { return syscall.EOPNOTSUPP }

func (c *context) QueryPort(port int, a *ibverbs.PortAttr) error {
	if port != 1 {
		return syscall.EINVAL
	}
	*a = ibverbs.PortAttr{State: 4, MaxMTU: 5, ActiveMTU: 5, MaxMsgSz: 1 << 30, GIDTblLen: 1, PKeyTblLen: 1, LID: 1}
	return nil
}

func (c *context) QueryGID(port, index int, g *ibverbs.GID) error {
	if port != 1 || index != 0 {
		return syscall.ENODATA
	}
	*g = ibverbs.GID{Raw: [16]byte{0: 0xfe, 1: 0x80, 15: 1}}
	return nil
}

func (c *context) QueryPKey(port, index int) (uint16, error) {
	if port != 1 || index != 0 {
		return 0, syscall.EINVAL
	}
	return 0xffff, nil
}

func (c *context) Event() (ibverbs.Event, error) {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	return c.take()
}

func (c *context) Gather(to []byte, from []ibverbs.SGE) { gather(to, from) }

func (c *context) Close() error { return c.close() }

type channel struct {
	d *Device
	events[uint64]
}

func (c *context) CreateChannel() (ibverbs.Channel, error) {
	ch := &channel{d: c.d}
	if err := ch.open(); err != nil {
		return nil, err
	}
	return ch, nil
}

func (ch *channel) FD() int { return int(ch.r.Fd()) }

func (ch *channel) Event() (uint64, error) {
	ch.d.mu.Lock()
	defer ch.d.mu.Unlock()
	return ch.take()
}

func (ch *channel) Destroy() error { return ch.close() }

type cq struct {
	c           *context
	cookie      uint64
	ch          *channel // nil = none
	room        int
	wcs         []ibverbs.WC
	full        bool
	armed, only bool // for any completion; only for solicited ones and failures
}

func (c *context) CreateCQ(cfg ibverbs.CQConfig) (ibverbs.CQ, int, error) {
	if cfg.CQE < 1 || cfg.CQE > maxCQE || cfg.Vector != 0 {
		return nil, 0, syscall.EINVAL
	}
	made := &cq{c: c, cookie: cfg.Cookie, room: cfg.CQE}
	made.ch, _ = cfg.Channel.(*channel)
	return made, cfg.CQE, nil
}

func (cq *cq) put(wc ibverbs.WC, solicited bool) {
	if cq.full {
		return
	}
	if len(cq.wcs) == cq.room {
		cq.full = true
		cq.c.put(ibverbs.Event{Type: ibverbs.EventCQErr, Cookie: cq.cookie})
		return
	}
	cq.wcs = append(cq.wcs, wc)
	if cq.armed && cq.ch != nil && (!cq.only || solicited || wc.Status != ibverbs.Success) {
		cq.armed = false
		cq.ch.put(cq.cookie)
	}
}

func (cq *cq) Poll(wcs []ibverbs.WC, held *ibverbs.Held) int {
	cq.c.d.mu.Lock()
	defer cq.c.d.mu.Unlock()
	n := copy(wcs, cq.wcs)
	cq.wcs = cq.wcs[n:]
	result := n
	for i := range wcs[:n] {
		if wcs[i].Status != ibverbs.Success {
			result = n | ibverbs.PollErrors
		}
	}
	if held != nil {
		held.Store(0)
	}
	return result
}

func (cq *cq) ReqNotify(solicitedOnly bool) error {
	cq.c.d.mu.Lock()
	defer cq.c.d.mu.Unlock()
	cq.only = solicitedOnly && (!cq.armed || cq.only)
	cq.armed = true
	return nil
}

func (cq *cq) Resize(cqe int) (int, error) {
	cq.c.d.mu.Lock()
	defer cq.c.d.mu.Unlock()
	if cqe < max(len(cq.wcs), 1) || cqe > maxCQE {
		return 0, syscall.EINVAL
	}
	cq.room = cqe
	return cqe, nil
}

func (cq *cq) Destroy() error { return nil }

type pd struct{ c *context }

func (c *context) AllocPD() (ibverbs.PD, error) { return &pd{c}, nil }

func (*pd) Handle() uint32 { return 0 }
func (*pd) Dealloc() error { return nil }

func (*pd) RegDmabufMR(uint64, uint64, uint64, int, uint32) (ibverbs.MR, error) {
	return nil, syscall.EOPNOTSUPP
}
func (*pd) AllocMW(int) (ibverbs.MW, error)              { return nil, syscall.EOPNOTSUPP }
func (*pd) CreateAH(*ibverbs.AHAttr) (ibverbs.AH, error) { return nil, syscall.EOPNOTSUPP }

func (*pd) CreateSRQ(uint64, ibverbs.SRQAttr) (ibverbs.SRQ, ibverbs.SRQAttr, error) {
	return nil, ibverbs.SRQAttr{}, syscall.EOPNOTSUPP
}

// mr is a memory region. Its lkey and rkey are equal.
type mr struct {
	pd                 *pd
	key, access        uint32
	addr, iova, length uint64
}

func (p *pd) RegMR(addr uintptr, length int, iova uint64, access uint32) (ibverbs.MR, error) {
	d := p.c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last++
	m := &mr{p, d.last, access, uint64(addr), iova, uint64(length)}
	d.regions[m.key] = m
	return m, nil
}

func (m *mr) Handle() uint64     { return uint64(m.key) }
func (m *mr) Keys() ibverbs.Keys { return ibverbs.Keys{LKey: m.key, RKey: m.key} }

func (m *mr) Rereg(int, ibverbs.PD, uintptr, int, uint32) (int, error) {
	return ibverbs.ReregInput, syscall.EOPNOTSUPP
}

func (m *mr) Dereg() error {
	d := m.pd.c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.regions, m.key)
	return nil
}

// find returns the n bytes at an address of a region. It returns false if they are out of bounds,
// the region belongs to another PD, or it lacks the rights. An empty range is always found.
func (d *Device) find(p *pd, key uint32, addr uint64, n, rights uint32) ([]byte, bool) {
	if n == 0 {
		return nil, true
	}
	m := d.regions[key]
	if m == nil || m.pd != p || m.access&rights != rights {
		return nil, false
	}
	off := addr - m.iova // wraps to a huge value before the region
	if off > m.length || uint64(n) > m.length-off {
		return nil, false
	}
	return memory(m.addr+off, n), true
}
