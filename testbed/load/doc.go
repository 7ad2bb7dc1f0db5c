// SPDX-License-Identifier: BSD-3-Clause

// Package load makes traffic and checks every byte of it, for tests that disturb connections. A
// [Node] serves connections of one device. A [Conn] is the connection of a client: it executes
// random operations one after the other, and ends in one of several ways. The tests of faults and
// the soak test use it.
//
// Every wait has a limit: after [Limit] it returns an error that Is [ErrHang].
package load

import (
	"errors"
	"time"
)

// Limit bounds every wait. It is longer than any time-out of a provider or of a connection manager.
const Limit = 60 * time.Second

// ErrHang: something that must happen has not happened within Limit.
var ErrHang = errors.New("nothing has happened in time")
