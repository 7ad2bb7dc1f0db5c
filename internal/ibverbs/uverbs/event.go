// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package uverbs

import (
	"io"

	"golang.org/x/sys/unix"
)

// AsyncEvent is an asynchronous event (struct ib_uverbs_async_event_desc).
type AsyncEvent struct {
	Element uint64 // the cookie of an object, or a port number
	Type    uint32 // enum ib_event_type, as enum ibv_event_type
	_       uint32
}

// ReadAsync reads an event from the file descriptor for asynchronous events, ibv_context.async_fd.
// On a nonblocking descriptor it returns EAGAIN if no event is pending.
func ReadAsync(fd int) (AsyncEvent, error) {
	var ev AsyncEvent
	err := read(fd, bytesOf(&ev))
	return ev, err
}

// ReadComp reads an event from the file descriptor of a completion channel and returns the cookie
// of its CQ.
func ReadComp(fd int) (cookie uint64, err error) {
	err = read(fd, bytesOf(&cookie)) // struct ib_uverbs_comp_event_desc
	return cookie, err
}

func read(fd int, event []byte) error {
	for {
		n, err := unix.Read(fd, event)
		switch {
		case err == unix.EINTR:
			continue
		case err == nil && n != len(event):
			return io.ErrUnexpectedEOF
		}
		return err
	}
}
