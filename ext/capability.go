// SPDX-License-Identifier: BSD-3-Clause

package ext

import (
	"fmt"

	"github.com/goverbs/goverbs/verbs"
)

// Atomics are the atomic operations of RFC 7306. An RNIC with these extensions has either all of
// them or none (section 1.1).
const Atomics = verbs.OpSet(1<<verbs.OpFetchAdd | 1<<verbs.OpCmpSwap | 1<<verbs.OpMaskedFetchAdd |
	1<<verbs.OpMaskedCmpSwap)

// Operations are all operations that RFC 7306 adds to RDMAP: the [Atomics], Immediate Data, and
// Write with immediate, a Write followed by Immediate Data.
const Operations = Atomics | verbs.OpSet(1<<verbs.OpImm64|1<<verbs.OpWriteImm)

// Support is how a device supports an operation, if at all. The transport does not determine it:
// some iWARP devices have atomics, others do not.
type Support uint8

const (
	None     Support = iota // not supported
	Native                  // performed by the device
	Composed                // composed of several device operations; the peer's program is not involved
	Emulated                // performed by software on both sides, using messages
)

// String returns "none", "native", "composed" or "emulated".
func (s Support) String() string {
	if names := [...]string{"none", "native", "composed", "emulated"}; int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("Support(%d)", uint8(s))
}

// Supporter is a verbs.ProviderContext whose device does not perform all of its operations
// natively. It is looked up by verbs.Ability.
type Supporter interface {
	// Support returns how the device supports an operation, None if it does not.
	Support(op verbs.Op) Support
}

// Capability is an operation and how a device supports it.
type Capability struct {
	Op      verbs.Op
	Support Support
}

// String returns, for example, "masked-fetch-add: native".
func (c Capability) String() string { return c.Op.String() + ": " + c.Support.String() }

// Capabilities returns how ctx's device supports each operation, in the order of verbs.Ops. To find
// out what the peer of a connection supports, see [Probe].
func Capabilities(ctx *verbs.Context) []Capability {
	caps := make([]Capability, 0, 16)
	for op := range verbs.Ops() {
		caps = append(caps, Capability{op, SupportOf(ctx, op)})
	}
	return caps
}

// SupportOf returns how ctx's device supports op.
func SupportOf(ctx *verbs.Context, op verbs.Op) Support {
	if s, ok := verbs.Ability[Supporter](ctx.Provider()); ok {
		return s.Support(op)
	}
	if ctx.Supports(op) {
		return Native
	}
	return None
}
