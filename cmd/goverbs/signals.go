// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// closeLimit is how long an orderly end may take after a signal. What is left then is cut off.
const closeLimit = 2500 * time.Millisecond

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
		os.Exit(exitFailed)
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(ended)
		cancel(nil)
	}
}
