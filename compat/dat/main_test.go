// SPDX-License-Identifier: BSD-3-Clause

package dat_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

func TestMain(m *testing.M) {
	if where := os.Getenv(asPeer); where != "" {
		fmt.Fprintln(os.Stderr, peer(where))
		os.Exit(1)
	}
	rdmatest.Main(m)
}
