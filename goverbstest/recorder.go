// SPDX-License-Identifier: BSD-3-Clause

package goverbstest

import (
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/usiw/capture"
)

// recorder records what NICs send and receive in a temporary file, which is kept if the test fails.
type recorder struct {
	next   usiw.Tap // the program's own Tap; nil if none
	dir    string   // for the temporary file; removed with the test
	test   string   // the name of the test
	keepIn string   // Options.CaptureDir

	mu   sync.Mutex // guards the fields below
	file *os.File   // nil before the first packet
	w    *capture.Writer
	err  error // why nothing is recorded
}

// Packet implements usiw.Tap.
func (r *recorder) Packet(p *usiw.Packet) {
	if w := r.writer(); w != nil {
		w.Packet(p)
	}
	if r.next != nil {
		r.next.Packet(p)
	}
}

// writer returns the file's writer, which the first call creates, or nil if that failed.
func (r *recorder) writer() *capture.Writer {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.w == nil && r.err == nil {
		if r.file, r.err = os.CreateTemp(r.dir, "*.pcapng"); r.err == nil {
			r.w, r.err = capture.New(r.file, capture.Config{Comment: r.test})
		}
	}
	return r.w
}

// end ends the recording, keeps the file if the test failed, and logs its name. The NICs have been
// closed.
func (r *recorder) end(tb testing.TB) {
	tb.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file == nil && r.err == nil {
		return // no connection
	}
	err := errors.Join(r.err, r.w.Close())
	if tb.Failed() && r.w != nil {
		name, keepErr := r.keep(captureDir(tb, r.keepIn))
		if keepErr == nil {
			tb.Logf("goverbstest: the connections of this test, for Wireshark or tshark: %s", name)
		}
		err = errors.Join(err, keepErr)
	}
	if r.file != nil {
		err = errors.Join(err, r.file.Close())
	}
	if err != nil {
		tb.Logf("goverbstest: the capture is not complete: %v", err)
	}
}

// captureDir returns the directory for the file; see Options.CaptureDir.
func captureDir(tb testing.TB, dir string) string {
	if dir != "" {
		return dir
	}
	// Without the flag, the directory that ArtifactDir returns does not outlive the test.
	if f := flag.Lookup("test.artifacts"); f != nil && f.Value.String() == "true" {
		if a, ok := tb.(interface{ ArtifactDir() string }); ok {
			return a.ArtifactDir()
		}
	}
	return os.TempDir()
}

// keep copies the file to the directory and returns its name.
func (r *recorder) keep(dir string) (name string, err error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", err
	}
	out, err := os.CreateTemp(dir, fileName(r.test)+"-*.pcapng")
	if err != nil {
		return "", err
	}
	if _, err = r.file.Seek(0, io.SeekStart); err == nil {
		_, err = io.Copy(out, r.file)
	}
	name, absErr := filepath.Abs(out.Name())
	return name, errors.Join(err, out.Close(), absErr)
}

// fileName returns the name of a test without characters that are not allowed in file names.
func fileName(test string) string {
	return strings.Map(func(c rune) rune {
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-' {
			return c
		}
		return '_'
	}, test)
}
