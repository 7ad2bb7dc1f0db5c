// SPDX-License-Identifier: BSD-3-Clause

//go:build !linux

package usiw

import (
	"net"
	"time"
)

// newStream returns a pumpStream: on these systems sockets are not used directly.
func newStream(conn net.Conn, patience time.Duration) (stream, error) {
	return newPumpStream(conn, patience), nil
}
