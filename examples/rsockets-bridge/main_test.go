// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"fmt"
	"os"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

// asBridge is the environment variable that makes the test binary run as the program.
const asBridge = "RSOCKETS_BRIDGE_TEST"

// asRole is the environment variable that makes it run as one of roles.
const asRole = "RSOCKETS_BRIDGE_TEST_ROLE"

// roles are other programs that tests need.
var roles = map[string]func(args []string) error{}

func TestMain(m *testing.M) {
	if os.Getenv(asBridge) != "" {
		main()
	}
	if role := roles[os.Getenv(asRole)]; role != nil {
		if err := role(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(exitFailed)
		}
		return
	}
	rdmatest.Main(m)
}
