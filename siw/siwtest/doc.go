// SPDX-License-Identifier: BSD-3-Clause

// Package siwtest is a network in memory for user-space RNICs, on which tests make happen what on a real one happens by
// chance: connections are cut, half-closed or stalled, bytes are damaged, delayed, inserted or split, and the building
// of a message fails.
//
// A [Wire] is the network. NICs are put on it by their configuration; everything above them, the code under test too,
// works as over TCP, with addresses of which only the wire knows:
//
//	wire := siwtest.NewWire()
//	server, err := siw.New(siw.Config{Network: wire})
//	client, err := siw.New(siw.Config{Network: wire})
//	...
//	ln, err := cm.Listen(ctx, "server:7306", cm.Config{Device: server.Device()})
//	id, err := cm.Resolve(ctx, "server:7306", cm.Config{Device: client.Device()})
//
// Every connection is a [Link] of two [Direction] values, whose methods make things go wrong at the given byte of the
// stream, whatever the scheduler does. Wire.OnDial sees a link before either side has it; Wire.Links lists all of them:
//
//	wire.OnDial = func(l *siwtest.Link) { l.ToListener.Corrupt(100, 0x01) }
//
// A test that needs no more than two connected QPs gets them, with a PD, CQs and a memory region each, in one call:
//
//	p := siwtest.Connect(t, siwtest.PairConfig{})
//	p.Link.ToListener.CutAt(p.Link.ToListener.Written() + 10)
//	wc, err := p.A.Do(ctx, verbs.SendWR{Opcode: verbs.WRSend, ...})
//
// A wire has no time of its own: without Direction.Delay nothing waits for a clock, and in a bubble of testing/synctest,
// where the wire must have been made, delays, deadlines and the NICs' time-outs pass at once.
package siwtest
