// SPDX-License-Identifier: BSD-3-Clause

package verbs

import "fmt"

// A device can wrap another one, the inner device. Its provider makes each of its objects from a
// handle of the inner device (a *Context, *PD, *CQ, *QP and so on), and the program uses the outer
// handles like those of any device. The rules:
//
// Ownership. The outer provider owns the inner handles. It closes them in the closing call of the
// object that they belong to, and the program never sees them. The handles keep the guarantees of
// the Provider interfaces at both levels, so the outer provider need not check anything again.
//
// Objects. The program passes outer handles: the MW and MR of an MWBind, the AH of a UDDest. The
// outer provider passes the inner ones to the inner device. An outer handle that is passed to the
// inner device is refused with an error that Is [ErrForeign], and so is an inner handle that is
// passed to the outer device. Therefore the outer object itself implements the abilities that take
// or make objects: ProviderSRQAllocator, ProviderAHCreator, ProviderDmabufRegistrar,
// ProviderMRReregisterer, ProviderMWBinder.
//
// Other abilities are found by [Ability]: an object with a method Unwrap has those of the inner
// object that it does not implement itself. An object without the method has only its own. To hide
// an ability of the inner object, the outer object implements it and returns ErrNotSupported.
//
// Channels. The Close of a ProviderCompChannel is called while CQs still use it. The outer provider
// then calls [CompChannel.Release] of the inner one.
//
// Events. CompChannel.Wait and Context.WaitEvent of the inner device return inner handles. The
// outer provider replaces them by the owners that it was passed at creation. It drops events of
// closed objects, and of objects that it has made for itself.
//
// Polling. CQ.Poll of the inner handle drives the device if it can be driven (ProviderCQDriver), so
// the outer CQ only calls it. CQ.Wait finds the way to sleep through Unwrap. An outer CQ that keeps
// completions of its own has no Unwrap: the inner device knows nothing of them.
//
// Cost. A device that passes most requests on unchanged lets the handles go past it; see
// provider_bypass.go.
//
// Numbers. Keys and QP numbers of the inner device can be passed on unchanged, and then completions
// too.
//
// Errors of inner handles can be returned unchanged. The outer handle replaces their [OpError] by
// its own, so that an error names one call and one device, those that the program knows.
//
// Connections are made by the cm.Provider that the outer device implements, or through its Unwrap
// by that of the inner device; see there.

// Ability looks up an optional interface T of a provider's object, from this package or another
// one. It returns the object itself if it is a T, or else the object that its method Unwrap
// returns, and so on. P is inferred; it is the interface of the kind of the object:
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

// ForeignError says that a provider was passed an object of another provider. It Is [ErrForeign].
type ForeignError struct {
	Want, Got string // types, or names of devices
}

// Error returns for example "objects do not belong together: *forward.qp where *siw.qp is needed".
func (e *ForeignError) Error() string {
	return fmt.Sprintf("%v: %s where %s is needed", ErrForeign, e.Got, e.Want)
}

// Is reports whether target is ErrForeign.
func (e *ForeignError) Is(target error) bool { return target == ErrForeign }

// Own returns an object as the type T of a provider: p itself, or an object that it wraps. If there
// is none the error is a *[ForeignError]. Providers call it wherever they are passed one of their
// objects.
func Own[T, P any](p P) (T, error) {
	own, ok := Ability[T](p)
	if !ok {
		want := fmt.Sprintf("%T", &own)[1:] // also of a type that is an interface
		return own, &ForeignError{Want: want, Got: fmt.Sprintf("%T", any(p))}
	}
	return own, nil
}
