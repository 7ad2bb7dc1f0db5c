// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"os"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

// asBridge names the environment variable with which the test binary is the program itself.
const asBridge = "RSOCKETS_BRIDGE_TEST"

func TestMain(m *testing.M) {
	if os.Getenv(asBridge) != "" {
		main()
	}
	rdmatest.Main(m)
}
