// SPDX-License-Identifier: BSD-3-Clause

package usiw

import "context"

// sentKey is the key of WithRequestSent.
type sentKey struct{}

// WithRequestSent returns a context with which cm.ID.Connect calls f when its socket has taken the
// MPA Request (RFC 5044 section 7.1). A Connect that begins after that comes to the peer's listener
// later, so a program can make connections that arrive in an order without waiting until each is
// accepted. f is not called if the attempt fails before that; it must not block.
func WithRequestSent(ctx context.Context, f func()) context.Context {
	return context.WithValue(ctx, sentKey{}, f)
}

// requestSent calls the function of WithRequestSent.
func requestSent(ctx context.Context) {
	if f, ok := ctx.Value(sentKey{}).(func()); ok {
		f()
	}
}
