// SPDX-License-Identifier: BSD-3-Clause

package testprogram

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// asProgram is the variable that turns this test binary into the program: it writes "ready",
// answers lines, and exits with status 7 at the end of its input.
const asProgram = "GOVERBS_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) == "" {
		os.Exit(m.Run())
	}
	fmt.Println("ready")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		fmt.Printf("answer to %s\n", in.Text())
		fmt.Fprintln(os.Stderr, "complaint")
	}
	os.Exit(7)
}

// program returns the program's command, and the pipe to its stdin.
func program(t *testing.T) (*exec.Cmd, *os.File) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	in, w, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = in.Close(), w.Close() })
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), asProgram+"=1", "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	cmd.Stdin = in
	return cmd, w
}

// TestConversation: a program answers, its output is collected in order, and it exits with its own
// status.
func TestConversation(t *testing.T) {
	cmd, in := program(t)
	p := Start(t, cmd)
	p.Out.Await(t, "ready")
	require.False(t, p.HasEnded())
	require.Contains(t, p.String(), ": runs\nready\n")
	_, err := fmt.Fprintln(in, "one")
	require.NoError(t, err)
	require.Equal(t, []string{"answer to one\n", "one"}, p.Out.AwaitMatch(t, `(?m)^answer to (.*)\n`))
	require.NoError(t, in.Close())
	p.Ends(t, 7)
	require.True(t, p.HasEnded())
	require.Equal(t, "ready\nanswer to one\ncomplaint\n", p.Out.String())
	require.Contains(t, p.String(), ": exit status 7\nready\n")
	require.NoError(t, p.Kill(), "it has ended")
}

// TestApart: stderr has a separate Output, and an error shows both.
func TestApart(t *testing.T) {
	cmd, in := program(t)
	p := StartApart(t, cmd)
	_, err := fmt.Fprintln(in, "one")
	require.NoError(t, err)
	require.Equal(t, "complaint\n", p.Err.Await(t, "complaint\n"))
	require.Equal(t, "ready\nanswer to one\n", p.Out.Await(t, "one\n"))
	require.ErrorContains(t, p.wait(time.Millisecond), "ready\nanswer to one\nstderr: complaint\n")
}

// TestKilled: a program that does not end causes an error with its output, and is killed.
func TestKilled(t *testing.T) {
	cmd, _ := program(t)
	p, err := Launch(cmd)
	require.NoError(t, err)
	p.Out.Await(t, "ready")
	err = p.wait(time.Millisecond)
	require.ErrorContains(t, err, "has not ended: ")
	require.ErrorContains(t, err, ": runs\nready\n")
	require.NoError(t, p.Kill())
	require.Equal(t, -1, p.Cmd.ProcessState.ExitCode())
	<-p.Ended()
}

// TestKilledAtEnd: a program that a test leaves running is killed when the test ends.
func TestKilledAtEnd(t *testing.T) {
	var p *Program
	t.Run("leaves it", func(t *testing.T) {
		cmd, _ := program(t)
		p = Start(t, cmd)
	})
	require.True(t, p.HasEnded())
}

// TestSilent: if the awaited text does not arrive by the time the program ends, the error has its
// output.
func TestSilent(t *testing.T) {
	cmd, in := program(t)
	p := Start(t, cmd)
	p.Out.Await(t, "ready")
	require.False(t, p.Out.Shows(time.Millisecond, "steady", "go"))
	require.True(t, p.Out.Shows(time.Millisecond, "steady", "read"))
	err := p.Out.await(time.Millisecond, "steady")
	require.ErrorContains(t, err, `has not written "steady": `)
	require.ErrorContains(t, err, ": runs\nready\n")
	require.NoError(t, in.Close())
	require.ErrorContains(t, p.Out.await(Limit, "steady"), ": exit status 7\nready\n")
	require.True(t, p.Out.Shows(0, "ready"), "what it has written before its end")
}

// TestMissing: the error names a program that does not exist.
func TestMissing(t *testing.T) {
	_, err := Launch(exec.Command("/missing/program"))
	require.ErrorContains(t, err, "/missing/program")
}
