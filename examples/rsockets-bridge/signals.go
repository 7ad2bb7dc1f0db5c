// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
)

// untilSignal returns a context that is canceled by the first SIGINT or SIGTERM. The second one
// exits the process immediately with status 1. After end, signals have their default effect.
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
