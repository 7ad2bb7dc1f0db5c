// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package uverbs

import "runtime"

// A Doorbell tells the driver of a QP to look at its send queue: the command to post, with no
// requests.
type Doorbell struct {
	fd      int
	command postSend
	badWR   uint32 // the response
	pin     runtime.Pinner
}

type postSend struct { // struct ib_uverbs_post_send
	answered
	handle, count, elements, size uint32
}

// sizeSendWR is sizeof(struct ib_uverbs_send_wr). The kernel refuses a command to post that names a
// smaller size.
const sizeSendWR = 56

// NewDoorbell makes the doorbell of a QP. Close releases it.
func NewDoorbell(fd int, qp uint32) *Doorbell {
	d := &Doorbell{fd: fd, command: postSend{handle: qp, size: sizeSendWR}}
	d.pin.Pin(d)
	fill(&d.command.answered, cmdPostSend, &d.command, &d.badWR)
	return d
}

// Ring is one system call. The driver may do the work of the queue in it. It allocates nothing.
func (d *Doorbell) Ring() error { return write(d.fd, bytesOf(&d.command)) }

// Close must be called once, after the last Ring has returned.
func (d *Doorbell) Close() { d.pin.Unpin() }
