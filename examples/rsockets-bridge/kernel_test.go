// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/internal/testprogram"
)

// kernelHosts lists the addresses of the guest's devices.
var kernelHosts = map[string]string{"rxe0": "10.78.0.1", "siw0": "10.77.0.1"}

// queuePairs counts the queue pairs that programs like this one have on a device. The kernel
// reports the first 15 bytes of a program's name, and the thread that created the queue pair
// instead of the process.
func queuePairs(t *testing.T, device string) int {
	t.Helper()
	out, err := exec.Command("rdma", "resource", "show", "qp", "link", device+"/1").CombinedOutput()
	require.NoError(t, err, string(out))
	name := filepath.Base(os.Args[0])
	return strings.Count(string(out), "comm "+name[:min(len(name), 15)]+" ")
}

// Two processes on kernel devices: bytes in both directions with half closes, aborts, curl, and an
// orderly exit, all over RDMA.
func TestKernel(t *testing.T) {
	for device, host := range kernelHosts {
		t.Run(device, func(t *testing.T) {
			rdmatest.KernelDevice(t, device)
			ln, url := listenAt(t, schemeTCP)
			front, _ := chain(t, device, host, url)

			client := front.dial(t)
			target := acceptOne(t, ln)
			exchangeOneWay(t, client, target)
			require.Equal(t, 2, queuePairs(t, device))
			data := random(1 << 20)
			sends(t, client, target, data)
			exchangeOneWay(t, target, client)
			sends(t, target, client, data[1:])
			front.await(t, "msg=done")

			client = front.dial(t)
			target = acceptOne(t, ln)
			exchangeOneWay(t, client, target)
			abort(client)
			_, err := target.Read(make([]byte, 1))
			require.ErrorIs(t, err, syscall.ECONNRESET)
		})
	}
}

// TestKernelCurl runs curl and a web server with kernel devices between them.
func TestKernelCurl(t *testing.T) {
	for device, host := range kernelHosts {
		t.Run(device, func(t *testing.T) {
			rdmatest.KernelDevice(t, device)
			data := random(1 << 20)
			front, _ := chain(t, device, host, fileServer(t, data))
			curls(t, front, data)
		})
	}
}

// TestKernelRcopy: librdmacm's rcopy copies a file to another rcopy through a bridge, which is the
// server of one and the client of the other.
func TestKernelRcopy(t *testing.T) {
	for device, host := range kernelHosts {
		t.Run(device, func(t *testing.T) {
			rdmatest.KernelDevice(t, device)
			rcopy := program(t, "rcopy", "rdmacm-utils")
			_, port, err := net.SplitHostPort(nobody(t))
			require.NoError(t, err)
			server := testprogram.Start(t, exec.Command(rcopy, "-p", port))
			require.Eventually(t, func() bool {
				out, err := exec.Command("rdma", "resource", "show", "cm_id").CombinedOutput()
				return err == nil && strings.Contains(string(out), "comm rcopy")
			}, limit, 50*time.Millisecond, "it does not listen")
			b := startBridge(t, "rsocket://"+net.JoinHostPort(host, "0"), "rsocket://"+net.JoinHostPort(host, port),
				"--device", device)

			data := random(8 << 20)
			dir := t.TempDir()
			here, there := filepath.Join(dir, "here"), filepath.Join(dir, "there")
			require.NoError(t, os.WriteFile(here, data, 0o600))
			_, port, err = net.SplitHostPort(b.address(t))
			require.NoError(t, err)
			client := testprogram.Start(t, exec.Command(rcopy, here, host+":"+there, "-p", port))
			client.Ends(t, 0)
			file, err := os.ReadFile(there)
			require.NoError(t, err)
			require.Equal(t, sum(data), sum(file))
			require.Empty(t, b.lines("unreachable"))
			require.False(t, server.HasEnded())
		})
	}
}
