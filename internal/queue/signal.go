// SPDX-License-Identifier: BSD-3-Clause

package queue

// Signal puts a token into a channel of capacity one, unless it has one. It never waits.
func Signal(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
