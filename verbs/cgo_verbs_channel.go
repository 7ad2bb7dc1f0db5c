// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

// #include "cgo_verbs.h"
import "C"

import (
	"context"
	"errors"
	"sync"
	"syscall"

	"github.com/goverbs/goverbs/internal/eventfd"
)

type cgoChannel struct {
	c    *C.struct_ibv_comp_channel
	file *eventfd.File

	mu     sync.Mutex // guards what follows
	cqs    int        // that send their events here
	closed bool
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
			if cq, ok := byCookie(uint64(cookie)).(*cgoCQ); ok {
				owner = cq.owner
				return true
			}
		}
	})
	return owner, errors.Join(err, failed)
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
