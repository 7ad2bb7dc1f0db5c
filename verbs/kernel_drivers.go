// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

// driver is what must be known about a device's driver beyond what the device reports.
type driver struct {
	ops    OpSet
	inline int // max_inline_data, 0 = probe for it
	// wrap returns the context of this driver's devices, built around the common one; nil = use the
	// common one.
	wrap func(*kernelContext) ProviderContext
	// extended returns the driver of a device that implements this version of the RFC 7306 contract
	// and whose queues are rings; nil = there is none. If extended itself is nil, the device is not
	// asked for a version.
	extended func(version uint32) *driver
}

// driverOf recognises the driver of a device. Unknown drivers are trusted, except that operations
// that could crash a library, or reach the peer malformed, are allowed only if the device
// advertises them.
func driverOf(info DeviceInfo, attr DeviceAttr) driver {
	switch {
	case attr.VendorID == vendorSIW && info.Transport == TransportIWARP:
		d := driver{ops: siwOps, inline: siwInline,
			wrap: func(c *kernelContext) ProviderContext { return newSiwContext(c, siwFaults) }}
		if isRingFamily(attr.HWVer) {
			d.extended = siw7306
		}
		return d
	case attr.VendorID == vendorRXE && info.Transport == TransportIB:
		return driver{ops: opsByAttr(info, attr), inline: rxeInline,
			wrap: func(c *kernelContext) ProviderContext { return newRXEContext(c, rxeFaults) }}
	}
	return driver{ops: opsByAttr(info, attr)}
}

// opsByAttr returns the operations that a device advertises. libibverbs cannot express masked
// atomics and 64-bit immediates.
func opsByAttr(info DeviceInfo, attr DeviceAttr) OpSet {
	ops := MakeOpSet(OpSend, OpWrite, OpRead)
	if info.Transport == TransportIB {
		ops |= MakeOpSet(OpSendImm, OpWriteImm)
	}
	if attr.AtomicCap != AtomicNone {
		ops |= MakeOpSet(OpFetchAdd, OpCmpSwap)
	}
	if attr.DeviceCapFlags&DeviceMemMgtExt != 0 {
		ops |= MakeOpSet(OpSendInv, OpLocalInv)
	}
	if attr.DeviceCapFlags&(DeviceMemWindowType2A|DeviceMemWindowType2B) != 0 {
		ops |= MakeOpSet(OpBindMW)
	}
	return ops
}
