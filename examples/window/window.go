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

// A window's memory begins with a word for the fence, which is used only on rank 0, followed by the
// program's data.
const fenceWord = 8

// window is memory spread over all ranks, in which all ranks put data and perform atomics, as in
// MPI (MPI 4.0 chapter 12). Only one goroutine of a rank may use it.
type window struct {
	rank    int
	local   []byte // this rank's part
	pd      *verbs.PD
	mr      *verbs.MR
	ln      *cm.Listener
	targets []*target // by rank
	fences  uint64

	stop   context.CancelFunc
	served sync.WaitGroup
}

// target is the part of another rank, or of this one: all are accessed over a connection.
type target struct {
	ep      *cm.Endpoint
	memory  verbs.Remote
	sink    verbs.SGE      // for responses
	answer  *atomic.Uint64 // the contents of sink
	staging int            // offset in ep's memory of data to put
}

const stagingSize = 4096 // the maximum size of a put

// listenWindow creates a rank's part, of size bytes. join connects the parts of all ranks to a
// window.
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
				return // close was called, or the dialling rank gets the error
			}
			w.served.Go(func() {
				defer ep.Close()
				_, _ = ep.Recv(ctx, nil) // returns when the rank disconnects
			})
		}
	})
	return w, nil
}

// join connects to the parts of all ranks, which listen at these addresses.
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

// put stores data at an offset of a rank's part (MPI_Put). It is visible there after the next
// fence.
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

// fetchAndAdd adds to a word of a rank's part and returns its previous value (MPI_Fetch_and_op with
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

// fence waits until everything that any rank put before its fence has arrived (MPI_Win_fence). On
// each connection it reads a word: on every fabric, the response follows earlier puts. Then the
// ranks synchronize on a word of rank 0.
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

// word returns a number of this rank's part, in host byte order.
func (w *window) word(off int) uint64 {
	n, err := w.mr.Word(fenceWord + off)
	if err != nil {
		return 0
	}
	return n.Load()
}

// number encodes a number for put.
func number(v uint64) []byte { return binary.NativeEndian.AppendUint64(nil, v) }
