// SPDX-License-Identifier: BSD-3-Clause

package ext

import "github.com/goverbs/goverbs/verbs"

// ImmDataWR returns the request that sends imm as Immediate Data (RFC 7306 section 6): 8 bytes, the
// most significant one first, as a message of its own. It consumes a receive of the peer. The
// completion of the receive has imm in Imm64; its buffer is not written.
func ImmDataWR(imm uint64) verbs.SendWR {
	return verbs.SendWR{Opcode: verbs.WRImmData, Flags: verbs.SendSignaled, Imm64: imm}
}

// ImmDataSEWR returns the request that sends imm as Immediate Data with Solicited Event:
// [ImmDataWR] with SendSolicited. The peer's completion then also notifies a CQ that is armed for
// solicited completions only.
func ImmDataSEWR(imm uint64) verbs.SendWR {
	wr := ImmDataWR(imm)
	wr.Flags |= verbs.SendSolicited
	return wr
}

// WriteImm64WRs returns [verbs.Write] of the memory from, followed by the Immediate Data imm:
// together a Write with an immediate of 64 bits, where verbs.WriteImm has 32. They must be posted
// in one list, and each of them completes. The peer's completion has opcode WCRecvRDMAWithImm and
// comes after the data are in place.
func WriteImm64WRs(to verbs.Remote, imm uint64, from ...verbs.SGE) [2]verbs.SendWR {
	return [2]verbs.SendWR{verbs.Write(to, from...), ImmDataWR(imm)}
}
