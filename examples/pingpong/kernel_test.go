// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"os/exec"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

// TestKernelDevices runs the program on kernel devices.
func TestKernelDevices(t *testing.T) {
	for device, at := range map[string]string{"rxe0": "10.78.0.1", "ib:rxe0": "10.78.0.1", "ib:siw0": "10.77.0.1"} {
		t.Run(device, func(t *testing.T) { onKernel(t, device, at, "::ffff:"+at) })
	}
}

// TestIPv6Device does the same on an iWARP device whose GIDs are IPv6 addresses.
func TestIPv6Device(t *testing.T) { onKernel(t, "ib:siw0", "fd00:77::1", "fd00:77::1") }

// onKernel runs the program twice, at an address of a kernel device. The GID is that of the TCP
// connection's address.
func onKernel(t *testing.T, device, at, gid string) {
	t.Helper()
	rdmatest.KernelDevice(t, device[len(device)-4:])
	args := []string{"-d", device, "-p", freePort(t), "-c", "-e", "-n", "20"}
	server := program(t, args...)
	got, err := client(t, at, args...)
	require.NoError(t, err, got)
	require.Regexp(t, output(gid, "163840", "20"), got)
	got, err = server()
	require.NoError(t, err, got)
	require.Regexp(t, output(gid, "163840", "20"), got)
}

// TestKernelPeers: rdma-core's ibv_rc_pingpong is a peer, as server and as client.
func TestKernelPeers(t *testing.T) {
	rdmatest.KernelDevice(t, "rxe0")
	theirs, err := exec.LookPath("ibv_rc_pingpong")
	require.NoError(t, err)
	o, err := parse([]string{"-d", "rxe0"})
	require.NoError(t, err)
	e, err := newEnd(o)
	require.NoError(t, err)
	row, err := e.row(tcpAddr("10.78.0.1"))
	e.close()
	require.NoError(t, err)
	for _, weServe := range []bool{true, false} {
		args := []string{"-d", "rxe0", "-p", freePort(t), "-c", "-e", "-n", "20", "-g", strconv.Itoa(row.Index)}
		ours, their := program, func(t *testing.T, args ...string) func() (string, error) {
			return command(t, theirs,
				nil, args...)
		}
		if !weServe {
			ours, their = their, ours
		}
		server := ours(t, args...)
		got, err := clientOf(t, their, "10.78.0.1", args...)
		require.NoError(t, err, got)
		want := output("::ffff:10.78.0.1", "163840", "20")
		require.Regexp(t, want, got)
		got, err = server()
		require.NoError(t, err, got)
		require.Regexp(t, want, got)
	}
}
