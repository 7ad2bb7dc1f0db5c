// SPDX-License-Identifier: BSD-3-Clause

package rsocket

import "encoding/binary"

// The protocol of librdmacm/rsocket.c (rdma-core).
const (
	version = 1

	flagBigEndian = 1 << 0 // RS_CONN_FLAG_NET: the peer must write big-endian into this side's tables
	flagMappings  = 1 << 1 // RS_CONN_FLAG_IOMAP: an area for mappings follows the table

	privateLen = 40 // struct rs_conn_data
	entryLen   = 16 // struct rs_sge
	mappingLen = 24 // struct rs_iomap
	messageLen = 4

	// A table has two entries: while the peer fills one half of the buffer, the other can be
	// published.
	tableEntries = 2

	// maxMessage is the largest message that is sent. The wire format has 29 bits for its length.
	// rsocket.c sends up to 65,536 bytes and accepts more.
	maxMessage = 1 << 20
)

// op is the operation of a message, in its bits 31 to 29.
type op uint32

const (
	opData    op = 0 // RS_OP_DATA: a number of bytes
	opGrant   op = 4 // RS_OP_SGL: the limit up to which the receiver may send; an entry may have been written before it
	opMapping op = 6 // RS_OP_IOMAP_SGL: the index of a mapping that was written
	opControl op = 7 // RS_OP_CTRL
)

// The data of opControl.
const (
	ctrlDisconnect = 0
	ctrlKeepalive  = 1
	ctrlShutdown   = 2
)

// message notifies the peer of what was done. It is the immediate of a Write, or a Send of 4 bytes.
type message uint32

const dataBits = 29

func newMessage(o op, data uint32) message {
	return message(uint32(o)<<dataBits | data&(1<<dataBits-1))
}

func (m message) op() op       { return op(m >> dataBits) }
func (m message) data() uint32 { return uint32(m) & (1<<dataBits - 1) }

// entry is a part of a receive buffer that its owner published.
type entry struct {
	addr   uint64
	key    uint32
	length uint32
}

// check refuses an entry that cannot be written to.
func (e entry) check() error {
	if e.length == 0 {
		return violation(BadMemory, 0, 1)
	}
	if e.addr+uint64(e.length) < e.addr {
		return violation(BadMemory, e.addr, ^uint64(0)-uint64(e.length))
	}
	return nil
}

// put writes the entry as struct rs_sge.
func (e entry) put(b []byte, order binary.ByteOrder) {
	order.PutUint64(b, e.addr)
	order.PutUint32(b[8:], e.key)
	order.PutUint32(b[12:], e.length)
}

// connData is the private data that both sides exchange when they connect (struct rs_conn_data).
type connData struct {
	bigEndian bool // the byte order of tables and of 4-byte Sends
	mappings  int  // entries of the area for mappings
	hasArea   bool // flagMappings
	credits   uint16
	table     entry // length counts entries
	buffer    entry // the first part of the receive buffer
}

// order returns the byte order of what is written to this side.
func (d *connData) order() binary.ByteOrder {
	if d.bigEndian {
		return binary.BigEndian
	}
	return binary.LittleEndian
}

// append encodes the private data. Its fields are always in network byte order.
func (d *connData) append(b []byte) []byte {
	var flags byte = flagMappings
	if d.bigEndian {
		flags |= flagBigEndian
	}
	b = append(b, version, flags)
	b = binary.BigEndian.AppendUint16(b, d.credits)
	b = append(b, 0, 0, 0, scaled(d.mappings))
	for _, e := range []entry{d.table, d.buffer} {
		b = binary.BigEndian.AppendUint64(b, e.addr)
		b = binary.BigEndian.AppendUint32(b, e.key)
		b = binary.BigEndian.AppendUint32(b, e.length)
	}
	return b
}

// scaled encodes the number of mappings in one byte: up to 128 directly, otherwise in units of 256
// with the highest bit set (rs_value_to_scale).
func scaled(n int) byte {
	if n <= 128 {
		return byte(n)
	}
	return 0x80 | byte(n>>8)
}

func unscaled(v byte) int {
	if v <= 128 {
		return int(v)
	}
	return int(v&0x7f) << 8
}

// parseConnData decodes and checks the peer's private data. Trailing bytes are ignored: InfiniBand
// pads with zeros.
func parseConnData(b []byte) (d connData, err error) {
	if len(b) < privateLen {
		return d, violation(ShortPrivateData, uint64(len(b)), privateLen)
	}
	if b[0] != version {
		return d, violation(WrongVersion, uint64(b[0]), version)
	}
	d.bigEndian = b[1]&flagBigEndian != 0
	d.hasArea = b[1]&flagMappings != 0
	d.credits = binary.BigEndian.Uint16(b[2:])
	if d.hasArea {
		d.mappings = unscaled(b[7])
	}
	d.table = parseEntry(b[8:])
	d.buffer = parseEntry(b[24:])
	if d.credits == 0 {
		return d, violation(NoCredits, 0, 1)
	}
	if d.table.length < tableEntries {
		return d, violation(ShortTable, uint64(d.table.length), tableEntries)
	}
	if size := uint64(d.table.length)*entryLen + uint64(d.mappings)*mappingLen; d.table.addr+size < d.table.addr {
		return d, violation(BadMemory, d.table.addr, ^uint64(0)-size)
	}
	return d, d.buffer.check()
}

// parseEntry decodes an entry of the private data.
func parseEntry(b []byte) entry {
	return entry{addr: binary.BigEndian.Uint64(b), key: binary.BigEndian.Uint32(b[8:]),
		length: binary.BigEndian.Uint32(b[12:])}
}
