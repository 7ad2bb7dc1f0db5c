// SPDX-License-Identifier: BSD-3-Clause

package rping

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// infoSize is the size in bytes of every rping message. The client's messages hold a bufferInfo.
// The server's hold zeros; their arrival alone lets the client proceed.
const infoSize = 16

// bufferInfo tells the peer where a buffer is.
type bufferInfo struct {
	addr uint64
	rkey uint32
	size uint32 // bytes
}

// put encodes i in big-endian order.
func (i bufferInfo) put(b []byte) {
	binary.BigEndian.PutUint64(b, i.addr)
	binary.BigEndian.PutUint32(b[8:], i.rkey)
	binary.BigEndian.PutUint32(b[12:], i.size)
}

func parseInfo(b []byte) bufferInfo {
	be := binary.BigEndian
	return bufferInfo{addr: be.Uint64(b), rkey: be.Uint32(b[8:]), size: be.Uint32(b[12:])}
}

func (i bufferInfo) String() string {
	return fmt.Sprintf("addr %#x rkey %#x size %d", i.addr, i.rkey, i.size)
}

// The characters that follow the number in a ping. Each ping starts one character further on.
const firstChar, lastChar = 'A', 'z'

// fillPing fills b with ping n, counted from 0: a NUL-terminated string that occupies all of b.
func fillPing(b []byte, n int) {
	const span = lastChar - firstChar + 1
	text := copy(b, fmt.Sprintf("rdma-ping-%d: ", n))
	for i := range b[text:] {
		b[text+i] = byte(firstChar + (n+i)%span)
	}
	b[len(b)-1] = 0
}

// pingText returns the string in b, without the terminating NUL.
func pingText(b []byte) []byte {
	if end := bytes.IndexByte(b, 0); end >= 0 {
		return b[:end]
	}
	return b
}
