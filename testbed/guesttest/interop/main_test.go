// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package interop

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

// waitLimit bounds the wait for something that must happen. The guest's processor may be emulated.
const waitLimit = 20 * time.Second

func TestMain(m *testing.M) { rdmatest.Main(m) }

// soon returns a context for one wait.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	t.Cleanup(cancel)
	return ctx
}

// result waits for the error of a goroutine.
func result[T any](t *testing.T, what string, c <-chan T) (v T) {
	t.Helper()
	timer := time.NewTimer(waitLimit)
	defer timer.Stop()
	select {
	case v = <-c:
	case <-timer.C:
		require.FailNow(t, "no result: "+what)
	}
	return v
}
