// SPDX-License-Identifier: BSD-3-Clause

// Package show prints handles: one list of attributes for fmt, log/slog and encoding/json. Without
// it these packages would walk the internals of a handle, down to registered memory, while other
// goroutines modify them.
//
// A handle H, and every other exported type with unexported fields, has a method that builds the
// list, and four that print it:
//
//	func (h *H) facts() show.Facts             { ... }
//	func (h *H) Format(s fmt.State, verb rune) { h.facts().Format(s, verb) }
//	func (h *H) String() string                { return h.facts().String() }
//	func (h *H) LogValue() slog.Value          { return h.facts().LogValue() }
//	func (h *H) MarshalJSON() ([]byte, error)  { return h.facts().MarshalJSON() }
//
// A handle may be printed at any moment by any goroutine, including one that is called back by a
// provider. So facts
//
//   - reads only atomics, and fields that never change after lifetime.Node.Init, which
//     [lifetime.Node.Stage] reports;
//   - takes no lock that is held while a provider or the program is called, and calls no provider;
//   - includes names, numbers, states, sizes and addresses, but no contents of memory or messages;
//   - returns [None] for nil and for the zero value.
//
// The only exception is %w with a handle, which is not an error: fmt itself then prints the
// internals. vet reports it.
//
// Package internal/floors checks that no exported type with unexported fields lacks the methods.
package show
