// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

// #include "cgo_verbs.h"
import "C"

import (
	"context"
	"errors"
	"slices"
	"sync"
	"syscall"

	"github.com/goverbs/goverbs/internal/eventfd"
)

// cgoChannel delivers the device's events, and those that the provider makes of completions of its own.
type cgoChannel struct {
	c    *C.struct_ibv_comp_channel
	file *eventfd.File

	mu     sync.Mutex // guards what follows; after that of a CQ
	cqs    int        // that send their events here
	closed bool
	own    []*cgoCQ // events that the provider made
}

// CreateCompChannel makes a completion channel.
func (c *cgoContext) CreateCompChannel() (ProviderCompChannel, error) {
	ch := new(cgoChannel)
	if err := callError("ibv_create_comp_channel", C.gv_create_comp_channel(c.c, &ch.c)); err != nil {
		return nil, err
	}
	var err error
	if ch.file, err = eventfd.New(int(ch.c.fd), c.dev.info.Name+" completions"); err != nil {
		C.ibv_destroy_comp_channel(ch.c)
		return nil, err
	}
	return ch, nil
}

// Wait takes the next event of a CQ that still exists.
func (ch *cgoChannel) Wait(ctx context.Context) (*CQ, error) {
	var owner *CQ
	var failed error
	err := ch.file.Wait(ctx, func() bool {
		for {
			if cq := ch.take(); cq != nil {
				owner = cq.owner
				return true
			}
			var cookie C.uint64_t
			switch rc := C.gv_cq_event(ch.c, &cookie); rc {
			case C.int(syscall.EAGAIN):
				return false
			case C.int(syscall.EINTR):
				continue
			case 0:
			default:
				failed = callError("ibv_get_cq_event", rc)
				return true
			}
			if cq, ok := byCookie(uint64(cookie)).(*cgoCQ); ok && cq.notified() {
				owner = cq.owner
				return true
			}
		}
	})
	if err == nil {
		err = failed
	}
	return owner, err
}

// post adds an event that the provider made.
func (ch *cgoChannel) post(cq *cgoCQ) {
	ch.mu.Lock()
	ch.own = append(ch.own, cq)
	ch.mu.Unlock()
	ch.file.Wake()
}

func (ch *cgoChannel) take() *cgoCQ {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if len(ch.own) == 0 {
		return nil
	}
	cq := ch.own[0]
	ch.own = ch.own[1:]
	return cq
}

// forget drops the events of a CQ.
func (ch *cgoChannel) forget(cq *cgoCQ) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.own = slices.DeleteFunc(ch.own, func(o *cgoCQ) bool { return o == cq })
}

// Close ends every Wait and destroys the channel: at once, or with its last CQ, because the library keeps a channel that
// CQs use, and the handle of a CQ closes the CQ's own channel first to end its waits.
func (ch *cgoChannel) Close() error {
	err := ch.file.Close()
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.closed = true
	return errors.Join(err, ch.destroyUnused())
}

func (ch *cgoChannel) retain() {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.cqs++
}

func (ch *cgoChannel) release() error {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.cqs--
	return ch.destroyUnused()
}

func (ch *cgoChannel) destroyUnused() error {
	if !ch.closed || ch.cqs > 0 {
		return nil
	}
	return callError("ibv_destroy_comp_channel", C.gv_result(C.ibv_destroy_comp_channel(ch.c))) // 0 or an errno
}
