// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// closeLimit is how long an orderly end may take after a signal. What is left then is cut off.
const closeLimit = 2500 * time.Millisecond

// closePart is how much of closeLimit connections may take whose peer does not answer.
const closePart = 1500 * time.Millisecond

// lateAfter returns a channel that is closed closePart after ctx is done.
func lateAfter(ctx context.Context) <-chan struct{} {
	late := make(chan struct{})
	context.AfterFunc(ctx, func() {
		time.Sleep(closePart)
		close(late)
	})
	return late
}

// inTime runs f and returns what it returns, but waits no longer than late. The end of the process then closes what f
// has not.
func inTime(late <-chan struct{}, f func() error) error {
	closed := make(chan error, 1)
	go func() { closed <- f() }()
	select {
	case err := <-closed:
		return err
	case <-late:
		return errors.New("closing takes too long")
	}
}

// untilSignal returns a context that the first SIGINT or SIGTERM cancels, with the signal as its cause. If the process has
// not ended by closeLimit after that, or at a second signal, it is ended here, and its children with it.
func untilSignal(parent context.Context) (ctx context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	ended := make(chan struct{})
	go func() {
		select {
		case s := <-signals:
			cancel(fmt.Errorf("ended by signal: %v", s))
		case <-ended:
			return
		}
		select {
		case <-signals:
		case <-time.After(closeLimit):
		case <-ended:
			return
		}
		children.kill()
		fmt.Fprintf(os.Stderr, "goverbs: %v, and cut off\n", context.Cause(ctx))
		os.Exit(exitFailed)
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(ended)
		cancel(nil)
	}
}
