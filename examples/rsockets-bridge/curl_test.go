// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// program returns the path of a program that a test needs, from a Debian package.
func program(t *testing.T, name, pkg string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if errors.Is(err, exec.ErrNotFound) {
		path, err = exec.LookPath(filepath.Join("/usr/sbin", name))
	}
	if err != nil {
		t.Fatalf("%s is not installed; on Debian, as root: apt-get install -y --no-install-recommends %s", name, pkg)
	}
	return path
}

// output runs a program, which must succeed, and returns its stdout.
func output(t *testing.T, within time.Duration, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s\n%s%s", cmd, out, &stderr)
	return string(out)
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// fileServer is a target: a web server with one file, which answers uploads with their SHA-256.
func fileServer(t *testing.T, data []byte) (url string) {
	t.Helper()
	ln, url := listenAt(t, schemeTCP)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /file", func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "file", time.Time{}, bytes.NewReader(data))
	})
	mux.HandleFunc("PUT /file", func(w http.ResponseWriter, r *http.Request) {
		h := sha256.New()
		if _, err := io.Copy(h, r.Body); err == nil {
			fmt.Fprintf(w, "%x", h.Sum(nil))
		}
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: limit}
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	t.Cleanup(func() {
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-served, http.ErrServerClosed)
	})
	return url
}

// curls has curl get and put a file through a bridge, several times over one connection.
func curls(t *testing.T, b *process, data []byte) {
	t.Helper()
	curl := program(t, "curl", "curl")
	dir := t.TempDir()
	got, put := filepath.Join(dir, "got"), filepath.Join(dir, "put")
	require.NoError(t, os.WriteFile(put, data, 0o600))
	options := []string{"--silent", "--show-error", "--fail", "--max-time", fmt.Sprint(int(limit.Seconds())),
		"--noproxy", "*"}
	host := b.address(t)
	if strings.HasPrefix(b.url(t), schemeUnix+":") {
		options = append(options, "--unix-socket", host)
		host = "localhost"
	}
	url := "http://" + host + "/file"
	output(t, limit, curl, append(options, "--output", got, url, "--output", got, url)...)
	file, err := os.ReadFile(got)
	require.NoError(t, err)
	require.Equal(t, sum(data), sum(file))
	require.Equal(t, sum(data), output(t, limit, curl, append(options, "--upload-file", put, url)...))
}

// curl gets and puts a file on a web server.
func TestCurl(t *testing.T) {
	data := random(2 << 20)
	for _, f := range forms {
		t.Run(f.name, func(t *testing.T) {
			url := fileServer(t, data)
			if f.scheme == schemeUnix {
				// The target of curl's bridge is the socket of a second bridge, whose target is the
				// web server.
				second := startBridge(t, "unix://"+filepath.Join(t.TempDir(), "socket"), url)
				url = second.url(t)
			}
			curls(t, f.start(t, url), data)
		})
	}
}
