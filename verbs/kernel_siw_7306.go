// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

// siw with RFC 7306: a kernel module in place of the kernel's own siw. Its queues are rings
// (kernel_siw_rings.go); what it does wrong is what siw does wrong, without what the module repairs
// and without what only libsiw does.

// siw7306Ops are its operations.
var siw7306Ops = siwOps | MakeOpSet(OpWriteImm, OpFetchAdd, OpCmpSwap, OpMaskedFetchAdd, OpMaskedCmpSwap, OpImm64)

// siw7306Repaired are the faults of siw that version 2 of the module has repaired.
var siw7306Repaired = []fault{siwForgetsRequests, siwQueryUnreliable, siwReadEmpty, siwElementEmpty, siwFencedRead,
	siwNoDepthJams, siwTurnJams, siwNeverSolicited}

// Version 2 has also repaired siwReadOfNothing, siwPageTorn and siwMissesFirstMessages. But what
// corrects them is for the peer's siw too, which may be one without the module, and this side
// cannot tell: they stay corrected.

// siw7306Faults are the faults that are corrected.
var siw7306Faults = siwFaults.without(siw7306Repaired...).without(libraryFaults()...)

// libraryFaults are those of drivers' parts of rdma-core.
func libraryFaults() (faults []fault) {
	for f := range faultsEnd {
		if faultInfos[f].library {
			faults = append(faults, f)
		}
	}
	return faults
}

// siw7306 is the driver of a siw that keeps the contract.
func siw7306(version uint32) *driver {
	if version != ringVersion {
		return nil
	}
	return &driver{ops: siw7306Ops, inline: siwInline, wrap: func(c *kernelContext) ProviderContext {
		// the device says that it has none, for the sake of programs on libsiw, which has none
		c.attr.AtomicCap = AtomicHCA
		return &siw7306Context{newSiwContext(c, siw7306Faults)}
	}}
}

// siw7306Context is an open device of siw with RFC 7306.
type siw7306Context struct{ *siwContext }

// DriverName implements ProviderDriverNamer.
func (*siw7306Context) DriverName() string { return "siw (RFC 7306)" }
