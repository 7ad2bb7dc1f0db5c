// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/internal/race"
	"github.com/goverbs/goverbs/verbs"
)

// TestDispatcherAlloc: a request with a function allocates nothing, on a device whose requests
// complete at once.
func TestDispatcherAlloc(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	for name, open := range map[string]func(testing.TB) *rig{
		"direct":        func(t testing.TB) *rig { return newRig(t, "fake0") },
		"with a ledger": newRXERig,
	} {
		t.Run(name, func(t *testing.T) {
			r := open(t)
			r.up(r.qp)
			fakeverbs.AutoComplete(true)
			d, err := verbs.NewDispatcher(r.cq, verbs.DispatcherConfig{})
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ready, calls := make(chan struct{}, 1), 0
			done := func(wc *verbs.WC) {
				if calls++; wc.ID == 2 && wc.Err() == nil {
					ready <- struct{}{}
				}
			}
			wrs := []verbs.SendWR{verbs.Write(verbs.Remote{Length: 8}, r.sge(0, 8)), verbs.Send(r.sge(8, 8))}
			wrs[0].ID, wrs[1].ID = 1, 2
			const runs = 100
			require.Zero(t, testing.AllocsPerRun(runs, func() {
				if _, err := d.PostSend(r.qp, wrs, done); err != nil {
					t.Fatal(err)
				}
				if err := d.Wait(ctx, ready); err != nil {
					t.Fatal(err)
				}
			}))
			require.Equal(t, 2*(runs+1), calls) // and one to warm up
		})
	}
}
