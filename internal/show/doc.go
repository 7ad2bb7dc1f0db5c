// SPDX-License-Identifier: BSD-3-Clause

// Package show prints handles: one list of facts for fmt, log/slog and encoding/json. Without it
// these would walk through the insides of a handle, while other goroutines change them, down to the
// registered memory.
//
// A handle H, and every other exported type with insides, has a method that makes the list, and
// four that print it:
//
//	func (h *H) facts() show.Facts             { ... }
//	func (h *H) Format(s fmt.State, verb rune) { h.facts().Format(s, verb) }
//	func (h *H) String() string                { return h.facts().String() }
//	func (h *H) LogValue() slog.Value          { return h.facts().LogValue() }
//	func (h *H) MarshalJSON() ([]byte, error)  { return h.facts().MarshalJSON() }
//
// A handle is printed at any moment, by any goroutine, also by one that a provider calls back. So
// facts
//
//   - reads only what never changes after lifetime.Node.Init, which [lifetime.Node.Stage] reports,
//     and atomics;
//   - takes no lock that is held during a call of a provider or of the program's, and calls no
//     provider;
//   - has names, numbers, states, sizes and addresses, but nothing of what memory or messages
//     contain;
//   - returns [None] for nil and for the zero value.
//
// Only %w with a handle, which is no error, cannot be helped: fmt itself then prints the insides.
// vet reports it.
//
// Package internal/floors checks that no exported type with unexported fields lacks the methods.
package show
