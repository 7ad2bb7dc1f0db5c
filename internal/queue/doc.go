// SPDX-License-Identifier: BSD-3-Clause

// Package queue provides the building blocks of queues in devices and connections: a [Ring], the
// asynchronous events of a context ([Events]), the notification state of a CQ ([Arm]), and helpers
// for goroutines that wait for each other ([Signal], [Await]).
package queue
