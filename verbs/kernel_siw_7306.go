// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

// siw with RFC 7306: a kernel module that replaces the kernel's own siw. Its queues are rings
// (kernel_siw_rings.go). It has the faults of siw, except those that the module repairs and those
// of libsiw.

// siw7306Ops are the operations of the module.
var siw7306Ops = siwOps | MakeOpSet(OpWriteImm, OpFetchAdd, OpCmpSwap, OpMaskedFetchAdd, OpMaskedCmpSwap, OpImm64)

// siw7306Repaired are the faults of siw that version 2 of the module repairs.
var siw7306Repaired = []fault{siwForgetsRequests, siwQueryUnreliable, siwReadEmpty, siwElementEmpty, siwFencedRead,
	siwNoDepthJams, siwTurnJams, siwNeverSolicited}

// Version 2 also repairs siwReadOfNothing, siwPageTorn and siwMissesFirstMessages. They stay
// corrected here, because the corrections also serve the peer's siw, which may lack the module, and
// this side cannot tell.

// siw7306Faults are the faults still corrected with the module.
var siw7306Faults = siwFaults.without(siw7306Repaired...).without(libraryFaults()...)

// libraryFaults returns the faults in the drivers' parts of rdma-core.
func libraryFaults() (faults []fault) {
	for f := range faultsEnd {
		if faultInfos[f].library {
			faults = append(faults, f)
		}
	}
	return faults
}

// siw7306 returns the driver of a siw that implements this version of the contract, nil if the
// version is unknown.
func siw7306(version uint32) *driver {
	if version != ringVersion {
		return nil
	}
	return &driver{ops: siw7306Ops, inline: siwInline, wrap: func(c *kernelContext) ProviderContext {
		// the device advertises no atomics, for the sake of programs on libsiw, which lacks them
		c.attr.AtomicCap = AtomicHCA
		return &siw7306Context{newSiwContext(c, siw7306Faults)}
	}}
}

// siw7306Context is an open device of siw with RFC 7306.
type siw7306Context struct{ *siwContext }

// DriverName implements ProviderDriverNamer.
func (*siw7306Context) DriverName() string { return "siw (RFC 7306)" }
