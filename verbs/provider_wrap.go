// SPDX-License-Identifier: BSD-3-Clause

package verbs

import "fmt"

// A device can wrap another one. Its provider makes each of its objects of a handle of the device below (a *Context, *PD,
// *CQ, *QP and so on), and the program uses the outer handles as those of any device. The rules:
//
// Ownership. The outer provider owns the handles that it has made below. It closes them in the closing call of the object that
// they belong to, and the program never sees them. The handles keep what the Provider interfaces promise at both levels, so
// the outer provider checks nothing twice.
//
// Objects. What the program passes are outer handles: the MW and MR of an MWBind, the AH of a UDDest. The outer provider
// passes the inner ones on; an outer one that gets below is refused with an error that Is [ErrForeign], and so is an inner one
// that comes from above. Therefore the abilities that take or make objects (ProviderSRQAllocator, ProviderAHCreator,
// ProviderDmabufRegistrar, ProviderMRReregisterer, ProviderMWBinder) are implemented by the outer object itself.
//
// Other abilities are found by [Ability]: an object with a method Unwrap has those of the object below that it does not
// implement itself. Without the method it has its own only; one that it must not have although the object below does, it
// implements by returning ErrNotSupported.
//
// Channels. The Close of a ProviderCompChannel comes while CQs still use it: [CompChannel.Release] is for that.
//
// Events. CompChannel.Wait and Context.WaitEvent of the device below name inner handles. The outer provider replaces them by
// the owners that it was given at creation, and drops events of objects that are gone or its own.
//
// Polling. CQ.Poll of the handle below drives the device where that helps (ProviderCQDriver), so the outer CQ has no more
// to do than to call it; how CQ.Wait sleeps is found through Unwrap.
//
// Numbers. Keys and QP numbers of the device below can be handed on as they are, and then completions too.
//
// Errors of handles can be returned as they are. The outer handle takes the cause out of an [OpError] and puts its own around
// it, so that an error names one call and one device, those that the program knows.
//
// Connections are made by the connection manager of package cm that the outer device implements, or, through its Unwrap, by
// that of the device below; cm.Provider has the rest.

// Ability finds what a provider's object can do besides what every one of its kind can: the object itself if it is a T, else
// the object below if it has a method Unwrap that returns one, and so on. T is one of the optional interfaces, of this
// package or of another one; P is inferred, the interface of the object's kind:
//
//	watcher, ok := verbs.Ability[verbs.ProviderQPWatcher](qp.Provider())
//
// An outer object hides what is below by implementing T.
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

// ForeignError says that a provider was given an object that is not its own. It Is [ErrForeign].
type ForeignError struct {
	Want, Got string // types, or names of devices
}

// Error returns for example "objects do not belong together: *forward.qp where *siw.qp is needed".
func (e *ForeignError) Error() string {
	return fmt.Sprintf("%v: %s where %s is needed", ErrForeign, e.Got, e.Want)
}

// Is reports whether target is ErrForeign.
func (e *ForeignError) Is(target error) bool { return target == ErrForeign }

// Own returns an object as the type that a provider has given it: p itself, or what it wraps. If there is none the error is a
// *[ForeignError]. Providers use it wherever an object comes back to them.
func Own[T, P any](p P) (T, error) {
	own, ok := Ability[T](p)
	if !ok {
		want := fmt.Sprintf("%T", &own)[1:] // also of a type that is an interface
		return own, &ForeignError{Want: want, Got: fmt.Sprintf("%T", any(p))}
	}
	return own, nil
}
