// SPDX-License-Identifier: BSD-3-Clause

package testprogram

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestGroup: killing a program that has its own process group also kills the processes that it
// started.
func TestGroup(t *testing.T) {
	cmd := exec.Command("sh", "-c", "sleep 600 & echo $!; wait")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p := Start(t, cmd)
	pid, err := strconv.Atoi(p.Out.AwaitMatch(t, `^(\d+)\n`)[1])
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, 0))
	require.NoError(t, p.Kill())
	require.Equal(t, syscall.SIGKILL, p.Cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
	require.Eventually(t, func() bool { return gone(pid) }, Limit, lookAgain)
}

// gone reports whether a process ended. It may be a zombie that its new parent has not reaped.
func gone(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || strings.Contains(string(stat), ") Z ")
}
