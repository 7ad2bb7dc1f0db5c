// SPDX-License-Identifier: BSD-3-Clause

// Package shutdown shuts a command down gracefully after a signal, within a time limit.
package shutdown

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// limit is how long a graceful shutdown may take after a signal.
const limit = 2500 * time.Millisecond

// closeLimit is how much of limit may be spent on connections whose peers do not respond.
const closeLimit = 1500 * time.Millisecond

// Late returns a channel that is closed once ctx has been done for as long as closing may take.
func Late(ctx context.Context) <-chan struct{} {
	late := make(chan struct{})
	context.AfterFunc(ctx, func() {
		time.Sleep(closeLimit)
		close(late)
	})
	return late
}

// InTime runs f and returns its error, but stops waiting when late is closed. Whatever f has not
// closed by then is closed when the process exits.
func InTime(late <-chan struct{}, f func() error) error {
	closed := make(chan error, 1)
	go func() { closed <- f() }()
	select {
	case err := <-closed:
		return err
	case <-late:
		return errors.New("closing takes too long")
	}
}

// Error is the cause of a context cancelled by a signal.
type Error struct{ Signal os.Signal }

func (e *Error) Error() string { return fmt.Sprintf("ended by signal: %v", e.Signal) }

// Status returns the exit status of a command ended by a signal, as shells report it: 130 for
// SIGINT, 143 for SIGTERM.
func (e *Error) Status() int {
	if s, ok := e.Signal.(syscall.Signal); ok {
		return 128 + int(s)
	}
	return 1
}

// OnSignal returns a context that the first SIGINT or SIGTERM cancels, with the signal as its
// cause. On a second signal, or if end was not called within 2.5 s of the first, OnSignal calls
// cutOff, which must exit the process.
func OnSignal(parent context.Context, cutOff func(cause error)) (ctx context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	ended := make(chan struct{})
	go func() {
		select {
		case s := <-signals:
			cancel(&Error{s})
		case <-ended:
			return
		}
		select {
		case <-signals:
		case <-time.After(limit):
		case <-ended:
			return
		}
		cutOff(context.Cause(ctx))
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(ended)
		cancel(nil)
	}
}
