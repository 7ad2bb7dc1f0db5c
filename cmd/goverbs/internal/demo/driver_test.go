// SPDX-License-Identifier: BSD-3-Clause

package demo

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
)

// TestRetryPatience: only errors that time may cure are retried.
func TestRetryPatience(t *testing.T) {
	op := func(errno syscall.Errno) error {
		return fmt.Errorf("wrapped: %w", &cm.OpError{Op: "Connect", Err: os.NewSyscallError("rdma_connect", errno)})
	}
	require.Equal(t, unknownPatience, retryPatience(&net.DNSError{}))
	for _, err := range []error{op(syscall.ECONNREFUSED), &net.OpError{Op: "dial"}} {
		require.Equal(t, refusedPatience, retryPatience(err), err)
	}
	for _, err := range []error{op(syscall.EINVAL), op(syscall.EACCES), errors.New("private data"),
		op(syscall.EADDRINUSE), op(syscall.EADDRNOTAVAIL), // package cm tries other ports
		&net.OpError{Op: "read"}} {
		require.Zero(t, retryPatience(err), err)
	}
}
