// SPDX-License-Identifier: BSD-3-Clause

// Package demo runs every kind of RDMA operation between processes and verifies the results on both
// sides: first between a connecting and a listening process, then from client processes that
// contend for a lock and a counter.
package demo

import (
	"context"
	"errors"
	"io"

	"github.com/goverbs/goverbs/cmd/goverbs/internal/devices"
	"github.com/goverbs/goverbs/verbs"
)

// Options configure Run. The listening half that Run starts, and the client processes, are this
// program with the commands demo and ClientCommand.
type Options struct {
	Listen, Connect string   // address of one half; if both are empty Run is both halves
	JSON            bool     // print one line of JSON instead of text
	Breaks          []string // comparisons that must find a difference: STEP or STEP:COMPARISON
	Clients         int      // number of client processes, 1 to MaxClients
	Ops             int      // operations per client process, 1 to MaxClientOps
	Child           bool     // the parent process reads Stdout, and keeps Stdin open while it lives

	Stdin          io.Reader // only read if Child is set
	Stdout, Stderr io.Writer
}

// errNotVerified reports a demo that found a fault, which its steps have printed.
var errNotVerified = errors.New("not verified")

// Run runs one half or both on a device and prints the result. rec, which may be nil, is the
// recording of this process's user-space RNIC; an incomplete recording is a failure.
func Run(ctx context.Context, dev *verbs.Device, o Options, rec *Recording) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out := newConsole(o.Stdout, o.Stderr, o.JSON || o.Child)
	if o.Child {
		go endWithParent(o.Stdin, cancel)
	}
	result := newResult(devices.Name(dev))
	err := rec.begun()
	switch {
	case err != nil:
	case o.Listen != "":
		err = runListener(ctx, dev, o, out, o.Stdout, result)
	default:
		err = runDriver(ctx, dev, o, out, result)
	}
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause // the errors of interrupted operations are meaningless
	}
	if err == nil || errors.Is(err, errNotVerified) {
		err = result.err()
	}
	if rerr := rec.Close(); rerr != nil {
		err = errors.Join(err, rerr)
	}
	if remark := rec.remark(); remark != "" {
		out.note("%s", remark)
	}
	result.OK = err == nil
	if o.JSON && !o.Child {
		if werr := result.write(o.Stdout); werr != nil {
			err = errors.Join(err, werr)
		}
	}
	if err == nil {
		out.say("%s\n", result.summary())
	}
	return err
}

// endWithParent cancels at the end of stdin, which the parent process keeps open as long as it
// lives.
func endWithParent(stdin io.Reader, cancel context.CancelCauseFunc) {
	_, _ = io.Copy(io.Discard, stdin)
	cancel(errParentGone)
}

// errParentGone ends a child process after its stdin ended.
var errParentGone = errors.New("the parent process has ended")
