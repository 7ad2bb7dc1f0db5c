// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package uverbs

import (
	"io"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Command numbers, enum ib_uverbs_write_cmds.
const (
	cmdCreateCQ   = 18
	cmdDestroyCQ  = 20
	cmdCreateQP   = 24
	cmdQueryQP    = 25
	cmdModifyQP   = 26
	cmdDestroyQP  = 27
	cmdPostSend   = 28
	cmdCreateSRQ  = 32
	cmdModifySRQ  = 33
	cmdQuerySRQ   = 34
	cmdDestroySRQ = 35
)

// header begins every command (struct ib_uverbs_cmd_hdr). The lengths, of the command including the
// header and of the response, are in units of 4 bytes.
type header struct {
	command           uint32
	inWords, outWords uint16
}

// answered begins every command that has a response. The kernel writes it to the address response.
type answered struct {
	header
	response uint64
}

// bytesOf returns the memory of a command, which must have neither pointers nor padding.
func bytesOf[T any](p *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(p)), unsafe.Sizeof(*p))
}

func words[T any]() uint16 {
	var t T
	return uint16(unsafe.Sizeof(t) / 4)
}

// fill sets the header of the command that begins with a, and the address of its response. The
// caller pins the response (runtime.Pinner) for as long as the command may be sent.
func fill[C, R any](a *answered, command uint32, _ *C, resp *R) {
	a.header = header{command, words[C](), words[R]()}
	a.response = uint64(uintptr(unsafe.Pointer(resp)))
}

// ask sends the command that begins with a and reads the response into resp.
func ask[C, R any](fd int, command uint32, c *C, a *answered, resp *R) error {
	var pin runtime.Pinner
	pin.Pin(resp)
	defer pin.Unpin()
	fill(a, command, c, resp)
	return write(fd, bytesOf(c))
}

// tell sends the command that begins with h and has no response.
func tell[C any](fd int, command uint32, c *C, h *header) error {
	*h = header{command: command, inWords: words[C]()}
	return write(fd, bytesOf(c))
}

// write sends a command as a single write.
func write(fd int, command []byte) error {
	for {
		n, err := unix.Write(fd, command)
		switch {
		case err == unix.EINTR:
			continue
		case err == nil && n != len(command):
			return io.ErrShortWrite
		}
		return err
	}
}
