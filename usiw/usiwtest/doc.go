// SPDX-License-Identifier: BSD-3-Clause

// Package usiwtest provides an in-memory network for user-space RNICs. Tests can use it to cause
// faults that a real network only produces by chance: connections are cut, half-closed or stalled;
// bytes are corrupted, delayed, inserted or split; a message cannot be built.
//
// A [Wire] is the network. A NIC's configuration puts it on a wire. Everything above the NIC,
// including the code under test, works as it does over TCP, with addresses that only the wire
// knows:
//
//	wire := usiwtest.NewWire()
//	server, err := usiw.New(usiw.Config{Network: wire})
//	client, err := usiw.New(usiw.Config{Network: wire})
//	...
//	ln, err := cm.Listen(ctx, "server:7306", cm.Config{Device: server.Device()})
//	id, err := cm.Resolve(ctx, "server:7306", cm.Config{Device: client.Device()})
//
// Every connection is a [Link] with two [Direction] values. Their methods cause faults at a given
// byte of the stream, independently of the scheduler. Wire.OnDial receives each link before either
// side does; Wire.Links returns all links:
//
//	wire.OnDial = func(l *usiwtest.Link) { l.ToListener.Corrupt(100, 0x01) }
//
// A test that only needs two connected QPs gets them in one call, each with a PD, CQs and a memory
// region:
//
//	p := usiwtest.Connect(t, usiwtest.PairConfig{})
//	p.Link.ToListener.CutAt(p.Link.ToListener.Written() + 10)
//	wc, err := p.A.Do(ctx, verbs.SendWR{Opcode: verbs.WRSend, ...})
//
// Without Direction.Delay a wire never waits for the clock. If a wire is created in a
// testing/synctest bubble, delays, deadlines and the NICs' time-outs take no real time.
package usiwtest
