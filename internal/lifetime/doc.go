// SPDX-License-Identifier: BSD-3-Clause

// Package lifetime keeps handles honest: calls on a closed handle are refused, a close waits for
// the calls in progress, a parent with live children cannot be closed, and whatever was never
// closed can be listed with the stack that created it.
//
// Nothing is ever closed by the garbage collector: a remote peer that holds a key is a reference
// that the collector cannot see.
package lifetime
