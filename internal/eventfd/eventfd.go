// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

// Package eventfd waits for a descriptor from which C code reads events, without blocking a thread
// in C: the descriptor is non-blocking, and Go's poller watches a duplicate of it.
package eventfd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/lifetime"
)

// A File waits for one descriptor. All methods may be called concurrently.
type File struct {
	f      *os.File
	rc     syscall.RawConn
	token  chan struct{} // held by the goroutine that reads
	closed chan struct{}
	naps   bool      // see NewNapping
	brief  bool      // the last event arrived within napTime; guarded by the token, as is gave
	gave   time.Time // when a napping goroutine last yielded

	mu    sync.Mutex // guards the following
	woken bool       // Wake or Close was called, and no goroutine has noticed yet
	bell  int        // of the napping goroutine, or noBell
}

// New makes fd non-blocking and returns a File that watches it. The caller still owns fd and closes
// it after Close.
func New(fd int, name string) (*File, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("%s: O_NONBLOCK: %w", name, err)
	}
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: F_DUPFD_CLOEXEC: %w", name, err)
	}
	e := &File{f: os.NewFile(uintptr(dup), name), token: make(chan struct{}, 1), closed: make(chan struct{}),
		bell: noBell}
	if e.rc, err = e.f.SyscallConn(); err != nil {
		return nil, errors.Join(err, e.f.Close())
	}
	// A descriptor that the poller rejects would block a thread, so report it here.
	if err := e.f.SetReadDeadline(time.Time{}); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: the descriptor cannot be waited for: %w", name, err), e.f.Close())
	}
	return e, nil
}

// NewNapping is New for a descriptor whose events may arrive a few microseconds apart.
func NewNapping(fd int, name string) (*File, error) {
	e, err := New(fd, name)
	if err == nil {
		e.naps = true
	}
	return e, err
}

// Wait calls try until it returns true, and between calls waits for the descriptor to become
// readable or for Wake. Only one goroutine at a time calls try, and none after Close has returned.
// The error is ctx.Err() when ctx is done and lifetime.ErrClosed when the File is closed.
func (e *File) Wait(ctx context.Context, try func() bool) error {
	select {
	case e.token <- struct{}{}:
	default:
		select {
		case e.token <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		case <-e.closed:
			return lifetime.ErrClosed
		}
	}
	defer func() { <-e.token }()
	if err := ctx.Err(); err != nil {
		return err
	}
	if ctx.Done() != nil {
		defer context.AfterFunc(ctx, e.Wake)()
	}
	var began time.Time
	if e.naps {
		began = time.Now()
	}
	look := func(fd uintptr) bool {
		if e.brief {
			e.brief = false
			e.nap(fd, began)
		}
		return try()
	}
	for {
		err := e.rc.Read(look)
		if err == nil {
			e.brief = e.naps && time.Since(began) < napTime
			return nil
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			select {
			case <-e.closed:
				// err is not os.ErrClosed but comes from an internal package of the standard
				// library
				return lifetime.ErrClosed
			default:
				return err
			}
		}
		if err := e.notice(); err != nil {
			return lifetime.ErrClosed
		}
		e.brief = false // there may be an event to find
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// Wake makes the waiting goroutine, or the next one, call try again.
func (e *File) Wake() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ring()
	// This fails only on a closed File, on which nothing waits.
	_ = e.f.SetReadDeadline(time.Unix(1, 0))
}

// notice lets goroutines wait again after a Wake.
func (e *File) notice() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.woken = false
	return e.f.SetReadDeadline(time.Time{})
}

// Close makes every Wait return. It must be called once.
func (e *File) Close() error {
	close(e.closed)
	e.mu.Lock()
	e.ring()
	e.mu.Unlock()
	return e.f.Close()
}
