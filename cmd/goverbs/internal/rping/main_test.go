// SPDX-License-Identifier: BSD-3-Clause

package rping

import (
	"os"
	"testing"

	"github.com/goverbs/goverbs/cmd/goverbs/internal/clitest"
)

func TestMain(m *testing.M) { os.Exit(clitest.Main(m)) }
