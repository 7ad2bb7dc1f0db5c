// SPDX-License-Identifier: BSD-3-Clause

package goverbstest_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/goverbstest"
	"github.com/goverbs/goverbs/verbs"
)

// TestClean: a test that closes everything passes, and leaves no file.
func TestClean(t *testing.T) {
	dir := t.TempDir()
	got := judge(t, func(tb testing.TB) {
		nw := goverbstest.New(tb, goverbstest.Options{CaptureDir: dir})
		exchange(tb, nw, "hello")
		require.Len(tb, nw.Links(), 1)
		require.NotPanics(tb, func() { nw.Device(1) })
		require.Panics(tb, func() { nw.Device(2) })
	})
	require.Empty(t, got.errors)
	require.Empty(t, got.logs)
	requireFiles(t, dir, 0)
}

// TestCleanInTheEnd: objects closed by Cleanup functions, or by goroutines that stop with the
// test's context, do not count as left behind.
func TestCleanInTheEnd(t *testing.T) {
	got := judge(t, func(tb testing.TB) {
		nw := goverbstest.New(tb, goverbstest.Options{})
		vctx, err := nw.Device(0).Open()
		require.NoError(tb, err)
		late, err := nw.Device(1).Open()
		require.NoError(tb, err)
		over := make(chan struct{})
		go func() {
			<-over
			_ = late.Close()
		}()
		tb.Cleanup(func() {
			require.NoError(tb, vctx.Close())
			close(over)
		})
	})
	require.Empty(t, got.errors)
}

// TestLeakedHandles: each kind of object left open is reported with the function that created it,
// and then closed.
func TestLeakedHandles(t *testing.T) {
	for _, c := range []struct {
		what string
		leak func(tb testing.TB, nw *goverbstest.Network)
		want []string
	}{
		{"connection", func(tb testing.TB, nw *goverbstest.Network) { connect(tb, nw) }, []string{
			"16 handles were not closed", "cm.Endpoint created at", "QP created at", "MR created at",
			"goverbstest_test.connect"}},
		{"half", func(tb testing.TB, nw *goverbstest.Network) {
			client, _ := connect(tb, nw)
			closeAll(tb, client)
		}, []string{"8 handles"}},
		{"context", func(tb testing.TB, nw *goverbstest.Network) {
			_, err := nw.Device(1).Open()
			require.NoError(tb, err)
		}, []string{"1 handles", "1 x Context created at", "goverbstest_test.TestLeakedHandles"}},
		{"listener", func(tb testing.TB, nw *goverbstest.Network) {
			_, err := cm.Listen(tb.Context(), "x:1", cm.Config{Device: nw.Device(0)})
			require.NoError(tb, err)
		}, []string{"1 handles", "1 x cm.Listener created at"}},
		{"resolved", func(tb testing.TB, nw *goverbstest.Network) {
			_, err := cm.Resolve(tb.Context(), "x:1", cm.Config{Device: nw.Device(0)})
			require.NoError(tb, err)
		}, []string{"1 handles", "1 x cm.ID created at"}},
		{"of a closed NIC", func(tb testing.TB, nw *goverbstest.Network) {
			vctx, err := nw.Device(0).Open()
			require.NoError(tb, err)
			for range 2 {
				_, err = vctx.AllocPD()
				require.NoError(tb, err)
			}
			require.NoError(tb, nw.NICs[0].Close())
		}, []string{"3 handles", "2 x PD created at", "1 x Context created at"}},
		{"of a NIC in verbs.Devices", func(tb testing.TB, nw *goverbstest.Network) {
			registered := goverbstest.New(tb, goverbstest.Options{NICs: 1, Register: true}).Device(0)
			dev, err := verbs.DeviceByName(registered.Name())
			require.NoError(tb, err)
			_, err = dev.Open()
			require.NoError(tb, err)
		}, []string{"1 handles"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // the grace period takes no real time
				text := judge(t, func(tb testing.TB) {
					c.leak(tb, goverbstest.New(tb, goverbstest.Options{NoCapture: true}))
				}).error(t)
				for _, part := range c.want {
					require.Contains(t, text, part)
				}
			})
		})
	}
}

// TestLeakedGoroutines: a goroutine started by the test, directly or indirectly, is reported with
// its stack.
func TestLeakedGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := make(chan struct{})
		text := judge(t, func(tb testing.TB) {
			goverbstest.New(tb, goverbstest.Options{})
			go waitFor(stop)
			var wg sync.WaitGroup
			wg.Go(func() { waitFor(stop) })
			go func() {
				for range 2 {
					go alsoWaitFor(stop)
				}
			}()
		}).error(t)
		require.Contains(t, text, "4 goroutines of the test still run:\n")
		require.Contains(t, text, "1 x github.com/goverbs/goverbs/goverbstest_test.waitFor+")
		require.Contains(t, text, "2 x github.com/goverbs/goverbs/goverbstest_test.alsoWaitFor+")
		require.Contains(t, text, "sync.(*WaitGroup).Go.func1")
		require.Contains(t, text, "leak_test.go:")
		close(stop)
	})
}

// TestForeignGoroutines: goroutines of other tests, and those that may stay, are not reported.
func TestForeignGoroutines(t *testing.T) {
	stop := make(chan struct{})
	defer close(stop)
	go waitFor(stop) // before New
	got := judge(t, func(tb testing.TB) {
		goverbstest.New(tb, goverbstest.Options{MayStay: func(stack string) bool {
			return strings.Contains(stack, "goverbstest_test.alsoWaitFor")
		}})
		go alsoWaitFor(stop)
		other := judge(t, func(tb testing.TB) { // a concurrent test
			goverbstest.New(tb, goverbstest.Options{})
		})
		require.Empty(t, other.errors)
	})
	require.Empty(t, got.errors)
	go waitFor(stop) // after the end
}

// TestGoroutinesOfNICs: a NIC may start its own goroutine in a call from another test, whose label
// the goroutine then has.
func TestGoroutinesOfNICs(t *testing.T) {
	got := judge(t, func(tb testing.TB) {
		nw := goverbstest.New(tb, goverbstest.Options{})
		client, server := connect(tb, nw)
		big, err := client.PD().AllocMR(1<<20, 0) // more than the network holds
		require.NoError(tb, err)
		nw.Links()[0].Stall()
		part := judge(t, func(tb testing.TB) {
			goverbstest.New(tb, goverbstest.Options{})
			ctx, cancel := context.WithTimeout(tb.Context(), time.Millisecond)
			defer cancel()
			_, err := client.Do(ctx,
				verbs.Send(verbs.SGE{Addr: big.Addr(), Length: uint32(big.Len()), LKey: big.LKey()}))
			require.ErrorIs(tb, err, context.DeadlineExceeded)
		})
		require.Empty(tb, part.errors)
		nw.Links()[0].Cut()
		require.NoError(tb, big.Close())
		closeAll(tb, client, server)
	})
	require.Empty(t, got.errors)
}

// TestSharedContext: a goroutine that waits for events of the context shared by all users of a
// device ends with the device.
func TestSharedContext(t *testing.T) {
	got := judge(t, func(tb testing.TB) {
		vctx, err := goverbstest.New(tb, goverbstest.Options{}).Device(0).SharedContext()
		require.NoError(tb, err)
		go func() { _, _ = vctx.WaitEvent(context.Background()) }()
	})
	require.Empty(t, got.errors)
}

//go:noinline
func waitFor(stop <-chan struct{}) { <-stop }

//go:noinline
func alsoWaitFor(stop <-chan struct{}) { <-stop }

// TestSeveralNetworks: several networks in a test, and concurrent tests, are checked for leaks
// separately.
func TestSeveralNetworks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var open *verbs.Context
		got := judge(t, func(tb testing.TB) {
			a := goverbstest.New(tb, goverbstest.Options{})
			b := goverbstest.New(tb, goverbstest.Options{NICs: 3})
			require.Len(tb, b.NICs, 3)
			var err error
			open, err = a.Device(0).Open()
			require.NoError(tb, err)
			clean := judge(t, func(tb testing.TB) { exchange(tb, goverbstest.New(tb, goverbstest.Options{}), "inner") })
			require.Empty(t, clean.errors)
			exchange(tb, b, "b")
		})
		require.Contains(t, got.error(t), "1 handles were not closed")
		require.NoError(t, open.Close(), "it has been closed")
	})
}

// TestPair: a pair is closed automatically, including a NIC connected to itself, and a pair that
// the test closed.
func TestPair(t *testing.T) {
	for n := 1; n <= 3; n++ {
		got := judge(t, func(tb testing.TB) {
			nw := goverbstest.New(tb, goverbstest.Options{NICs: n})
			a, b := nw.Pair(tb, cm.EndpointConfig{Memory: 8}, cm.EndpointConfig{})
			require.Equal(tb, nw.Device(min(1, n-1)), a.Context().Device())
			require.Equal(tb, nw.Device(0), b.Context().Device())
			require.NotNil(tb, a.MR())
			send(tb, a, b, "there")
			send(tb, b, a, "back")
			closeAll(tb, a)
		})
		require.Empty(t, got.errors)
	}
}

// TestPairFails: if a pair cannot be created, the test reports why at once, and nothing is left
// behind.
func TestPairFails(t *testing.T) {
	for _, c := range []struct{ dial, accept int }{{-1, 0}, {0, -1}} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			text := judge(t, func(tb testing.TB) {
				goverbstest.New(tb, goverbstest.Options{}).Pair(tb, cm.EndpointConfig{Memory: c.dial},
					cm.EndpointConfig{Memory: c.accept})
			}).error(t)
			require.Contains(t, text, "goverbstest: Pair: ")
			require.Contains(t, text, "memory of -1")
			require.Less(t, time.Since(began), time.Second)
		})
	}
}

func TestInvalidOptions(t *testing.T) {
	require.Equal(t, "goverbstest: Options.NICs: -1 is not a number of NICs",
		judge(t, func(tb testing.TB) { goverbstest.New(tb, goverbstest.Options{NICs: -1}) }).error(t))
	var opts goverbstest.Options
	opts.Config.Name = "one"
	require.Contains(t, judge(t, func(tb testing.TB) { goverbstest.New(tb, opts) }).error(t),
		`goverbstest: NIC 1: usiw: Config.Name: "one" is in use`)
	opts.NICs = 1
	require.Empty(t, judge(t, func(tb testing.TB) { goverbstest.New(tb, opts) }).errors)
}
