// SPDX-License-Identifier: BSD-3-Clause

// Package load is traffic whose every byte is checked, for tests that disturb it: a [Node] serves connections of one device,
// a [Conn] is a client's and executes random operations one after the other, and ends them in whatever way. Tests of
// faults and the soak test of testbed/ use it.
//
// Nothing here waits without a limit: what takes longer than [Limit] is an error that Is [ErrHang].
package load

import (
	"errors"
	"time"
)

// Limit bounds every wait. It is longer than any time-out of a provider or of a connection manager.
const Limit = 60 * time.Second

// ErrHang: something that must happen has not happened within Limit.
var ErrHang = errors.New("nothing has happened in time")
