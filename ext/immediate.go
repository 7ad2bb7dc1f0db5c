// SPDX-License-Identifier: BSD-3-Clause

package ext

import "github.com/goverbs/goverbs/verbs"

// ImmDataWR returns the request that sends imm as Immediate Data (RFC 7306 section 6): 8 bytes, the most significant one
// first, as a message of its own. It consumes a receive of the peer. The completion of the receive has imm in Imm64; its
// buffer is not written.
func ImmDataWR(imm uint64) verbs.SendWR { return verbs.SendWR{Opcode: verbs.WRImmData, Imm64: imm} }

// ImmDataSEWR returns the request that sends imm as Immediate Data with Solicited Event: like [ImmDataWR], but the peer's
// completion also notifies a CQ that is armed for solicited completions only. Its Flags are SendSolicited; add other flags
// to them.
func ImmDataSEWR(imm uint64) verbs.SendWR {
	return verbs.SendWR{Opcode: verbs.WRImmData, Flags: verbs.SendSolicited, Imm64: imm}
}

// WriteImm64WRs returns an RDMA Write of src to addr in the peer's region rkey, followed by the Immediate Data imm: together a
// Write with an immediate of 64 bits, where WRRDMAWriteWithImm has 32. They must be posted in one list. The peer's completion
// has opcode WCRecvRDMAWithImm and comes after the data are in place.
func WriteImm64WRs(src []verbs.SGE, addr uint64, rkey uint32, imm uint64) [2]verbs.SendWR {
	return [2]verbs.SendWR{
		{Opcode: verbs.WRRDMAWrite, SGL: src, RemoteAddr: addr, RKey: rkey},
		ImmDataWR(imm),
	}
}
