// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

// model is what one must know about a device's driver beyond what the device tells.
type model struct {
	name string
	ops  OpSet
	// tracked: the driver does not keep libibverbs' promises about order and flushing, so the provider keeps account of
	// every request itself. Each one is signalled to the device.
	tracked bool
	// flushes: completions of what a QP had when it went to ERR come by themselves, soon after. Otherwise they are there
	// when ibv_modify_qp returns.
	flushes     bool
	noIova      bool   // registration ignores the iova
	noMW        bool   // no memory windows, whatever the library does when asked
	noSolicited bool   // completions never count as solicited
	oneSGE      bool   // Reads and receives without elements are mishandled, and elements of length 0 among others
	gated       bool   // fenced requests do not wait in the device's queue; see gate
	turns       bool   // nor does anything else
	deaf        bool   // as responder it may overlook the first messages until others come
	hole        bool   // see plugHole
	lies        bool   // a query does not tell the state, and swaps the depths
	inline      int    // max_inline_data, 0 = it is to be found out
	short       uint32 // messages of up to so many octets are sent wrongly from one element that crosses a page; see tear
	withInv     uint   // the flag of a completion that names an invalidated key
}

// The vendor_id of the drivers for software devices.
const (
	vendorRXE = 0xffffff // RXE_VENDOR_ID of the kernel's drivers/infiniband/sw/rxe
	vendorSIW = 0x626d74 // SIW_VENDOR_ID of the kernel's drivers/infiniband/sw/siw
)

// modelOf recognises the driver of a device. One that it does not know is believed, but for operations: those that
// could crash a library or reach a peer in a wrong form are allowed only where the device says that it has them.
func modelOf(info DeviceInfo, attr DeviceAttr) model {
	switch {
	case attr.VendorID == vendorSIW && info.Transport == TransportIWARP:
		// Anything else is EINVAL of libsiw, or an index beyond its table of 12 opcodes.
		return model{name: "siw", ops: MakeOpSet(OpSend, OpSendInv, OpWrite, OpRead), tracked: true,
			noIova: true, noMW: true, noSolicited: true, oneSGE: true, gated: true, turns: true, deaf: true, hole: true, lies: true,
			inline: 80, short: 32, withInv: uint(WCWithInv)}
	case attr.VendorID == vendorRXE && info.Transport == TransportIB:
		// The driver copies the kernel's IB_WC_WITH_INVALIDATE, which is another bit than IBV_WC_WITH_INV.
		return model{name: "rxe", ops: opsByAttr(info, attr), tracked: true, flushes: true, gated: true, inline: 512, withInv: 1 << 2}
	}
	return model{ops: opsByAttr(info, attr), withInv: uint(WCWithInv)}
}

// opsByAttr is what a device says about its operations. Masked atomics and 64-bit immediates have no form in libibverbs.
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
