// SPDX-License-Identifier: BSD-3-Clause

package verbs

import "fmt"

// A device can wrap another one, the inner device. Its provider builds each object on a handle of
// the inner device (a *Context, *PD, *CQ, *QP and so on), and the program uses the outer handles
// like those of any device. The rules:
//
// Ownership. The outer provider owns the inner handles. It closes them in the closing call of the
// object that they belong to; the program never sees them. The handles enforce the guarantees of
// the Provider interfaces at both levels, so the outer provider need not repeat any check.
//
// Objects. The program passes outer handles: the MW and MR of an MWBind, the AH of a UDDest. The
// outer provider passes the inner ones to the inner device. Each device rejects handles of the
// other with an error that Is [ErrForeign]. Therefore the outer object itself must implement the
// abilities that take or create objects: ProviderSRQAllocator, ProviderAHCreator,
// ProviderDmabufRegistrar, ProviderMRReregisterer, ProviderMWBinder.
//
// [Ability] finds all others: an object with an Unwrap method inherits the abilities of the inner
// object that it does not implement itself. An object without Unwrap has only its own. To hide an
// ability of the inner object, the outer object implements it and returns ErrNotSupported.
//
// Channels. ProviderCompChannel.Close is called while CQs still use the channel. The outer provider
// then calls [CompChannel.Release] on the inner one.
//
// Events. CompChannel.Wait and Context.WaitEvent of the inner device return inner handles. The
// outer provider replaces them with the owners that it received at creation. It drops events of
// closed objects and of objects for its own use.
//
// Polling. CQ.Poll of the inner handle drives the device if it is a ProviderCQDriver, so the outer
// CQ need only call it. CQ.Wait finds the driver through Unwrap. An outer CQ that holds completions
// of its own must not have Unwrap: the inner device does not know of them.
//
// Cost. A device that passes most requests through unchanged lets the handles bypass it; see
// provider_bypass.go.
//
// Numbers. Keys and QP numbers of the inner device can be used unchanged, and then so can
// completions.
//
// Errors of inner handles can be returned unchanged. The outer handle replaces their [OpError] with
// its own, so an error names only the call and the device that the program knows.
//
// Connections are established by the cm.Provider that the outer device implements or, through
// Unwrap, by that of the inner device; see there.

// Ability looks up an optional interface T of a provider's object, from this package or another
// one. It returns the object itself if it is a T; otherwise it tries the object that its Unwrap
// method returns, and so on. P is inferred; it is the Provider interface of the object:
//
//	watcher, ok := verbs.Ability[verbs.ProviderQPWatcher](qp.Provider())
//
// An outer object that implements T hides the T of the inner object.
func Ability[T, P any](p P) (ability T, ok bool) {
	for {
		if ability, ok = any(p).(T); ok {
			return ability, true
		}
		outer, wraps := any(p).(interface{ Unwrap() P })
		if !wraps {
			return ability, false
		}
		p = outer.Unwrap()
	}
}

// ForeignError reports that a provider received an object of another provider. It Is [ErrForeign].
type ForeignError struct {
	Want, Got string // types, or names of devices
}

// Error returns, for example, "objects do not belong together: *forward.qp where *siw.qp is
// needed".
func (e *ForeignError) Error() string {
	return fmt.Sprintf("%v: %s where %s is needed", ErrForeign, e.Got, e.Want)
}

// Is reports whether target is ErrForeign.
func (e *ForeignError) Is(target error) bool { return target == ErrForeign }

// Own returns the provider's own object of type T: p itself, or an object that p wraps. If there is
// none, the error is a *[ForeignError]. Providers call it on every object that they are passed.
func Own[T, P any](p P) (T, error) {
	own, ok := Ability[T](p)
	if !ok {
		want := fmt.Sprintf("%T", &own)[1:] // works for interface types too
		return own, &ForeignError{Want: want, Got: fmt.Sprintf("%T", any(p))}
	}
	return own, nil
}
