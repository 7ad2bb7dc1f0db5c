// SPDX-License-Identifier: BSD-3-Clause

// Package usiwtest is an in-memory network for user-space RNICs. On it, tests can cause faults that
// happen by chance on a real network: connections are cut, half-closed or stalled; bytes are
// damaged, delayed, inserted or split; the building of a message fails.
//
// A [Wire] is the network. The configuration of a NIC puts it on a wire. Everything above the NIC,
// including the code under test, works as over TCP, with addresses that only the wire knows:
//
//	wire := usiwtest.NewWire()
//	server, err := usiw.New(usiw.Config{Network: wire})
//	client, err := usiw.New(usiw.Config{Network: wire})
//	...
//	ln, err := cm.Listen(ctx, "server:7306", cm.Config{Device: server.Device()})
//	id, err := cm.Resolve(ctx, "server:7306", cm.Config{Device: client.Device()})
//
// Every connection is a [Link] with two [Direction] values. Their methods cause faults at a given
// byte of the stream, independent of the scheduler. Wire.OnDial gets a link before either side has
// it; Wire.Links returns all links:
//
//	wire.OnDial = func(l *usiwtest.Link) { l.ToListener.Corrupt(100, 0x01) }
//
// A test that needs only two connected QPs gets them in one call, each with a PD, CQs and a memory
// region:
//
//	p := usiwtest.Connect(t, usiwtest.PairConfig{})
//	p.Link.ToListener.CutAt(p.Link.ToListener.Written() + 10)
//	wc, err := p.A.Do(ctx, verbs.SendWR{Opcode: verbs.WRSend, ...})
//
// Without Direction.Delay a wire waits for no clock. If a wire is made in a bubble of
// testing/synctest, delays, deadlines and the time-outs of the NICs pass at once.
package usiwtest
