// SPDX-License-Identifier: BSD-3-Clause

package forward_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/forward"
	"github.com/goverbs/goverbs/siw"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/verbstest"
)

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// newNIC makes a NIC that is closed when the test ends.
func newNIC(t *testing.T) *verbs.Device {
	t.Helper()
	nic, err := siw.New(siw.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, nic.Close()) })
	return nic.Device()
}

// wrap wraps a device for the time of a test.
func wrap(t *testing.T, below *verbs.Device) *verbs.Device {
	t.Helper()
	d := forward.Wrap(below)
	t.Cleanup(func() { require.NoError(t, d.CloseShared()) })
	return d
}

// TestVerbs runs the conformance suite on a device that forwards to a user-space RNIC.
func TestVerbs(t *testing.T) {
	verbstest.Run(t, func(t *testing.T) verbstest.Fabric {
		nic := newNIC(t)
		return verbstest.Fabric{Active: wrap(t, nic), Passive: wrap(t, nic), Listen: "127.0.0.1:0", Others: []*verbs.Device{nic}}
	})
}
