// SPDX-License-Identifier: BSD-3-Clause

package dat_test

import (
	"errors"
	"maps"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/compat/dat"
	"github.com/goverbs/goverbs/verbs"
)

// EPs that share their EVDs connect, send, and are freed meanwhile, while one goroutine waits: each
// posted DTO has one event, in posting order, and none is lost when its EP is freed.
func TestSharedEVD(t *testing.T) {
	everywhere(t, func(t *testing.T, dev *verbs.Device, addr netip.Addr) {
		const eps, each = 4, 30
		a, b := newSide(t, dev, addr, options{qlen: 2 * eps * each}),
			newSide(t, dev, addr, options{qlen: 2 * eps * each})
		_, qual := b.listen()
		events := make(chan dat.DTOCompletion, eps*each)
		var reader sync.WaitGroup
		reader.Go(func() {
			defer close(events)
			for {
				ev, _, err := a.requests.Wait(t.Context(), dat.Infinite, 1)
				if errors.Is(err, dat.InvalidStateEVDUnwaitable) {
					return
				}
				if err != nil {
					t.Errorf("wait: %v", err)
					return
				}
				events <- ev.DTO
			}
		})
		posted := make(map[*dat.EP]uint64)
		for range eps {
			here, err := a.ia.CreateEP(a.pz, a.recv, a.requests, a.conn, dat.EPAttr{})
			require.NoError(t, err)
			there, err := b.ia.CreateEP(b.pz, b.recv, b.requests, b.conn, dat.EPAttr{})
			require.NoError(t, err)
			require.NoError(t, here.Connect(addr, qual, patience, nil))
			require.NoError(t, wait(t, b.conn, dat.ConnectionRequestEvent).CR.CR.Accept(there, nil))
			wait(t, a.conn, dat.ConnectionEstablished)
			wait(t, b.conn, dat.ConnectionEstablished)
			for i := range uint64(each) {
				require.NoError(t, there.PostRecv(nil, i, 0))
			}
			for i := range uint64(each) {
				require.NoError(t, here.PostSend(nil, i, 0))
			}
			posted[here] = each
			require.NoError(t, here.Free())
			wait(t, b.conn, dat.ConnectionDisconnected)
		}
		require.NoError(t, a.requests.SetUnwaitable())
		reader.Wait()
		require.NoError(t, a.requests.ClearUnwaitable())
		next := make(map[*dat.EP]uint64)
		count := func(d dat.DTOCompletion) {
			require.Equal(t, next[d.EP], d.Cookie)
			next[d.EP]++
		}
		for d := range events {
			count(d)
		}
		for {
			ev, err := a.requests.Dequeue()
			if errors.Is(err, dat.QueueEmpty) {
				break
			}
			require.NoError(t, err)
			count(ev.DTO)
		}
		require.True(t, maps.Equal(posted, next), "%v, not %v", next, posted)
	})
}

// Calls of every kind run concurrently, from independent goroutines, while the IA is closed: each
// returns, and any error is a DAT error.
func TestCloseBesideCalls(t *testing.T) {
	everywhere(t, func(t *testing.T, dev *verbs.Device, addr netip.Addr) {
		a, b := pair(t, dev, addr, options{attr: dat.EPAttr{RequestCompletionFlags: dat.CompletionUnsignalled}})
		segment, to := a.segment(0, 8), b.remote(0, 8)
		var calls sync.WaitGroup
		run := func(f func() error) {
			calls.Go(func() {
				for {
					err := f()
					var e *dat.Error
					if err != nil && !errors.As(err, &e) {
						t.Errorf("%v is no DAT error", err)
						return
					}
					if errors.Is(err, dat.InvalidHandle) {
						return
					}
					runtime.Gosched()
				}
			})
		}
		taken := make(chan struct{}, 1)
		run(func() error { return a.ep.PostRDMAWrite(segment, 1, to, dat.CompletionUnsignalled) })
		run(func() error { return a.ep.PostRDMARead(segment, 1, to, 0) })
		run(func() error { return a.ep.PostRecv(segment, 1, 0) })
		run(func() error {
			_, _, err := a.requests.Wait(t.Context(), patience/1000, 1)
			if err == nil {
				select {
				case taken <- struct{}{}:
				default:
				}
			}
			return err
		})
		run(func() error { _, err := a.requests.Dequeue(); return err })
		run(func() error { _, _, _, err := a.ep.Status(); return err })
		for range 20 {
			select {
			case <-taken:
			case <-time.After(patience):
				require.Fail(t, "no event")
			}
		}
		require.NoError(t, a.ia.Close(dat.CloseAbrupt))
		calls.Wait()
		require.ErrorIs(t, a.ep.PostSend(nil, 1, 0), dat.InvalidHandle)
	})
}
