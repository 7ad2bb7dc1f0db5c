// SPDX-License-Identifier: BSD-3-Clause

// Package load generates traffic and checks every byte of it, for tests that disturb connections. A
// [Node] serves connections on one device. A [Conn] is a client's connection: it executes random
// operations one after the other and ends in one of several ways. The fault tests and the soak test
// use it.
//
// Every wait has a limit: after [Limit] it returns an error that Is [ErrHang].
package load

import (
	"errors"
	"time"
)

// Limit bounds every wait. It is longer than any timeout of a provider or a connection manager.
const Limit = 60 * time.Second

// ErrHang reports that something required did not happen within Limit.
var ErrHang = errors.New("nothing has happened in time")
