// SPDX-License-Identifier: BSD-3-Clause

// Package queue has what devices and connections make their queues of: a [Ring], the asynchronous
// events of a context ([Events]), what a CQ is armed for ([Arm]), and how goroutines wait for each
// other ([Signal], [Await]).
package queue
