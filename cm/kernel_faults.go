// SPDX-License-Identifier: BSD-3-Clause

package cm

import (
	"cmp"
	"time"
)

// A fault is a deviation of a driver, or of the kernel's connection manager, from what librdmacm
// promises. faults lists all of them, with the rules by which the device-independent code corrects
// them; docs/support.md describes what a program sees.
type fault struct {
	id    string
	what  string
	where string // the file of the kernel and the function
	// kernels are the Linux versions that have it, according to a test or to their source. Other
	// versions were not examined.
	kernels string
	of      deviceKind
	rules   rules
	always  string // the function that corrects it on every device without a rule
}

// deviceKind says for which devices a fault is corrected: for all if the correction costs the
// others nothing, or if it must be decided before the device is known.
type deviceKind int

const (
	allDevices deviceKind = iota
	iwarpDevices
)

// rules says what the device-independent code does differently because of faults. The zero value is
// what librdmacm promises.
type rules struct {
	privateData   int           // limit of private data in bytes; 0 = the protocol's limit
	silentDepths  bool          // depths that the peer did not send are reported as 0
	portRetries   int           // how many other local ports to try if the one that librdmacm selected is in use
	connectBlocks time.Duration // how long to wait for an ID with a blocking rdma_connect to be freed
	reasonLate    time.Duration // how long to wait for the event with the reason for a flush
	neighbourStep time.Duration // timeout of one neighbour lookup
}

const both = "6.1, 6.12"

var faults = []fault{
	{id: "siwPrivateData", what: "writes a wrong length for 252 to 255 bytes of private data", where: "siw_cm.c",
		kernels: both, of: iwarpDevices, rules: rules{privateData: 251}},
	{id: "siwSilentDepths", what: "reports 0 for both depths if the peer sent none", where: "siw_cm.c siw_cm_upcall",
		kernels: both, of: iwarpDevices, rules: rules{silentDepths: true}},
	{id: "siwPortInTCP", what: "needs the local port in TCP, which is not asked when the port is chosen",
		where: "core/cma.c cma_alloc_any_port", kernels: both, rules: rules{portRetries: 7}},
	{id: "siwConnectBlocks", what: "waits in rdma_connect until TCP connects, and up to 10 s more for the answer " +
		"before the ID or the QP can be freed", where: "siw_cm.c siw_connect", kernels: both,
		rules: rules{connectBlocks: 200 * time.Millisecond}},
	{id: "siwFlushFirst", what: "flushes the QP a little before it reports why the stream ended", where: "siw_cm.c",
		kernels: both, rules: rules{reasonLate: 2 * time.Second}},
	{id: "lateNeighbour", what: "notices the answer of a neighbour only when the time for the search is over",
		where: "core/addr.c", kernels: "6.1", rules: rules{neighbourStep: 250 * time.Millisecond}},

	{id: "siwFamilies", what: "refuses IPv4 on a listener for IPv6", where: "siw_cm.c siw_create_listen",
		kernels: both, always: "listenIP"},
	{id: "siwSignals", what: "closes the stream when a signal interrupts rdma_connect, although TCP may have connected",
		where: "siw_cm.c siw_connect", kernels: "6.1 to 7.3", always: "gocm_connect"},
	{id: "wildcardTaken", what: "answers EADDRNOTAVAIL for a wildcard address whose port is in use",
		where: "core/cma.c cma_check_port", kernels: both, always: "listenEnd"},
}

// rulesOf returns the rules for a kind of device: its own, and those for all devices.
func rulesOf(kind deviceKind) (all rules) {
	for _, f := range faults {
		if f.of == allDevices || f.of == kind {
			all = all.and(f.rules)
		}
	}
	return all
}

// and combines rules that do not overlap.
func (r rules) and(o rules) rules {
	return rules{
		privateData:   cmp.Or(r.privateData, o.privateData),
		silentDepths:  r.silentDepths || o.silentDepths,
		portRetries:   cmp.Or(r.portRetries, o.portRetries),
		connectBlocks: cmp.Or(r.connectBlocks, o.connectBlocks),
		reasonLate:    cmp.Or(r.reasonLate, o.reasonLate),
		neighbourStep: cmp.Or(r.neighbourStep, o.neighbourStep),
	}
}

// anyRules are the rules that apply before the device is known.
var anyRules = rulesOf(allDevices)
