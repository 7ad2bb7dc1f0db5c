// SPDX-License-Identifier: BSD-3-Clause

// Package lifetime tracks the lifetimes of handles: calls on a closed handle are refused, closing
// waits for the calls in progress, a parent with live children cannot be closed, and everything not
// closed can be listed with the stack that created it.
//
// The garbage collector never closes anything: a remote peer that holds a key is a reference that
// the collector cannot see.
package lifetime
