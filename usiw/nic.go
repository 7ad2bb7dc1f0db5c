// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/lifetime"
	"github.com/goverbs/goverbs/verbs"
)

// NIC is a user-space iWARP RNIC. All methods may be called concurrently.
type NIC struct {
	dev        *device
	handle     *verbs.Device
	registered bool
}

// New makes a NIC. verbs.Devices does not list its device: the program passes it on, for example as
// cm.Config.Device.
func New(cfg Config) (*NIC, error) { return newNIC(cfg, false) }

// Register makes a NIC whose device verbs.Devices lists. Unless cfg names them, the first device is
// usiw0, the second usiw1.
func Register(cfg Config) (*NIC, error) { return newNIC(cfg, true) }

func newNIC(cfg Config, register bool) (*NIC, error) {
	cfg, err := cfg.fill()
	if err != nil {
		return nil, err
	}
	if cfg.Name, err = names.take(cfg.Name); err != nil {
		return nil, err
	}
	d, err := newDevice(cfg)
	if err != nil {
		names.release(cfg.Name)
		return nil, err
	}
	n := &NIC{dev: d, registered: register}
	if !register {
		n.handle = verbs.NewDevice(d)
		return n, nil
	}
	if n.handle, err = verbs.Register(d); err != nil {
		names.release(cfg.Name)
		return nil, err
	}
	return n, nil
}

// Device returns the NIC's device.
func (n *NIC) Device() *verbs.Device { return n.handle }

// Close takes the NIC out of service: verbs.Devices no longer lists it, its listeners are closed,
// its connections are disconnected, and no new objects can be made. Close returns when no goroutine
// of the NIC runs any more, which takes at most about CloseTimeout. The owners of handles still
// have to close them. Close is idempotent and may be called on nil.
func (n *NIC) Close() error {
	if n == nil || !n.dev.guard.Shut() {
		return nil
	}
	if n.registered {
		verbs.Unregister(n.handle)
	}
	n.dev.shutdown()
	names.release(n.dev.cfg.Name)
	return nil
}

// names holds the device names in use in this process.
var names nameSet

type nameSet struct {
	mu  sync.Mutex
	set map[string]bool
}

// take reserves name, or the first free usiwN for "".
func (s *nameSet) take(name string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.set == nil {
		s.set = make(map[string]bool)
	}
	for i := 0; name == "" || s.set[name]; i++ {
		if name != "" && i == 0 {
			return "", fmt.Errorf("usiw: Config.Name: %q is in use: %w", name, verbs.ErrInvalid)
		}
		if candidate := "usiw" + strconv.Itoa(i); !s.set[candidate] {
			name = candidate
		}
	}
	s.set[name] = true
	return name, nil
}

func (s *nameSet) release(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.set, name)
}

// device is the NIC as providers see it: verbs.ProviderDevice and cm.Provider.
type device struct {
	cfg   Config
	guid  verbs.GUID
	ops   verbs.OpSet
	stags stagTable
	guard lifetime.Guard // shut by NIC.Close

	pds, cqs, qps, srqs, mrs, mws quota
	partial                       atomic.Int32 // receive buffers that hold incomplete FPDUs
	stalls                        stalls

	watching sync.Mutex     // guards the assignment of connections and CQs to watches; taken after a qp's mu
	readers  sync.WaitGroup // readers of watches over several connections

	rejecting sync.WaitGroup // goroutines of streams that have been rejected and not closed

	yielder yielder

	mu        sync.Mutex // guards the fields below
	nextQPN   uint32
	qpns      map[uint32]struct{}
	conns     map[*conn]struct{}
	listeners map[*listener]struct{}
	rejects   int // how many of rejecting there are
}

func newDevice(cfg Config) (*device, error) {
	var seed [4]byte
	if _, err := rand.Read(seed[:]); err != nil {
		return nil, err
	}
	d := &device{
		cfg:       cfg,
		guid:      nameGUID(hostIdentity(), cfg.Name),
		ops:       verbs.AllOps &^ verbs.MakeOpSet(verbs.OpSendImm, verbs.OpAtomicWrite) &^ cfg.Without,
		pds:       quota{name: "max_pd", limit: cfg.MaxPD},
		cqs:       quota{name: "max_cq", limit: cfg.MaxCQ},
		qps:       quota{name: "max_qp", limit: cfg.MaxQP},
		srqs:      quota{name: "max_srq", limit: cfg.MaxSRQ},
		mrs:       quota{name: "max_mr", limit: cfg.MaxMR},
		mws:       quota{name: "max_mw", limit: cfg.MaxMW},
		stalls:    stalls{limit: int64(cfg.MaxStalled)},
		nextQPN:   binary.BigEndian.Uint32(seed[:]),
		qpns:      make(map[uint32]struct{}),
		conns:     make(map[*conn]struct{}),
		listeners: make(map[*listener]struct{}),
	}
	return d, nil
}

// Info implements verbs.ProviderDevice.
func (d *device) Info() verbs.DeviceInfo {
	return verbs.DeviceInfo{Name: d.cfg.Name, Provider: "usiw", NodeType: verbs.NodeRNIC,
		Transport: verbs.TransportIWARP, NodeGUID: d.guid}
}

// takeQPN returns a free QP number of 24 bits. It never returns 0 or 1, which InfiniBand reserves.
func (d *device) takeQPN() uint32 {
	d.mu.Lock()
	defer d.mu.Unlock()
	for {
		d.nextQPN = (d.nextQPN + 1) & 0xffffff
		if _, used := d.qpns[d.nextQPN]; !used && d.nextQPN > 1 {
			d.qpns[d.nextQPN] = struct{}{}
			return d.nextQPN
		}
	}
}

func (d *device) giveQPN(n uint32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.qpns, n)
}

// track adds a connection that shutdown has to end. It reports false if the NIC is closed.
func (d *device) track(c *conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.guard.Closed() {
		return false
	}
	d.conns[c] = struct{}{}
	return true
}

func (d *device) untrack(c *conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.conns, c)
}

// connections returns all tracked connections.
func (d *device) connections() []*conn {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make([]*conn, 0, len(d.conns))
	for c := range d.conns {
		all = append(all, c)
	}
	return all
}

// endNIC is why connections end when their NIC is closed.
var endNIC error = &verbs.EndError{Why: "the NIC was closed"}

func (d *device) shutdown() {
	d.mu.Lock()
	listeners := make([]*listener, 0, len(d.listeners))
	for l := range d.listeners {
		listeners = append(listeners, l)
	}
	d.mu.Unlock()
	for _, l := range listeners {
		_ = l.Close()
	}
	all := d.connections()
	for _, c := range all {
		c.fail(endNIC, nil)
	}
	for _, c := range all {
		<-c.gone
	}
	d.readers.Wait()
	d.rejecting.Wait()
	d.yielder.close()
}

// quota counts objects against a limit of the device.
type quota struct {
	name  string
	limit int
	used  atomic.Int64
}

func (q *quota) take() error {
	for {
		n := q.used.Load()
		if n >= int64(q.limit) {
			return &verbs.LimitError{Name: q.name, Limit: uint64(q.limit), Value: uint64(n) + 1}
		}
		if q.used.CompareAndSwap(n, n+1) {
			return nil
		}
	}
}

func (q *quota) give() { q.used.Add(-1) }
