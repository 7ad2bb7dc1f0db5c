// SPDX-License-Identifier: BSD-3-Clause

package cli

import (
	"errors"
	"fmt"
	"strconv"
)

// boundedInt is the value of an option that takes a decimal number of a range.
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
