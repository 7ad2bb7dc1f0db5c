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

// TestListenerTaken: whoever reaches the port of a listener on the kernel's siw ends it: it opens
// TCP connections and closes them at once, without a byte. If siw has not accepted one when its end
// arrives, siw takes that for the end of the listener (siw_cm_llp_state_change of a socket that
// still has the listener as its user data) and frees it. After that the port refuses connections,
// and the program does not learn of it. When the program closes the listener, the kernel uses the
// memory that it has freed: it warns of a reference count below zero, or crashes. So this test runs
// last.
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
			require.ErrorIs(t, err, syscall.ECONNRESET) // the listener ended with this connection in its queue
		}
	}
	t.Fatal("the listener is still there")
}
