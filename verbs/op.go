// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"iter"
	"strings"
)

// Op is an operation that a device may support. The transport of a device does not determine its
// operations.
type Op uint8

const (
	OpSend           Op = iota // Send, also solicited
	OpSendInv                  // Send with Invalidate
	OpSendImm                  // Send with a 32-bit immediate
	OpWrite                    // RDMA Write
	OpWriteImm                 // RDMA Write with immediate
	OpRead                     // RDMA Read
	OpFetchAdd                 // 64-bit fetch and add
	OpCmpSwap                  // 64-bit compare and swap
	OpMaskedFetchAdd           // fetch and add with field boundaries
	OpMaskedCmpSwap            // compare and swap with compare and swap masks
	OpImm64                    // 8 bytes of Immediate Data as a message of its own (RFC 7306)
	OpLocalInv                 // Local Invalidate
	OpBindMW                   // type 2 memory windows
	OpAtomicWrite              // 8 bytes written atomically; the QP must be created with it, see QPConfig.SendOps

	opCount
)

var opNames = [opCount]string{"send", "send-inv", "send-imm", "write", "write-imm", "read", "fetch-add", "cmp-swap",
	"masked-fetch-add", "masked-cmp-swap", "imm64", "local-inv", "bind-mw", "atomic-write"}

// String returns the name that the command-line tools print and accept, for example
// "masked-fetch-add".
func (o Op) String() string { return enumText(int(o), opNames[:], "Op") }

// Ops iterates over all operations.
func Ops() iter.Seq[Op] {
	return func(yield func(Op) bool) {
		for o := range opCount {
			if !yield(o) {
				return
			}
		}
	}
}

// OpSet is a set of operations.
type OpSet uint32

// MakeOpSet returns the set of the given operations.
func MakeOpSet(ops ...Op) OpSet {
	var s OpSet
	for _, o := range ops {
		s |= 1 << o
	}
	return s
}

// AllOps is the set of all operations.
const AllOps OpSet = 1<<opCount - 1

// Has reports whether o is in the set.
func (s OpSet) Has(o Op) bool { return o < opCount && s&(1<<o) != 0 }

// String lists the names, separated by commas.
func (s OpSet) String() string {
	var parts []string
	for o := range Ops() {
		if s.Has(o) {
			parts = append(parts, o.String())
		}
	}
	return strings.Join(parts, ",")
}

// opsOf returns the operations that a transport service can have (InfiniBand Architecture volume 1,
// 9.2 and 10.7.2.2), none for an unknown service.
func opsOf(t QPType) OpSet {
	switch t {
	case QPTypeRC:
		return AllOps
	case QPTypeUC:
		return MakeOpSet(OpSend, OpSendImm, OpWrite, OpWriteImm, OpLocalInv, OpBindMW)
	case QPTypeUD:
		return MakeOpSet(OpSend, OpSendImm)
	}
	return 0
}

// opOf maps the opcode of a work request to the operation that it needs; opCount = no such opcode.
var opOf = func() (t [wrOpcodeCount]Op) {
	for i := range t {
		t[i] = opCount
	}
	t[WRRDMAWrite] = OpWrite
	t[WRRDMAWriteWithImm] = OpWriteImm
	t[WRSend] = OpSend
	t[WRSendWithImm] = OpSendImm
	t[WRRDMARead] = OpRead
	t[WRAtomicCmpAndSwp] = OpCmpSwap
	t[WRAtomicFetchAndAdd] = OpFetchAdd
	t[WRLocalInv] = OpLocalInv
	t[WRBindMW] = OpBindMW
	t[WRSendWithInv] = OpSendInv
	t[WRMaskedAtomicCmpAndSwp] = OpMaskedCmpSwap
	t[WRMaskedAtomicFetchAndAdd] = OpMaskedFetchAdd
	t[WRImmData] = OpImm64
	t[WRAtomicWrite] = OpAtomicWrite
	return t
}()
