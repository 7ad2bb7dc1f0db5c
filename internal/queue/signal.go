// SPDX-License-Identifier: BSD-3-Clause

package queue

import "context"

// Signal puts a token into a channel of capacity one, unless it already holds one. It never blocks.
func Signal(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// Await waits until closed is closed or ctx is done. If both hold, it returns nil.
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
