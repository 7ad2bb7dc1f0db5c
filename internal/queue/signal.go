// SPDX-License-Identifier: BSD-3-Clause

package queue

import "context"

// Signal puts a token into a channel of capacity one, unless it has one. It never waits.
func Signal(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// Await waits until a channel is closed, or until ctx is done. A channel that is closed counts,
// also if ctx is done.
func Await(ctx context.Context, closed <-chan struct{}) error {
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-closed:
		return nil
	default:
		return ctx.Err()
	}
}
