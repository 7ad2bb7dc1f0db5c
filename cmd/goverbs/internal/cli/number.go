// SPDX-License-Identifier: BSD-3-Clause

package cli

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// boundedInt is the value of an option that takes a decimal number within a range.
type boundedInt struct {
	v         *int
	low, high int
}

// String implements pflag.Value.
func (b *boundedInt) String() string {
	if b.v == nil {
		return "0"
	}
	return strconv.Itoa(*b.v)
}

// Type implements pflag.Value.
func (b *boundedInt) Type() string { return "int" }

// Set implements pflag.Value.
func (b *boundedInt) Set(s string) error {
	n, err := strconv.Atoi(s)
	if errors.Is(err, strconv.ErrSyntax) {
		return errors.New("not a number")
	}
	if err != nil || n < b.low || n > b.high {
		return fmt.Errorf("not from %d to %d", b.low, b.high)
	}
	*b.v = n
	return nil
}

// byteSize is the value of an option that takes a number of bytes, with an optional suffix K, M or
// G for units of 1024, 1024^2 or 1024^3.
type byteSize int64

// String implements pflag.Value.
func (b *byteSize) String() string {
	if *b == 0 {
		return ""
	}
	return strconv.FormatInt(int64(*b), 10)
}

// Type implements pflag.Value.
func (b *byteSize) Type() string { return "size" }

// Set implements pflag.Value.
func (b *byteSize) Set(s string) error {
	digits, shift := s, 0
	if i := strings.IndexAny(s, "KMG"); i >= 0 && i == len(s)-1 {
		digits, shift = s[:i], 10*(1+strings.IndexByte("KMG", s[i]))
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if errors.Is(err, strconv.ErrSyntax) {
		return errors.New("not a number of bytes, or of K, M or G")
	}
	if err != nil || n > math.MaxInt64>>shift {
		return errors.New("too large")
	}
	*b = byteSize(n << shift)
	return nil
}
