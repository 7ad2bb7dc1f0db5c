// SPDX-License-Identifier: BSD-3-Clause

package wire

import "encoding/binary"

// Kind is the kind of a message.
type Kind uint8

const (
	Data     Kind = 1 + iota // a Send; the payload follows and is copied into the receive
	Placed                   // a Send; its payload was written into the receive beforehand
	WriteImm                 // the immediate of the preceding Write
	TooLong                  // a Send longer than the receive; both sides fail
	Credit                   // adverts; Value holds the access rights of the QP (verbs.AccessFlags)
	Ack                      // only the Taken count
	Atomic                   // an emulated atomic, see AtomicRequest
	Answer                   // answers the oldest pending Atomic; Value is the original value
	Bye                      // the sender's last message
	Part                     // the payload is a fragment of a Send; the rest follows in further Parts and a final Data
	// the sender's last message: the message after the first Taken ones could not be received;
	// Status is the reason
	Refused
	kindEnd
)

// Flags of a message.
const (
	FlagImm       = 1 << 0 // Imm holds an immediate: Data, Placed, WriteImm (always)
	FlagSolicited = 1 << 1 // completing the receive is a solicited event: Data, Placed, WriteImm
	FlagAsk       = 1 << 2 // requests an Ack if nothing else is about to be sent
	FlagAck       = 1 << 3 // answers a FlagAsk
)

// flagsOf lists the flags that each kind allows.
var flagsOf = [kindEnd]uint8{
	Data:     FlagImm | FlagSolicited | FlagAsk | FlagAck,
	Placed:   FlagImm | FlagSolicited | FlagAsk | FlagAck,
	WriteImm: FlagImm | FlagSolicited | FlagAsk | FlagAck,
	TooLong:  FlagAck,
	Credit:   FlagAsk | FlagAck,
	Ack:      FlagAck,
	Atomic:   FlagAck,
	Answer:   FlagAck,
	Bye:      FlagAck,
	Part:     FlagAsk | FlagAck,
	Refused:  FlagAck,
}

// HeaderLen is the length of a header in bytes.
const HeaderLen = 32

// MaxAdverts is the maximum number of adverts in a message, MaxTold the maximum number of
// advertised receives that the peer has not used.
const (
	MaxAdverts = 64
	MaxTold    = 4096
)

// Header starts every message after the hello:
//
//	0  kind   1  flags   2  adverts   3  status   4  immediate
//	8  value   16  taken   24  number of the first advert
type Header struct {
	Kind    Kind
	Flags   uint8
	Adverts uint8  // number of adverts that follow
	Status  uint8  // Answer, Refused: an ibv_wc_status; otherwise 0
	Imm     uint32 // with FlagImm; otherwise 0
	// Data, Part: length of the payload; Placed, WriteImm, TooLong: length of the message, in bytes
	// and below 1<<32; other kinds: see Kind, or 0
	Value uint64
	Taken uint64 // messages that the sender has taken since the hello; confirms all of them
	First uint64 // number of this message's first advert; adverts are counted from 0
}

// Append appends the encoded header to b.
func (h *Header) Append(b []byte) []byte {
	b = append(b, byte(h.Kind), h.Flags, h.Adverts, h.Status)
	b = binary.BigEndian.AppendUint32(b, h.Imm)
	b = binary.BigEndian.AppendUint64(b, h.Value)
	b = binary.BigEndian.AppendUint64(b, h.Taken)
	return binary.BigEndian.AppendUint64(b, h.First)
}

// Ask sets FlagAsk in an encoded header, whose kind must allow it.
func Ask(header []byte) { header[1] |= FlagAsk }

// ParseHeader decodes the header of a message and returns the bytes after it.
func ParseHeader(b []byte) (h Header, rest []byte, err error) {
	if len(b) < HeaderLen {
		return Header{}, nil, bad("header", "length", uint64(len(b)))
	}
	h = Header{Kind: Kind(b[0]), Flags: b[1], Adverts: b[2], Status: b[3], Imm: binary.BigEndian.Uint32(b[4:]),
		Value: binary.BigEndian.Uint64(b[8:]), Taken: binary.BigEndian.Uint64(b[16:]),
		First: binary.BigEndian.Uint64(b[24:])}
	sized := h.Kind >= Data && h.Kind <= Credit || h.Kind == Part
	switch {
	case h.Kind == 0 || h.Kind >= kindEnd:
		err = bad("header", "kind", uint64(h.Kind))
	case h.Flags&^flagsOf[h.Kind] != 0, h.Kind == WriteImm && h.Flags&FlagImm == 0:
		err = bad("header", "flags", uint64(h.Flags))
	case h.Adverts > MaxAdverts:
		err = bad("header", "adverts", uint64(h.Adverts))
	case h.Status != 0 && h.Kind != Answer && h.Kind != Refused, h.Status == 0 && h.Kind == Refused:
		err = bad("header", "status", uint64(h.Status))
	case h.Imm != 0 && h.Flags&FlagImm == 0:
		err = bad("header", "immediate", uint64(h.Imm))
	case sized && h.Value >= 1<<32, !sized && h.Kind != Answer && h.Value != 0, h.Kind == Answer && h.Status != 0 &&
		h.Value != 0:
		err = bad("header", "value", h.Value)
	}
	if err != nil {
		return Header{}, nil, err
	}
	return h, b[HeaderLen:], nil
}
