// SPDX-License-Identifier: BSD-3-Clause

package cli

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// didYouMean returns " (did you mean X?)" for the known word that was probably meant, or "". A
// known word is suggested if word is its beginning or has few typing errors.
func didYouMean(word string, known []string) string {
	best, least := "", max(1, min(2, len(word)/3))+1
	for _, k := range known {
		d := typingErrors(strings.ToLower(word), strings.ToLower(k))
		if len(word) > 1 && strings.HasPrefix(k, word) {
			d = 0
		}
		if d < least {
			best, least = k, d
		}
	}
	if best == "" {
		return ""
	}
	return " (did you mean " + best + "?)"
}

// typingErrors returns how many characters must be left out, added, replaced or swapped with the
// next one to turn a into b (the optimal string alignment distance).
func typingErrors(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, last, row = last, row, before
		row[0] = i
		for j := 1; j <= len(b); j++ {
			replaced := last[j-1]
			if a[i-1] != b[j-1] {
				replaced++
			}
			row[j] = min(last[j]+1, row[j-1]+1, replaced)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(b)]
}

// wrongOption turns an error in a command's options into a usage error. Letters after a single
// hyphen may have been meant as an option's name, as in -device.
func wrongOption(cmd *cobra.Command, err error) error {
	unknown := new(pflag.NotExistError)
	if !errors.As(err, &unknown) {
		return usage(cmd, "%v", err)
	}
	word := unknown.GetSpecifiedShortnames()
	if word == "" {
		word = unknown.GetSpecifiedName()
	}
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			known = append(known, "--"+f.Name)
		}
	})
	return usage(cmd, "%v%s", err, didYouMean("--"+word, known))
}
