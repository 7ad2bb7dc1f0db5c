// SPDX-License-Identifier: BSD-3-Clause

package demo

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/cmd/goverbs/internal/devices"
	"github.com/goverbs/goverbs/cmd/goverbs/internal/shutdown"
	"github.com/goverbs/goverbs/verbs"
)

// Time limits of the connecting side.
const (
	driverPatience  = 30 * time.Second // for a response from the listener
	refusedPatience = 10 * time.Second // for a listener that is not up yet
	unknownPatience = 3 * time.Second  // for a host name that does not resolve yet
	retryInterval   = 200 * time.Millisecond
	endPatience     = time.Second            // for a process that was told to exit
	deathPatience   = 200 * time.Millisecond // for the exit of a process that may have caused a failure
)

// driver is the connecting side: it runs the steps.
type driver struct {
	dev    *verbs.Device
	o      Options
	out    *console
	result *runResult
	server *process // the listening half, if started here
	seed   uint64

	end     *endpoint
	nonce   uint32
	peer    welcome
	local   *verbs.MR   // data: source of Writes, sink of Reads
	sinks   *verbs.MR   // words: sinks of atomics and small Reads
	sinkSGL []verbs.SGE // one element for each word of sinks
	clients *clients    // from step lock on
	remark  string      // about the current step, for people
}

func randomWord() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.NativeEndian.Uint64(b[:])
}

// runDriver runs the connecting half. Without an address it also starts the listening half as
// another process.
func runDriver(ctx context.Context, dev *verbs.Device, o Options, out *console, result *runResult) (err error) {
	d := &driver{dev: dev, o: o, out: out, result: result, seed: randomWord(), nonce: uint32(randomWord())}
	late := shutdown.Late(ctx)
	defer func() {
		if err != nil && ctx.Err() == nil && d.server.endsBy(deathPatience) {
			if serr := d.server.wait(0); serr != nil {
				out.note("listening process: %v\n", serr)
			}
		}
		// The other processes are told to exit before the connection is closed, so that a hung one
		// does not delay the close.
		d.clients.letGo()
		d.server.letGo()
		closed := make(chan error, 1)
		go func() { closed <- shutdown.InTime(late, d.end.close) }()
		deadline := time.Now().Add(endPatience)
		d.clients.wait(deadline)
		_ = d.server.wait(time.Until(deadline)) // its exit was judged already, or is irrelevant
		err = errors.Join(err, <-closed)
	}()
	address := o.Connect
	if address == "" {
		if d.server, address, err = startServer(ctx, dev, o.Breaks); err != nil {
			return err
		}
		result.PIDs = append(result.PIDs, d.server.pid())
	}
	for _, s := range steps() {
		if err := d.run(ctx, &s, address); err != nil {
			return err
		}
	}
	return nil
}

// run runs one step. It returns an error only if no further step can run; other failures are in the
// result.
func (d *driver) run(ctx context.Context, s *step, address string) error {
	c := newCheck(s.name, d.o.Breaks)
	n := s.ops(&d.o)
	d.remark = ""
	var err error
	lack := d.end.lack(s)
	if lack.skipped == "" {
		d.out.begin(s.name, n)
		switch s.name {
		case "connect":
			if err = d.connect(ctx, address); err == nil {
				err = d.perform(ctx, s, c, n)
			}
		case "close":
			err = d.disconnect(ctx, c)
		default:
			err = d.perform(ctx, s, c, n)
		}
		if err != nil {
			c.fail("%w", err)
		}
	}
	d.result.outcome(s, lack, c, d.out, d.remark)
	if c.err != nil && ctx.Err() == nil {
		d.out.note("step %s: %v\n", s.name, c.err)
	}
	if err != nil {
		return errNotVerified
	}
	return nil
}

// perform runs a step between its control messages.
func (d *driver) perform(ctx context.Context, s *step, c *check, n int) error {
	begin := control{Step: s.name, Phase: phaseBegin, Count: n, Seed: d.pattern(s.name).seed}
	if err := d.end.sendControl(ctx, &begin); err != nil {
		return err
	}
	if _, err := d.end.takeControl(ctx, s.name, phaseReady); err != nil {
		return err
	}
	words, err := s.drive(ctx, d, c, n)
	if err != nil {
		return err
	}
	found := control{Step: s.name, Phase: phaseCheck, Words: words}
	c.tell(&found)
	if err := d.end.sendControl(ctx, &found); err != nil {
		return err
	}
	result, err := d.end.takeControl(ctx, s.name, phaseResult)
	if err != nil {
		return err
	}
	c.peer("listening side", &result)
	return nil
}

// pattern returns the data pattern of a step.
func (d *driver) pattern(step string) pattern {
	p := pattern{d.seed}
	for i, name := range StepNames() {
		if name == step {
			p.seed = p.word(i)
		}
	}
	return p
}

// connect connects to the listener, which may not be up yet.
func (d *driver) connect(ctx context.Context, address string) error {
	begun := time.Now()
	for {
		err := d.tryConnect(ctx, address)
		if err == nil {
			d.result.Device = d.end.ctx.Device().Name()
			break
		}
		patience := retryPatience(err)
		if ctx.Err() != nil || time.Since(begun) >= patience {
			return err
		}
		if d.remark == "" {
			d.remark = "after waiting for the listening half"
			d.out.note("%v: trying for %v\n", err, patience)
		}
		select {
		case <-time.After(retryInterval):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	d.out.restart()
	var err error
	access := d.end.sinkAccess()
	if d.end.ctx.Supports(verbs.OpBindMW) {
		access |= verbs.AccessMWBind
	}
	if d.local, err = d.end.allocMR(dataSize, access); err != nil {
		return err
	}
	if d.sinks, err = d.end.allocMR(8*2*window, d.end.sinkAccess()); err != nil {
		return err
	}
	d.sinkSGL = make([]verbs.SGE, 2*window)
	for i := range d.sinkSGL {
		if d.sinkSGL[i], err = d.sinks.SGE(8*i, 8); err != nil {
			return err
		}
	}
	return nil
}

// retryPatience returns how long to retry after an error of tryConnect: zero if waiting cannot
// help.
func retryPatience(err error) time.Duration {
	if unknown := new(net.DNSError); errors.As(err, &unknown) {
		return unknownPatience
	}
	if dial := new(net.OpError); errors.As(err, &dial) && dial.Op == "dial" || errors.Is(err, syscall.ECONNREFUSED) {
		return refusedPatience
	}
	return 0
}

// tryConnect makes one attempt.
func (d *driver) tryConnect(ctx context.Context, address string) error {
	e, w, err := dial(ctx, d.dev, address, hello{Role: roleDriver, Nonce: d.nonce}, driverPatience)
	if err != nil {
		return err
	}
	d.end, d.peer = e, w
	return nil
}

// dial connects to a listener and returns the endpoint and the listener's welcome.
func dial(ctx context.Context, dev *verbs.Device, address string, h hello, patience time.Duration) (
	e *endpoint, w welcome, err error) {
	id, err := cm.Resolve(ctx, address, cm.Config{Device: dev})
	if err != nil {
		return nil, w, err
	}
	if e, err = newEndpoint(id.Context(), id.BindQP, patience); err != nil {
		return nil, w, errors.Join(err, id.Close())
	}
	e.id = id
	h.Magic, h.Version, h.Ops = magic, version, uint32(e.ctx.Ops())
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err = id.Connect(bounded, e.qp, cm.ConnParam{PrivateData: encodePrivate(&h)}); err == nil {
		w, err = decodeWelcome(id.PrivateData())
		e.peerOps = verbs.OpSet(w.Ops)
	}
	if rejected := new(cm.RejectedError); errors.As(err, &rejected) {
		// InfiniBand pads private data with zeros.
		if why := bytes.TrimRight(rejected.PrivateData, "\x00"); len(why) > 0 {
			err = fmt.Errorf("%w: %q", err, why)
		} else if dev := id.Context().Device(); dev.Info().Transport == verbs.TransportIWARP &&
			!devices.UserSpace(dev) {
			// The kernel reports a peer that closes the stream in the same way as a port without a
			// listener. A listening demo would have sent a reason, so there is none.
			err = fmt.Errorf("%w: %w", err, syscall.ECONNREFUSED)
		}
	}
	if err != nil {
		return nil, w, errors.Join(err, e.close())
	}
	return e, w, nil
}

// driveConnect verifies what each side sent when connecting.
func driveConnect(_ context.Context, d *driver, c *check, _ int) ([]uint64, error) {
	ord, ird := d.end.id.Depths()
	c.word("the nonce in the private data", uint64(d.peer.Nonce), uint64(d.nonce))
	is(c, "that Reads and atomics in progress were agreed on", ord > 0, true)
	d.out.progress(1, 0)
	d.addRemark(fmt.Sprintf("%v to %s, %v to %v, depths %d and %d", d.end.ctx.Device(), d.peerText(),
		d.end.id.LocalAddr(), d.end.id.RemoteAddr(), ord, ird))
	return []uint64{d.peer.Token}, nil
}

func (d *driver) peerText() string {
	if d.server != nil {
		return fmt.Sprintf("process %d", d.server.pid())
	}
	return "listening half"
}

func (d *driver) addRemark(s string) {
	if d.remark != "" {
		s += ", " + d.remark
	}
	d.remark = s
}

// disconnect is the last step: it closes the connection gracefully and verifies that everything is
// returned.
func (d *driver) disconnect(ctx context.Context, c *check) error {
	bye := control{Step: "close", Phase: phaseBegin, OK: true}
	for _, r := range d.result.Steps {
		if r.Name != "close" && !r.OK {
			bye.OK = false
		}
	}
	if err := d.end.sendControl(ctx, &bye); err != nil {
		return err
	}
	if _, err := d.end.takeControl(ctx, "close", phaseReady); err != nil {
		return err
	}
	if err := d.end.id.Disconnect(); err != nil {
		return err
	}
	is(c, "the state after Disconnect", d.end.qp.State(), verbs.QPStateErr)
	flushed := 0
	wcs := make([]verbs.WC, recvSlots)
	for {
		n, err := d.end.recvs.Poll(wcs)
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		for _, wc := range wcs[:n] {
			is(c, "the status of a receive that was left", wc.Status, verbs.WCWRFlushErr)
		}
		flushed += n
	}
	c.count("the number of flushed receives", uint64(flushed), recvSlots)
	c.noError("closing the connecting end", d.end.close())
	// The listening process also fails if an earlier step did, which is reported there.
	if err := d.server.wait(driverPatience); bye.OK {
		c.noError("listening process", err)
	}
	d.out.progress(1, 0)
	return nil
}

// word returns word i of the listener.
func (d *driver) word(i int) verbs.Remote { return d.peer.word(i) }

// sink returns the driver's own word i as an SGL.
func (d *driver) sink(i int) []verbs.SGE { return d.sinkSGL[i : i+1] }

// sunk returns what an atomic stored in word i.
func (d *driver) sunk(i int) uint64 { return binary.NativeEndian.Uint64(d.sinks.Bytes()[8*i:]) }

// readWord reads word i of the listener by RDMA Read.
func (d *driver) readWord(ctx context.Context, i int) (uint64, error) {
	if _, err := d.end.do(ctx, verbs.Read(d.word(i), d.sink(0)...)); err != nil {
		return 0, err
	}
	return d.peer.order().Uint64(d.sinks.Bytes()), nil
}
