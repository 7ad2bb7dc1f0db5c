// SPDX-License-Identifier: BSD-3-Clause

package goverbstest

import (
	"fmt"
	"testing"

	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/usiw/usiwtest"
	"github.com/goverbs/goverbs/verbs"
)

// Options configures a network. The zero value selects two NICs with all defaults, no faults, all
// checks and a capture.
type Options struct {
	// NICs is the number of NICs (0 = 2).
	NICs int
	// Config is the configuration of each NIC. New sets Network. Name must be empty if there is
	// more than one NIC. A Tap is called in addition to the recording.
	Config usiw.Config
	// Register lists the NICs in verbs.Devices, for programs that look up their device by name.
	Register bool
	// OnDial is called with each new connection before either side receives it, to set up faults
	// (nil = not called). Calls may be concurrent.
	OnDial func(*usiwtest.Link)
	// CaptureDir is the directory for the file that a failed test leaves; New creates it if
	// necessary. The default is the test's ArtifactDir if the tests run with -artifacts (Go 1.26),
	// and otherwise the system's directory for temporary files.
	CaptureDir string
	// NoCapture disables the recording, for example in a benchmark.
	NoCapture bool
	// MayStay reports whether a goroutine with this stack may outlive the test (nil = none may).
	// The stack has one function per line, innermost first, with file and line.
	MayStay func(stack string) bool
}

// Network is an in-memory network with NICs. All methods may be called concurrently.
type Network struct {
	// NICs are the NICs. The test may close one of them to simulate the loss of its host.
	NICs []*usiw.NIC
	// Wire is the network below the NICs, on which a test can also act as a peer itself.
	Wire *usiwtest.Wire

	rec *recorder // nil without a capture
}

// New creates a network with NICs for a test, a benchmark or a fuzz target. When the test ends,
// New's cleanup checks that nothing is left behind, keeps the capture if the test failed, and
// closes the NICs. The test fails at once if opts is invalid.
//
// Functions passed to tb.Cleanup after New run before these checks, and may close what the test
// created.
func New(tb testing.TB, opts Options) *Network {
	tb.Helper()
	nw := &Network{Wire: usiwtest.NewWire()}
	nw.Wire.OnDial = opts.OnDial
	if opts.NICs < 0 {
		tb.Fatalf("goverbstest: Options.NICs: %d is not a number of NICs", opts.NICs)
	}
	if opts.NICs == 0 {
		opts.NICs = 2
	}
	cfg := opts.Config
	cfg.Network = nw.Wire
	e := endingOf(tb)
	if !opts.NoCapture {
		nw.rec = &recorder{next: cfg.Tap, dir: e.dir, test: tb.Name(), keepIn: opts.CaptureDir}
		cfg.Tap = nw.rec
	}
	e.add(nw, opts.MayStay)
	open := usiw.New
	if opts.Register {
		open = usiw.Register
	}
	for i := range opts.NICs {
		nic, err := open(cfg)
		if err != nil {
			tb.Fatalf("goverbstest: NIC %d: %v", i, err)
		}
		nw.NICs = append(nw.NICs, nic)
	}
	return nw
}

// Device returns the device of the i-th NIC, from 0. It panics if there is none.
func (nw *Network) Device(i int) *verbs.Device {
	if i < 0 || i >= len(nw.NICs) {
		panic(fmt.Sprintf("goverbstest: Device(%d) of %d NICs", i, len(nw.NICs)))
	}
	return nw.NICs[i].Device()
}

// Links returns all connections in dialling order, including those that have ended.
func (nw *Network) Links() []*usiwtest.Link { return nw.Wire.Links() }

// cut cuts all connections, because a fault may prevent their orderly shutdown.
func (nw *Network) cut() {
	for _, l := range nw.Links() {
		l.Cut()
	}
}

// close closes the NICs.
func (nw *Network) close() {
	for _, nic := range nw.NICs {
		_ = nic.Close() // never returns an error
	}
}
