// SPDX-License-Identifier: BSD-3-Clause

// Package forward has the objects of a device that wraps another one, each of which does nothing
// but pass on what it is asked to an object of the device below, its field In. A device that
// changes something embeds them, and overrides what it changes; package compat/ibcompat does.
// NewPD, NewCQ, NewQP, Resolve, Listen, Next and Join make what it embeds.
//
// Wrap makes a device that changes nothing: the program gets the handles of the outer device,
// behind each of which stands one of the device below. It shows how a device wraps another one,
// which package verbs describes in provider_wrap.go and package cm at Provider, and it is what
// tests prove that with: whatever holds on a device holds on the forwarding one.
//
// It is a package of its own, above cm and below compat/ibcompat, because both the code of ibcompat
// and the tests of many packages need it.
//
// Nothing here is known of any provider. What the device below can do besides what every one can is
// found through Unwrap; only what takes or makes objects is passed on explicitly, because the
// program's objects are not those of the device below.
package forward
