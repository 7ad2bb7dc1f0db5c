// SPDX-License-Identifier: BSD-3-Clause

// Package forward implements a device that wraps another one. Each of its objects does nothing but
// forward calls to an object of the device below, its field In. A device that changes some
// behaviour embeds these objects and overrides the methods concerned, as package compat/ibcompat
// does. NewPD, NewCQ, NewQP, Resolve, Listen, Next and Join create the objects to embed.
//
// Wrap returns a device that changes nothing: the program gets handles of the outer device, each
// backed by a handle of the device below. It demonstrates how a device wraps another one, which
// package verbs describes in provider_wrap.go and package cm at Provider, and tests rely on it:
// whatever holds on a device must hold on its forwarding device.
//
// It is a separate package, above cm and below compat/ibcompat, because ibcompat and the tests of
// many packages need it.
//
// The package knows nothing about any particular provider. Optional abilities of the device below
// are found through Unwrap. Only methods that take or return objects are forwarded explicitly,
// because the program's objects are not the objects of the device below.
package forward
