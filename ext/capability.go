// SPDX-License-Identifier: BSD-3-Clause

package ext

import (
	"fmt"

	"github.com/goverbs/goverbs/verbs"
)

// Atomics are the atomic operations of RFC 7306. A device that has one of them has all (section 1.1
// there).
const Atomics = verbs.OpSet(1<<verbs.OpFetchAdd | 1<<verbs.OpCmpSwap | 1<<verbs.OpMaskedFetchAdd |
	1<<verbs.OpMaskedCmpSwap)

// Operations are all operations that RFC 7306 adds to RDMAP: the [Atomics], Immediate Data, and
// Write with immediate, which is made of a Write and Immediate Data.
const Operations = Atomics | verbs.OpSet(1<<verbs.OpImm64|1<<verbs.OpWriteImm)

// Support says whether a device has an operation, and how. That does not follow from the transport:
// some iWARP devices have atomics, others do not.
type Support uint8

const (
	None     Support = iota // not at all
	Native                  // the device does it
	Composed                // made of several operations that the device has; the peer's program takes no part
	Emulated                // done by software at both ends, with messages
)

// String returns "none", "native", "composed" or "emulated".
func (s Support) String() string {
	if names := [...]string{"none", "native", "composed", "emulated"}; int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("Support(%d)", uint8(s))
}

// Supporter is the verbs.ProviderContext of a device that does not have all of its operations
// natively. It is found by verbs.Ability.
type Supporter interface {
	// Support returns how the device does an operation that it has, and None for others.
	Support(op verbs.Op) Support
}

// Capability is an operation and its support by a device.
type Capability struct {
	Op      verbs.Op
	Support Support
}

// String returns for example "masked-fetch-add: native".
func (c Capability) String() string { return c.Op.String() + ": " + c.Support.String() }

// Capabilities returns the support of ctx's device for every operation, in the order of verbs.Ops.
// To find out what the peer of a connection can do, see [Probe].
func Capabilities(ctx *verbs.Context) []Capability {
	caps := make([]Capability, 0, 16)
	for op := range verbs.Ops() {
		caps = append(caps, Capability{op, SupportOf(ctx, op)})
	}
	return caps
}

// SupportOf returns the support of ctx's device for op.
func SupportOf(ctx *verbs.Context, op verbs.Op) Support {
	if s, ok := verbs.Ability[Supporter](ctx.Provider()); ok {
		return s.Support(op)
	}
	if ctx.Supports(op) {
		return Native
	}
	return None
}
