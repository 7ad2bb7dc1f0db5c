// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package uverbs

import "runtime"

// A Doorbell makes the driver of a QP process its send queue: it is the command to post, without
// any requests.
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

// sizeSendWR is sizeof(struct ib_uverbs_send_wr). The kernel refuses a post command with a smaller
// size.
const sizeSendWR = 56

// NewDoorbell returns the doorbell of a QP. The caller must Close it.
func NewDoorbell(fd int, qp uint32) *Doorbell {
	d := &Doorbell{fd: fd, command: postSend{handle: qp, size: sizeSendWR}}
	d.pin.Pin(d)
	fill(&d.command.answered, cmdPostSend, &d.command, &d.badWR)
	return d
}

// Ring makes one system call, in which the driver may process the queue. It does not allocate.
func (d *Doorbell) Ring() error { return write(d.fd, bytesOf(&d.command)) }

// Close releases the doorbell. It must be called once, after the last Ring has returned.
func (d *Doorbell) Close() { d.pin.Unpin() }
