// SPDX-License-Identifier: BSD-3-Clause

// Package goverbstest supports tests of programs that use RDMA. They run in one process, without
// RDMA devices, privileges or a network: [New] gives a test user-space RNICs on an in-memory
// network, closes them when the test ends, and checks that the test has left nothing behind.
//
//	func TestService(t *testing.T) {
//		nw := goverbstest.New(t, goverbstest.Options{})
//		stop := startService(t, "service:7306", nw.Device(0)) // as in the program, with cm.Listen
//		defer stop()
//		reply, err := call(t.Context(), "service:7306", nw.Device(1))
//		...
//	}
//
// The program under test gets a [verbs.Device] and an address, "host:port" with any host;
// everything else is as on a real device. The program should therefore take its device as an
// argument. For a program that looks its device up by name, Options.Register lists the NICs in
// verbs.Devices. [Network.Pair] returns two connected endpoints in one call.
//
// # Faults
//
// The network can delay, stall, cut, half-close and corrupt connections, and split what arrives;
// see [usiwtest.Link] and [usiwtest.Direction]. Network.Links returns the connections, and
// Options.OnDial receives each new one before any byte is sent on it:
//
//	nw := goverbstest.New(t, goverbstest.Options{OnDial: func(l *usiwtest.Link) {
//		l.Delay(time.Millisecond) // in both directions
//		l.Split(7)                // a message arrives in many parts
//	}})
//	...
//	nw.Links()[0].Stall() // as if packets were lost, until Resume
//	nw.Links()[0].Cut()   // a reset
//
// The network does not lose or reorder bytes, because RDMA over TCP never observes that: lost
// packets are merely a delay.
//
// # Leaks
//
// When a test ends, every object created on its NICs must have been closed, and no goroutine that
// the test started after New, directly or through another goroutine, may still be running.
// Goroutines that stop when the test ends have 10 s to do so. Otherwise the test fails, and the
// error names each object and each goroutine with its stack. Remaining objects are closed, so that
// they do not disturb other tests. Tests may run in parallel: each is responsible only for its own
// NICs and goroutines, which are identified by a profiler label (package runtime/pprof).
//
// # Capture
//
// All bytes on the network are recorded. If the test fails, they are kept in a pcapng file, whose
// name the test logs; see [Options.CaptureDir]. Package usiw/capture describes how to read it with
// tshark and Wireshark. Bytes are recorded where they are sent, so the file does not show what the
// network delayed, corrupted or cut. A test binary that crashes or exceeds its time limit leaves no
// file.
//
// # Time
//
// The NICs work in a testing/synctest bubble, where delays and time-outs take no real time. Call
// New inside the bubble, and wait with CQ.Wait or with a context: in a bubble, time stands still
// while a goroutine polls continuously.
package goverbstest
