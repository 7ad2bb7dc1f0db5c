// SPDX-License-Identifier: BSD-3-Clause

package rdmap

import (
	"encoding/binary"
	"io"
)

// ReadRequestLen is the length of the Read Request header (RFC 5040 section 4.4).
const ReadRequestLen = 28

// ReadRequest is the header of an RDMA Read Request (RFC 5040 section 4.4).
type ReadRequest struct {
	// SinkSTag identifies the requester's buffer, which receives the data.
	SinkSTag uint32
	// SinkTO is the offset in that buffer.
	SinkTO uint64
	// Size is the number of bytes to read (RDMARDSZ).
	Size uint32
	// SrcSTag identifies the responder's buffer, which contains the data.
	SrcSTag uint32
	// SrcTO is the offset in that buffer.
	SrcTO uint64
}

// Put encodes the header into the first ReadRequestLen bytes of b. It panics if b is shorter.
func (r ReadRequest) Put(b []byte) {
	_ = b[ReadRequestLen-1]
	binary.BigEndian.PutUint32(b, r.SinkSTag)
	binary.BigEndian.PutUint64(b[4:], r.SinkTO)
	binary.BigEndian.PutUint32(b[12:], r.Size)
	binary.BigEndian.PutUint32(b[16:], r.SrcSTag)
	binary.BigEndian.PutUint64(b[20:], r.SrcTO)
}

// ParseReadRequest decodes the first ReadRequestLen bytes of b. If b is shorter the error is
// io.ErrUnexpectedEOF.
func ParseReadRequest(b []byte) (ReadRequest, error) {
	if len(b) < ReadRequestLen {
		return ReadRequest{}, io.ErrUnexpectedEOF
	}
	return ReadRequest{
		SinkSTag: binary.BigEndian.Uint32(b),
		SinkTO:   binary.BigEndian.Uint64(b[4:]),
		Size:     binary.BigEndian.Uint32(b[12:]),
		SrcSTag:  binary.BigEndian.Uint32(b[16:]),
		SrcTO:    binary.BigEndian.Uint64(b[20:]),
	}, nil
}
