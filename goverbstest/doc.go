// SPDX-License-Identifier: BSD-3-Clause

// Package goverbstest is for tests of programs that use RDMA. They run in one process, without RDMA
// devices, privileges or a network: [New] gives a test user-space RNICs on a network in memory,
// closes them when the test ends, and checks what the test has left.
//
//	func TestService(t *testing.T) {
//		nw := goverbstest.New(t, goverbstest.Options{})
//		stop := startService(t, "service:7306", nw.Device(0)) // as in the program, with cm.Listen
//		defer stop()
//		reply, err := call(t.Context(), "service:7306", nw.Device(1))
//		...
//	}
//
// The program under test gets a [verbs.Device] and an address, "host:port" with any host; the rest
// is as on a real device. So the program should take its device as an argument. For a program that
// looks it up by name, Options.Register lists the NICs in verbs.Devices. [Network.Pair] gives two
// connected endpoints in one call.
//
// # Faults
//
// The network delays, stops, cuts, half-closes and damages connections, and splits what arrives;
// see [usiwtest.Link] and [usiwtest.Direction]. Network.Links returns the connections, and
// Options.OnDial gets each new one before any byte of it is sent:
//
//	nw := goverbstest.New(t, goverbstest.Options{OnDial: func(l *usiwtest.Link) {
//		l.Delay(time.Millisecond) // in both directions
//		l.Split(7)                // a message arrives in many parts
//	}})
//	...
//	nw.Links()[0].Stall() // as if packets were lost, until Resume
//	nw.Links()[0].Cut()   // a reset
//
// The network does not lose or reorder bytes, because RDMA over TCP never sees that: lost packets
// are a delay.
//
// # Leaks
//
// When a test ends, everything that was made on its NICs must have been closed, and no goroutine
// may still run that the test has started after New, by itself or by another goroutine. What ends
// with the test has 10 s for that. Otherwise the test fails, and the error names each object and
// goroutine with its stack. Objects that were left are closed, so they do not disturb other tests.
// Tests may run in parallel: each answers for its own NICs and goroutines, which it knows by a
// profiler label (package runtime/pprof).
//
// # Capture
//
// All bytes on the network are recorded. If the test fails, they are kept in a pcapng file, whose
// name the test logs; see [Options.CaptureDir]. Package usiw/capture says how tshark and Wireshark
// read it. Bytes are recorded where they are sent: the file does not show what the network has
// delayed, damaged or cut. A test binary that crashes or runs into its time limit leaves no file.
//
// # Time
//
// The NICs work in a bubble of testing/synctest, where delays and time-outs pass at once. Call New
// inside of the bubble, and wait with CQ.Wait or with a context: in a bubble time stands still
// while a goroutine polls without pause.
package goverbstest
