// SPDX-License-Identifier: BSD-3-Clause

package rdmatest

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// ipv6Variable is set in the environment of a test that was rerun in its own network.
const ipv6Variable = "GOVERBS_TEST_IPV6"

// AgainWithIPv6 reruns a test, which found no ::1 on the host, in a process with its own network
// namespace, whose loopback interface is up and has ::1. That takes root or the right to create
// user namespaces; it cannot help on a kernel without IPv6.
func AgainWithIPv6(t *testing.T, why error) {
	t.Helper()
	if os.Getenv(ipv6Variable) != "" {
		t.Fatalf("in a network namespace: %v", why)
	}
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if errors.Is(err, unix.EAFNOSUPPORT) {
		Lacks(t, "the kernel has no IPv6")
	}
	require.NoError(t, err)
	require.NoError(t, unix.Close(fd))

	root := []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
	group := []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	for _, attr := range []*syscall.SysProcAttr{{Cloneflags: unix.CLONE_NEWNET},
		{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWUSER, UidMappings: root, GidMappings: group}} {
		// The shell brings the interface up first, because package net checks only once what the
		// network supports.
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", `
			file=/proc/sys/net/ipv6/conf/lo/disable_ipv6
			[ "$(cat $file)" = 0 ] || echo 0 >$file || exit 77
			ip link set lo up || exit 77
			exec "$0" "$@"`, os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1", "-test.v")
		cmd.Env = append(os.Environ(), ipv6Variable+"=1")
		cmd.SysProcAttr = attr
		out, err := cmd.CombinedOutput()
		if cmd.Process == nil && (errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC)) ||
			cmd.ProcessState.ExitCode() == 77 {
			t.Logf("%v %s", err, out)
			continue
		}
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "--- PASS: "+t.Name()+" ")
		return
	}
	Lacks(t, why.Error()+", and a network namespace with ::1 needs root")
}
