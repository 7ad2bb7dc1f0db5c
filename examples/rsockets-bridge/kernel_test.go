// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

// kernelHosts are the addresses of the guest's devices.
var kernelHosts = map[string]string{"rxe0": "10.78.0.1", "siw0": "10.77.0.1"}

// queuePairs returns the lines of the kernel about the queue pairs of a process that are connected.
func queuePairs(t *testing.T, device string, pid int) (found []string) {
	t.Helper()
	out, err := exec.Command("rdma", "resource", "show", "qp", "link", device+"/1").CombinedOutput()
	require.NoError(t, err, string(out))
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "state RTS") && strings.Contains(line, fmt.Sprintf("pid %d ", pid)) {
			found = append(found, line)
		}
	}
	return found
}

// Two processes on devices of the kernel: bytes both ways with half closes, aborts, curl, an end in order, and all of that over RDMA.
func TestKernel(t *testing.T) {
	for device, host := range kernelHosts {
		t.Run(device, func(t *testing.T) {
			rdmatest.KernelDevice(t, device)
			ln, url := listenAt(t, schemeTCP)
			front, back := chain(t, device, host, url)

			client := front.dial()
			target := acceptOne(t, ln)
			exchangeOneWay(t, client, target)
			require.Len(t, queuePairs(t, device, front.cmd.Process.Pid), 1)
			require.Len(t, queuePairs(t, device, back.cmd.Process.Pid), 1)
			data := random(4 << 20)
			sends(t, client, target, data)
			exchangeOneWay(t, target, client)
			sends(t, target, client, data[1:])
			front.await("msg=done")

			client = front.dial()
			target = acceptOne(t, ln)
			exchangeOneWay(t, client, target)
			abort(client)
			_, err := target.Read(make([]byte, 1))
			require.ErrorIs(t, err, syscall.ECONNRESET)
		})
	}
}

// TestKernelCurl: curl and a web server, with devices of the kernel between them.
func TestKernelCurl(t *testing.T) {
	for device, host := range kernelHosts {
		t.Run(device, func(t *testing.T) {
			rdmatest.KernelDevice(t, device)
			data := random(4 << 20)
			front, _ := chain(t, device, host, fileServer(t, data))
			curls(t, front, data)
		})
	}
}
