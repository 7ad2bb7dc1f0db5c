// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/verbs"
)

// The memory of a window: first a word for the fence, which only that of rank 0 uses, then what the
// program has.
const fenceWord = 8

// window is memory of every rank that all ranks put data into and do atomics on, as MPI has (MPI
// 4.0 chapter 12). One goroutine of a rank uses it.
type window struct {
	rank    int
	local   []byte // the part of this rank
	pd      *verbs.PD
	mr      *verbs.MR
	ln      *cm.Listener
	targets []*target // by rank
	fences  uint64

	stop   context.CancelFunc
	served sync.WaitGroup
}

// target is the part of another rank, or of this one: they are all reached over a connection.
type target struct {
	ep      *cm.Endpoint
	memory  verbs.Remote
	sink    verbs.SGE      // for answers
	answer  *atomic.Uint64 // what is there
	staging int            // where data to put begin in the memory of ep
}

const stagingSize = 4096 // the most that one put takes

// listenWindow makes the part of a rank, of so many bytes. join makes the window of the parts of
// all ranks.
func listenWindow(ctx context.Context, dev *verbs.Device, listen string, rank, size int) (w *window, err error) {
	w = &window{rank: rank}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	if w.ln, err = cm.Listen(ctx, listen, cm.Config{Device: dev}); err != nil {
		return w, err
	}
	if w.pd, err = w.ln.Context().AllocPD(); err != nil {
		return w, err
	}
	w.mr, err = w.pd.AllocMR(fenceWord+size,
		verbs.AccessLocalWrite|verbs.AccessRemoteWrite|verbs.AccessRemoteRead|verbs.AccessRemoteAtomic)
	if err != nil {
		return w, err
	}
	w.local = w.mr.Bytes()[fenceWord:]
	ctx, w.stop = context.WithCancel(ctx)
	w.served.Go(func() {
		for {
			ep, err := w.ln.AcceptEndpoint(ctx, cm.EndpointConfig{PD: w.pd, MR: w.mr, Offer: true})
			if err != nil {
				return // close has been called; or the rank that has dialled finds the reason
			}
			w.served.Go(func() {
				defer ep.Close()
				_, _ = ep.Recv(ctx, nil) // returns when the rank disconnects
			})
		}
	})
	return w, nil
}

// join connects to the parts of all ranks, which have been made at these addresses.
func (w *window) join(ctx context.Context, dev *verbs.Device, addresses []string) error {
	for _, address := range addresses {
		t := &target{staging: 8}
		w.targets = append(w.targets, t)
		var err error
		if t.ep, err = cm.Dial(ctx, address, cm.Config{Device: dev},
			cm.EndpointConfig{Memory: 8 + stagingSize}); err != nil {
			return err
		}
		if t.memory, err = verbs.ParseRemote(t.ep.PrivateData()); err != nil {
			return err
		}
		if t.sink, err = t.ep.MR().SGE(0, 8); err != nil {
			return err
		}
		if t.answer, err = t.ep.MR().Word(0); err != nil {
			return err
		}
	}
	return nil
}

func (w *window) close() {
	for _, t := range w.targets {
		_ = t.ep.Close()
	}
	if w.stop != nil {
		w.stop()
	}
	w.served.Wait()
	_ = errors.Join(w.ln.Close(), w.mr.Close(), w.pd.Close())
}

// put stores data at an offset of a rank's part (MPI_Put). They are there after the next fence.
func (w *window) put(ctx context.Context, rank, off int, data []byte) error {
	t := w.targets[rank]
	to, err := t.memory.Slice(fenceWord+off, len(data))
	if err != nil {
		return err
	}
	from, err := t.ep.MR().SGE(t.staging, copy(t.ep.MR().Bytes()[t.staging:], data))
	if err != nil {
		return err
	}
	_, err = t.ep.Do(ctx, verbs.Write(to, from))
	return err
}

// fetchAndAdd adds to a word of a rank's part and returns what it was (MPI_Fetch_and_op with
// MPI_SUM).
func (w *window) fetchAndAdd(ctx context.Context, rank, off int, add uint64) (uint64, error) {
	return w.add(ctx, rank, fenceWord+off, add)
}

func (w *window) add(ctx context.Context, rank, at int, add uint64) (uint64, error) {
	t := w.targets[rank]
	word, err := t.memory.Slice(at, 8)
	if err != nil {
		return 0, err
	}
	_, err = t.ep.Do(ctx, verbs.FetchAdd(word, add, t.sink))
	return t.answer.Load(), err
}

// fence waits until what all ranks have put before their fence has arrived (MPI_Win_fence). Each
// connection is asked for an answer, which comes after what was put on it, whatever the fabric.
// Then the ranks meet at a word of rank 0.
func (w *window) fence(ctx context.Context) error {
	for _, t := range w.targets {
		word, err := t.memory.Slice(0, 8)
		if err != nil {
			return err
		}
		if _, err := t.ep.Do(ctx, verbs.Read(word, t.sink)); err != nil {
			return err
		}
	}
	w.fences++
	all := w.fences * uint64(len(w.targets))
	arrived, err := w.add(ctx, 0, 0, 1)
	arrived++
	for pause := 20 * time.Microsecond; err == nil && arrived < all; pause = min(2*pause, time.Millisecond) {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
		arrived, err = w.add(ctx, 0, 0, 0)
	}
	return err
}

// word is a number of this rank's part, in the order of the host.
func (w *window) word(off int) uint64 {
	n, err := w.mr.Word(fenceWord + off)
	if err != nil {
		return 0
	}
	return n.Load()
}

// number is one as put takes it.
func number(v uint64) []byte { return binary.NativeEndian.AppendUint64(nil, v) }
