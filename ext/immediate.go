// SPDX-License-Identifier: BSD-3-Clause

package ext

import "github.com/goverbs/goverbs/verbs"

// ImmDataWR returns a request that sends imm as Immediate Data (RFC 7306 section 6): a separate
// message of 8 bytes, most significant byte first. It consumes a receive of the peer, whose
// completion has imm in Imm64; the receive buffer is not written.
func ImmDataWR(imm uint64) verbs.SendWR {
	return verbs.SendWR{Opcode: verbs.WRImmData, Flags: verbs.SendSignaled, Imm64: imm}
}

// ImmDataSEWR returns a request that sends imm as Immediate Data with Solicited Event: [ImmDataWR]
// with SendSolicited. At the peer, it also notifies a CQ armed only for solicited completions.
func ImmDataSEWR(imm uint64) verbs.SendWR {
	wr := ImmDataWR(imm)
	wr.Flags |= verbs.SendSolicited
	return wr
}

// WriteImm64WRs returns a [verbs.Write] of the memory from, followed by the Immediate Data imm:
// together a Write with a 64-bit immediate, where verbs.WriteImm has 32 bits. Post both in one
// list; each generates a completion. The peer's completion has opcode WCRecvRDMAWithImm and arrives
// after the data are in place.
func WriteImm64WRs(to verbs.Remote, imm uint64, from ...verbs.SGE) [2]verbs.SendWR {
	return [2]verbs.SendWR{verbs.Write(to, from...), ImmDataWR(imm)}
}
