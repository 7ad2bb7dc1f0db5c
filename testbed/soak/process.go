// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/lifetime"
	"github.com/goverbs/goverbs/testbed/load"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// addresses are the addresses of the devices; those of the kernel devices in the guest are set by
// testbed/init/net-one.bash.
var addresses = map[string]string{"usiw": "127.0.0.1:0", "siw0": "10.77.0.1:0", "rxe0": "10.78.0.1:0"}

// process is a parent or a child: a server and clients on each device.
type process struct {
	devices []*device
	nic     *usiw.NIC
	stop    chan struct{}
	clients sync.WaitGroup

	once    sync.Once
	failed  chan struct{} // closed at the first failure
	failure error
}

// device is one of the process's devices.
type device struct {
	name   string
	dev    *verbs.Device
	ctx    *verbs.Context // for clients that do not open their own
	node   *load.Node
	counts *load.Counts

	mu    sync.Mutex
	peers []*peer
}

// peer is a server to connect to.
type peer struct {
	address string
	killed  atomic.Bool // it may be gone, so failures are allowed
}

// open opens the devices and starts their servers.
func open(names []string) (*process, error) {
	p := &process{stop: make(chan struct{}), failed: make(chan struct{})}
	for _, name := range names {
		if err := p.openDevice(name); err != nil {
			return nil, errors.Join(err, p.close())
		}
	}
	return p, nil
}

func (p *process) openDevice(name string) (err error) {
	if addresses[name] == "" {
		return fmt.Errorf("no address is known for device %q", name)
	}
	d := &device{name: name, counts: new(load.Counts)}
	if name == "usiw" {
		if p.nic, err = usiw.New(usiw.Config{}); err != nil {
			return err
		}
		d.dev = p.nic.Device()
	} else if d.dev, err = verbs.DeviceByName(name); err != nil {
		return err
	}
	if d.ctx, err = d.dev.Open(); err != nil {
		return err
	}
	p.devices = append(p.devices, d)
	d.node, err = load.Serve(d.dev, addresses[name], d.counts, p.fail)
	return err
}

// fail records the first failure.
func (p *process) fail(err error) {
	p.once.Do(func() {
		p.failure = err
		close(p.failed)
	})
}

// start starts the clients, the same number on each device.
func (p *process) start(seed uint64, clients int) {
	for i, d := range p.devices {
		for k := range clients {
			rng := rand.New(rand.NewPCG(seed, uint64(i*clients+k)))
			p.clients.Go(func() { p.client(d, rng) })
		}
	}
}

// client opens connections repeatedly.
func (p *process) client(d *device, rng *rand.Rand) {
	for {
		select {
		case <-p.stop:
			return
		case <-p.failed:
			return
		default:
		}
		d.mu.Lock()
		to := d.peers[rng.IntN(len(d.peers))]
		d.mu.Unlock()
		err := d.connection(to, rng)
		switch {
		case err == nil:
		case to.killed.Load() && !load.Wrong(err):
			d.counts.Add("peer killed", 1)
		default:
			p.fail(fmt.Errorf("%s to %s: %w", d.name, to.address, err))
		}
	}
}

// connection opens one connection, uses it and closes it.
func (d *device) connection(to *peer, rng *rand.Rand) (err error) {
	o := load.Options{Counts: d.counts, Seed: rng.Uint64(), Depth: []int{0, 1, 2, 8}[rng.IntN(4)]}
	if rng.IntN(3) > 0 {
		o.Context = d.ctx
	}
	if rng.IntN(2) == 0 {
		o.Wish |= load.WishSRQ
	}
	refuse := rng.IntN(10) == 0
	if refuse {
		o.Wish |= load.WishRefuse
	}
	c, err := load.Dial(d.dev, to.address, o)
	if refuse && err != nil && errors.Is(err, cm.ErrRejected) {
		return nil
	}
	if err != nil {
		return err
	}
	for range 1 + rng.IntN(40) {
		if err := c.Step(); err != nil {
			return errors.Join(err, c.Close())
		}
	}
	if rng.IntN(3) > 0 {
		err = c.End(rng.Int())
		if to.killed.Load() && err != nil && !errors.Is(err, load.ErrHang) {
			err = nil
		}
	}
	return errors.Join(err, c.Close())
}

// halt stops the clients and waits for them.
func (p *process) halt() error {
	close(p.stop)
	done := make(chan struct{})
	go func() {
		p.clients.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-time.After(3 * load.Limit):
		return fmt.Errorf("%w: the clients do not end:\n%s", load.ErrHang, stacks())
	}
}

func stacks() []byte {
	b := make([]byte, 1<<20)
	return b[:runtime.Stack(b, true)]
}

// close closes everything and checks that nothing is left open.
func (p *process) close() error {
	var errs []error
	for _, d := range p.devices {
		if d.node != nil {
			errs = append(errs, d.node.Close())
		}
		errs = append(errs, d.ctx.Close())
	}
	if p.nic != nil {
		errs = append(errs, p.nic.Close())
	}
	for _, n := range lifetime.Live() {
		errs = append(errs, fmt.Errorf("left open: %s", n.Describe()))
	}
	return errors.Join(errs...)
}
