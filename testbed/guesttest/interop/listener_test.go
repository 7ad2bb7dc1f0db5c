// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package interop

import (
	"errors"
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestListenerTaken: any peer that reaches the port of a listener on kernel siw can destroy it by
// opening TCP connections and closing them immediately, without sending a byte. If siw has not
// accepted a connection when it is closed, siw mistakes that for the end of the listener
// (siw_cm_llp_state_change of a socket that still has the listener as its user data) and frees it.
// After that the port refuses connections, and the program is not notified. When the program closes
// the listener, the kernel uses the freed memory: it warns of a reference count below zero, or
// crashes. This test therefore runs last.
func TestListenerTaken(t *testing.T) {
	needKernel(t)
	address := kernelSide(t, 4096).listen(here.host).Addr().String()
	for range 5000 {
		conn, err := net.DialTimeout("tcp", address, waitLimit)
		if errors.Is(err, syscall.ECONNREFUSED) {
			return
		}
		if err == nil {
			require.NoError(t, conn.Close())
		} else {
			require.ErrorIs(t, err, syscall.ECONNRESET) // the listener died with this connection in its queue
		}
	}
	t.Fatal("the listener is still there")
}
