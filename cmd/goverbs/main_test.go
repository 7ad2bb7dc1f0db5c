// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/cmd/goverbs/internal/cli"
	"github.com/goverbs/goverbs/cmd/goverbs/internal/clitest"
)

func TestMain(m *testing.M) { os.Exit(clitest.Main(m)) }

type outcome struct {
	stdout, stderr string
	code           int
}

// execute executes a command line in this process.
func execute(t *testing.T, args ...string) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := cli.Run(t.Context(), args, strings.NewReader(""), &stdout, &stderr)
	return outcome{stdout.String(), stderr.String(), code}
}
