// SPDX-License-Identifier: BSD-3-Clause

// Package output is where the command writes: stdout and stderr, whose errors are not lost.
package output

import (
	"io"
	"os"
	"sync"

	"golang.org/x/term"
)

// Writer is an output of the command. What is written to it cannot control a terminal: text from
// peers and devices, and errors that quote it, is escaped as by Printable, except for newlines and
// tabs. After the first error nothing more is written, so that output never has gaps. Its methods
// may be called concurrently.
type Writer struct {
	w      io.Writer
	failed func(error)

	mu  sync.Mutex // guards err, and serializes writes
	err error
}

// New returns a Writer to w. It calls failed, if not nil, with the first error.
//
// On Unix, a write to a stdout whose reader is gone does not return: the process dies of SIGPIPE,
// as os.File documents.
func New(w io.Writer, failed func(error)) *Writer { return &Writer{w: w, failed: failed} }

// Write writes b, which must consist of whole characters. After an error it returns that error.
func (o *Writer) Write(b []byte) (int, error) {
	if !needsWork(b) {
		return o.write(b)
	}
	if _, err := o.write(printable(nil, b, true)); err != nil {
		return 0, err
	}
	return len(b), nil
}

func (o *Writer) write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return 0, o.err
	}
	n, err := o.w.Write(b)
	if err != nil {
		o.err = err
		if o.failed != nil {
			o.failed(err)
		}
	}
	return n, err
}

// Err returns the first error, or nil if everything was written.
func (o *Writer) Err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// Terminal reports whether w, or the output below the Writer w, is a terminal. Other devices, such
// as /dev/null, are not.
func Terminal(w io.Writer) bool {
	if o, ok := w.(*Writer); ok {
		w = o.w
	}
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
