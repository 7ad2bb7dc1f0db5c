// SPDX-License-Identifier: BSD-3-Clause

// Package demo runs every kind of RDMA operation between processes and verifies what came of it on
// both sides: first between a connecting and a listening process, then by client processes that
// contend for a lock and a counter.
package demo

import (
	"context"
	"errors"
	"io"

	"github.com/goverbs/goverbs/cmd/goverbs/internal/devices"
	"github.com/goverbs/goverbs/verbs"
)

// Options say what Run does. The process that Run starts for the listening half, and the client
// processes, are this program with the commands demo and ClientCommand.
type Options struct {
	Listen, Connect string   // the address of one half; without both Run is both halves
	JSON            bool     // print one line of JSON in place of text
	Breaks          []string // the comparisons that shall find a difference: STEP or STEP:COMPARISON
	Clients         int      // client processes, 1 to MaxClients
	Ops             int      // operations of each client process, 1 to MaxClientOps
	Child           bool     // the process that started this one reads Stdout and keeps Stdin open while it lives

	Stdin          io.Reader // not read unless Child is set
	Stdout, Stderr io.Writer
}

// errNotVerified is the error of a demo that ran and found something wrong. Its steps have told
// what.
var errNotVerified = errors.New("not verified")

// Run runs one half or both on a device and prints the result. rec is the recording that the
// user-space RNIC of this process was made with, if any; one that is not complete is a failure.
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
		err = cause // the errors of everything that was cut off then say nothing
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

// endWithParent cancels when stdin ends, which the parent process holds open as long as it lives.
func endWithParent(stdin io.Reader, cancel context.CancelCauseFunc) {
	_, _ = io.Copy(io.Discard, stdin)
	cancel(errParentGone)
}

// errParentGone ends a child process whose stdin has ended.
var errParentGone = errors.New("the parent process has ended")
