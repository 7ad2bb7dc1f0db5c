// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseEndpoint(t *testing.T) {
	for text, want := range map[string]endpoint{
		"tcp://127.0.0.1:80":   {schemeTCP, "127.0.0.1:80"},
		"tcp://:0":             {schemeTCP, ":0"},
		"tcp://[::1]:65535":    {schemeTCP, "[::1]:65535"},
		"rsocket://host:7471":  {schemeRSocket, "host:7471"},
		"unix:///run/x.sock":   {schemeUnix, "/run/x.sock"},
		"unix:///a b?c#d%2Fé:": {schemeUnix, "/a b?c#d%2Fé:"},
	} {
		e, err := parseEndpoint(text)
		require.NoError(t, err, text)
		require.Equal(t, want, e)
		require.Equal(t, text, e.String())
	}
	for _, text := range []string{
		"", "host:80", "tcp:host:80", "://host:80", "tcp://", "tcp://host", "tcp://host:", "tcp://host:http",
		"tcp://host:65536", "tcp://host:-1",
		"tcp://host:80/", "tcp://::1:80", "TCP://host:80", "udp://host:80", "rsocket://host", "unix://",
		"unix://relative/path",
		"unix:///" + strings.Repeat("x", maxPath),
	} {
		_, err := parseEndpoint(text)
		require.Error(t, err, text)
	}
	_, err := parseEndpoint("unix:///" + strings.Repeat("x", maxPath-1))
	require.NoError(t, err)
}

// A wrong command line is reported, with the option and the value, before the program listens.
func TestWrongUsage(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "socket")
	listen := []string{"--listen", "unix://" + socket}
	dial := []string{"--dial", "tcp://127.0.0.1:9"}
	for _, c := range []struct {
		args []string
		want []string // what the message contains
	}{
		{[]string{}, []string{"--listen", `""`}},
		{listen, []string{"--dial", `""`}},
		{[]string{"--listen", "host:80"}, []string{"--listen", "host:80"}},
		{[]string{"--listen", "http://host:80"}, []string{"http", "tcp, unix, rsocket"}},
		{append(listen, "--dial", "tcp://host:99999"), []string{"--dial", "99999"}},
		{append(listen, "--dial", "tcp://:80"), []string{"--dial", "no host"}},
		{append(listen, "--dial", "tcp://host:0"), []string{"--dial", "no port"}},
		{append(listen, "--dial", "rsocket://host:7471", "--device", "absent0"), []string{"--device", "absent0"}},
		{append(listen, "--dial", "rsocket://host:7471", "--device", ""), []string{"--device", `""`}},
		{append(listen, "--dial", "rsocket://host:7471", "--device", "ib:usiw0"), []string{"--device", "ib:usiw0"}},
		{append(append(listen, dial...), "--device", "usiw0"), []string{"--device", "usiw0", "neither"}},
		{append(append(listen, dial...), "--max-conns", "-1"), []string{"--max-conns", "-1"}},
		{append(append(listen, dial...), "--max-conns", "many"), []string{"--max-conns", "many"}},
		{append(append(listen, dial...), "--idle-timeout", "-1s"), []string{"--idle-timeout", "-1s"}},
		{append(append(listen, dial...), "--drain-timeout", "-1s"), []string{"--drain-timeout", "-1s"}},
		{append(append(listen, dial...), "--drain-timeout", "30"), []string{"--drain-timeout", "30"}},
		{append(append(listen, dial...), "--dial-timeout", "0s"), []string{"--dial-timeout", "0s"}},
		{append(append(listen, dial...), "--metrics", "9090"), []string{"--metrics", "9090"}},
		{append(append(listen, dial...), "--verbose"), []string{"--verbose"}},
		{append(append(listen, dial...), "more"), []string{"more"}},
	} {
		var stdout, stderr strings.Builder
		require.Equal(t, exitUsage, execute(c.args, &stdout, &stderr), "%q", c.args)
		require.Empty(t, stdout.String())
		require.Equal(t, 1, strings.Count(stderr.String(), "\n"), stderr.String())
		for _, want := range c.want {
			require.Contains(t, stderr.String(), want, "%q", c.args)
		}
		require.NoFileExists(t, socket)
	}
}

func TestHelp(t *testing.T) {
	var stdout, stderr strings.Builder
	require.Equal(t, exitDone, execute([]string{"--help"}, &stdout, &stderr))
	require.Empty(t, stderr.String())
	for _, option := range []string{"--listen", "--dial", "--device", "--max-conns", "--idle-timeout",
		"--drain-timeout", "--metrics"} {
		require.Contains(t, stdout.String(), option)
	}
}

// The same for a process, whose exit status scripts see.
func TestWrongUsageOfProcess(t *testing.T) {
	p := execBridge(t, "--listen", "tcp://127.0.0.1:0", "--dial", "gopher://host:70")
	p.Ends(t, exitUsage)
	require.NotContains(t, p.Out.String(), "msg=listening")
}

// Errors that occur only when the bridge tries have exit status 1.
func TestCannotListen(t *testing.T) {
	ln, used := listenAt(t, schemeTCP)
	for _, args := range [][]string{
		{"--listen", used, "--dial", "tcp://127.0.0.1:9"},
		{"--listen", strings.Replace(used, "tcp", "rsocket", 1), "--dial", "tcp://127.0.0.1:9"},
		{"--listen", "unix:///absent/directory/socket", "--dial", "tcp://127.0.0.1:9"},
		{"--listen", "tcp://127.0.0.1:0", "--dial", "tcp://127.0.0.1:9", "--metrics", ln.Addr().String()},
	} {
		var stderr strings.Builder
		require.Equal(t, exitFailed, execute(args, &strings.Builder{}, &stderr), "%q", args)
		require.NotContains(t, stderr.String(), "msg=listening")
	}
}

// A unix socket left behind by a killed program is replaced; one that is in use, and any other
// file, is not.
func TestAbandonedSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	e := endpoint{schemeUnix, path}
	ln, err := new(sockets).listen(t.Context(), e)
	require.NoError(t, err)
	_, err = new(sockets).listen(t.Context(), e)
	require.Error(t, err, "it is in use")

	ln.(*net.UnixListener).SetUnlinkOnClose(false)
	require.NoError(t, ln.Close())
	require.FileExists(t, path)
	ln, err = new(sockets).listen(t.Context(), e)
	require.NoError(t, err)
	require.NoError(t, ln.Close())
	require.NoFileExists(t, path)

	require.NoError(t, os.WriteFile(path, []byte("data"), 0o600))
	_, err = new(sockets).listen(t.Context(), e)
	require.Error(t, err, "it is no socket")
	require.FileExists(t, path)
}
