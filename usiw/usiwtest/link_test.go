// SPDX-License-Identifier: BSD-3-Clause

package usiwtest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/usiw/usiwtest"
)

// TestLinkBothWays: the faults of a link affect both directions.
func TestLinkBothWays(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b, link := ends(t, usiwtest.NewWire())
		both := [][2]closeWriter{{a, b}, {b, a}}
		link.Split(2)
		for _, ends := range both {
			write(t, ends[0], "abc")
			got, err := once(ends[1])
			require.NoError(t, err)
			require.Equal(t, "ab", got)
		}
		link.Split(0)
		link.Stall()
		done := make(chan string, 2)
		for _, ends := range both {
			go func() {
				got, _ := once(ends[1])
				done <- got
			}()
		}
		synctest.Wait()
		require.Empty(t, done)
		link.Resume()
		require.Equal(t, "c", <-done)
		require.Equal(t, "c", <-done)

		link.Delay(time.Second)
		for _, ends := range both {
			began := time.Now()
			write(t, ends[0], "d")
			require.Equal(t, "d", read(t, ends[1], 1))
			require.Equal(t, time.Second, time.Since(began))
		}
	})
}
