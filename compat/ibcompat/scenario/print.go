// SPDX-License-Identifier: BSD-3-Clause

package scenario

import (
	"fmt"
	"log/slog"

	"github.com/goverbs/goverbs/internal/show"
)

// facts follows the rules of package internal/show.
func (s *Scenario) facts() show.Facts {
	if s == nil || s.Name == "" {
		return show.None("Scenario")
	}
	return show.Of("Scenario", slog.String("name", s.Name), slog.String("reduced", s.Reduced))
}

// Format implements fmt.Formatter. Every verb formats the text of String.
func (s *Scenario) Format(f fmt.State, verb rune) { s.facts().Format(f, verb) }

// String returns the Scenario in one line.
func (s *Scenario) String() string { return s.facts().String() }

// LogValue implements slog.LogValuer.
func (s *Scenario) LogValue() slog.Value { return s.facts().LogValue() }

// MarshalJSON implements json.Marshaler.
func (s *Scenario) MarshalJSON() ([]byte, error) { return s.facts().MarshalJSON() }
