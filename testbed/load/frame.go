// SPDX-License-Identifier: BSD-3-Clause

package load

import (
	"encoding/binary"
	"fmt"
)

// A client's request carries a Wish as private data, an acceptance the server's region. Messages
// begin with a header of headLen bytes, whose first byte is the kind.

// Wish is what a client requests of the server.
type Wish uint8

const (
	WishSRQ    Wish = 1 << iota // receive from a shared receive queue, if the device has any
	WishRefuse                  // refuse the connection
)

const (
	wishMagic  = 0xa7
	refusalMsg = "refused as wished"

	headLen = 16   // of a message
	slotLen = 4096 // largest message, header included
	slots   = 8    // messages that either side has memory for

	regionLen = 1 << 16 // of the server's region and of the client's memory
	wordLen   = 8       // at the start of the server's region, for atomics
)

const (
	kindEcho byte = 1 + iota // the server sends it back
	// the server reads what the header describes from the client and sends it: address 8 bytes, key
	// 4, length 2
	kindPull
	kindCut // the server closes the connection; the second byte says how
	kindImm // the server's response to an immediate, with the value
)

// region is a peer's memory.
type region struct {
	addr uint64
	rkey uint32
}

func (r region) marshal() []byte {
	b := binary.LittleEndian.AppendUint64([]byte{wishMagic}, r.addr)
	return binary.LittleEndian.AppendUint32(b, r.rkey)
}

// unmarshalRegion ignores trailing bytes: InfiniBand pads private data with zeros.
func unmarshalRegion(b []byte) (region, error) {
	if len(b) < 13 || b[0] != wishMagic {
		return region{}, fmt.Errorf("the acceptance has the private data %x", b)
	}
	return region{addr: binary.LittleEndian.Uint64(b[1:]), rkey: binary.LittleEndian.Uint32(b[9:])}, nil
}
