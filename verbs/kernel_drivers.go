// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

// driver is what one must know about a device's driver beyond what the device tells.
type driver struct {
	ops    OpSet
	inline int // max_inline_data, 0 = it is to be found out
	// wrap returns the context for the driver's own devices, around that for all; nil = that for
	// all.
	wrap func(*kernelContext) ProviderContext
	// extended returns the driver of a device that keeps this version of the contract of RFC 7306,
	// whose queues are rings; nil = there is none. It need not be asked for where it is nil.
	extended func(version uint32) *driver
}

// driverOf recognises the driver of a device. A driver that it does not know is trusted. Only
// operations that could crash a library or reach a peer in a wrong form are not allowed unless the
// device says that it has them.
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

// opsByAttr is what a device says about its operations. Masked atomics and 64-bit immediates have
// no form in libibverbs.
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
