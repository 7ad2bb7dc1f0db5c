// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
)

// untilSignal returns a context that the first SIGINT or SIGTERM cancels. At the second one the
// process exits at once with status 1. After end a signal has the effect that it has by default.
func untilSignal(parent context.Context, log *slog.Logger) (ctx context.Context, end func()) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	ended := make(chan struct{})
	go func() {
		for first := true; ; first = false {
			select {
			case s := <-signals:
				if !first {
					log.Error("second signal", "signal", s.String())
					os.Exit(exitFailed)
				}
				log.Info("signal", "signal", s.String())
				cancel()
			case <-ended:
				return
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(ended)
		cancel()
	}
}
