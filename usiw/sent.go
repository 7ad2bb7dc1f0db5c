// SPDX-License-Identifier: BSD-3-Clause

package usiw

import "context"

// sentKey is the context key of WithRequestSent.
type sentKey struct{}

// WithRequestSent returns a context that makes cm.ID.Connect call f once its socket has accepted
// the MPA Request (RFC 5044 section 7.1). A Connect that begins after the call reaches the peer's
// listener later, so a program can open connections that arrive in a given order without waiting
// until each is accepted. f is not called if the attempt fails earlier; it must not block.
func WithRequestSent(ctx context.Context, f func()) context.Context {
	return context.WithValue(ctx, sentKey{}, f)
}

// requestSent calls the function passed to WithRequestSent.
func requestSent(ctx context.Context) {
	if f, ok := ctx.Value(sentKey{}).(func()); ok {
		f()
	}
}
