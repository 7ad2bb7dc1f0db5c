// SPDX-License-Identifier: BSD-3-Clause

// Package output is where the command writes: stdout and stderr, of which a failure is not
// forgotten.
package output

import (
	"io"
	"os"
	"sync"

	"golang.org/x/term"
)

// Writer is an output of the command. What is written to it cannot control a terminal: the texts of
// peers and devices, and errors that quote them, come as Printable makes them, but with their lines
// and tabs. After the first error it writes nothing more, so that no output has a gap. Its methods
// may be called concurrently.
type Writer struct {
	w      io.Writer
	failed func(error)

	mu  sync.Mutex // guards err, and keeps writes apart
	err error
}

// New makes a Writer to w. It calls failed, if that is not nil, with the first error.
//
// A write to a stdout whose reader has gone does not return on Unix: it ends the process by
// SIGPIPE, as os.File documents.
func New(w io.Writer, failed func(error)) *Writer { return &Writer{w: w, failed: failed} }

// Write writes b, whole characters. After an error it returns that error.
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

// Err returns the first error, nil if everything was written.
func (o *Writer) Err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// Terminal reports whether w, or that to which the Writer w writes, is a terminal. A device such as
// /dev/null is none.
func Terminal(w io.Writer) bool {
	if o, ok := w.(*Writer); ok {
		w = o.w
	}
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
