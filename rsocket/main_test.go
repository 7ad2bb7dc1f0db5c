// SPDX-License-Identifier: BSD-3-Clause

package rsocket_test

import (
	"os"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

func TestMain(m *testing.M) {
	if at := os.Getenv(asClient); at != "" {
		client(at)
		return
	}
	rdmatest.Main(m)
}
