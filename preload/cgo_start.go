// SPDX-License-Identifier: BSD-3-Clause

package main

/*
#include "../verbs/ibv_abi.h"
#define GOVERBS_BRIDGE_GO
#include "bridge.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/goverbs/goverbs/compat/ibcompat"
	"github.com/goverbs/goverbs/internal/runenv"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/usiw/capture"
	"github.com/goverbs/goverbs/verbs"
)

// Set by rnic_start, and constant afterwards.
var (
	device *verbs.Device
	events *C.struct_rnic_events
	record *recording // nil = none
)

//export rnic_start
func rnic_start(e *C.struct_rnic_events, o *C.struct_rnic_options) C.int {
	events = e
	err := start(options(o))
	if err != nil {
		fmt.Fprintln(os.Stderr, "goverbs run:", err)
	}
	return errno(err)
}

// options returns a getenv function for the options as of process start.
func options(o *C.struct_rnic_options) func(string) string {
	of := map[string]string{
		runenv.Device: C.GoString(o.device), runenv.Addr: C.GoString(o.addr), runenv.MTU: C.GoString(o.mtu),
		runenv.CRC:  C.GoString(o.crc),
		runenv.Pcap: C.GoString(o.pcap), runenv.PID: C.GoString(o.pid), runenv.Verbose: C.GoString(o.verbose),
	}
	return func(name string) string { return of[name] }
}

func start(getenv func(string) string) error {
	verbose = getenv(runenv.Verbose) != "" && getenv(runenv.Verbose) != "0"
	cfg, name, err := config(getenv)
	if err != nil {
		return err
	}
	if file := captureName(getenv); file != "" {
		if record, err = newRecording(file); err != nil {
			return fmt.Errorf("%s=%s: %w", runenv.Pcap, file, err)
		}
		cfg.Tap = record.w
	}
	nic, err := usiw.Register(cfg)
	if err != nil {
		return err
	}
	device = nic.Device()
	if strings.HasPrefix(name, ibcompat.Prefix) {
		device, err = ibcompat.Wrap(device, ibcompat.Config{GuardMemory: cfg.GuardMemory})
	}
	return err
}

//export rnic_stop
func rnic_stop() C.int {
	if record != nil {
		record.close()
	}
	return 0
}

// flushEvery is the interval at which incomplete FPDUs are written to the capture.
const flushEvery = 200 * time.Millisecond

// recording is a capture of what the RNIC sends and receives.
type recording struct {
	file *os.File
	w    *capture.Writer
	once sync.Once
}

func newRecording(name string) (*recording, error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	w, err := capture.New(f, capture.Config{Unbuffered: true})
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	r := &recording{file: f, w: w}
	go func() {
		for r.w.Flush() == nil {
			time.Sleep(flushEvery)
		}
	}()
	return r, nil
}

func (r *recording) close() {
	r.once.Do(func() {
		if err := errors.Join(r.w.Close(), r.file.Close()); err != nil {
			fmt.Fprintf(os.Stderr, "goverbs run: %s: %v\n", r.file.Name(), err)
		}
	})
}

// Calls into the shim.

func tellCQ(owner unsafe.Pointer) { C.rnic_event_cq(events, owner) }

func tellAsync(owner unsafe.Pointer, t verbs.EventType, element unsafe.Pointer, port int) {
	C.rnic_event_async(events, owner, C.int(t), element, C.int(port))
}

func tellCM(owner unsafe.Pointer, e *C.struct_rnic_cm_event) { C.rnic_event_cm(events, owner, e) }
