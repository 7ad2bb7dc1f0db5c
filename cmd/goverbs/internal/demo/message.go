// SPDX-License-Identifier: BSD-3-Clause

package demo

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/cmd/goverbs/internal/output"
	"github.com/goverbs/goverbs/verbs"
)

// The messages between the processes of a demo. The connecting side introduces itself in the
// private data of its request, and the listening side describes its memory in the private data of
// its reply. Every step then begins and ends with a control message each way, as JSON in a Send.

const (
	magic   = 0x676f7664 // "govd"
	version = 3
)

// role is the role of a connecting process.
type role uint8

const (
	roleDriver role = 1 // runs the steps; there is one
	roleClient role = 2 // contends in the steps lock and counter
)

// hello is the private data of a request. All integers of private data are big-endian.
type hello struct {
	Magic   uint32
	Version uint8
	Role    role
	_       [2]uint8
	Nonce   uint32 // random, returned in the welcome
	Token   uint64 // from a client: the token of the driver's welcome
	Ops     uint32 // operations of the connecting device, a verbs.OpSet
}

// welcome is the private data of an acceptance. It has at most 48 bytes, so that it fits on every
// device, including those of package ibcompat.
type welcome struct {
	Magic     uint32
	Version   uint8
	BigEndian uint8 // 1 if the words are big-endian in memory
	_         [2]uint8
	Nonce     uint32 // the hello's
	Token     uint64 // random, for this demo's clients: keeps out strangers, not attackers
	WordsAddr uint64
	WordsKey  uint32
	DataKey   uint32
	DataAddr  uint64
	Ops       uint32 // operations of the listening device, a verbs.OpSet
}

// word returns word i of the listener as the target of a request. Some words are longer than 8
// bytes.
func (w *welcome) word(i int) verbs.Remote {
	return verbs.Remote{Addr: w.WordsAddr + wordSpacing*uint64(i), Length: wordSpacing, RKey: w.WordsKey}
}

var errStranger = errors.New("the peer is not a goverbs demo of this version")

func encodePrivate(v any) []byte {
	b, _ := binary.Append(nil, binary.BigEndian, v) // fails only for types without a fixed size
	return b
}

func decodeHello(b []byte) (h hello, err error) {
	if _, err = binary.Decode(b, binary.BigEndian, &h); err != nil || h.Magic != magic || h.Version != version {
		return hello{}, errStranger
	}
	return h, nil
}

func decodeWelcome(b []byte) (w welcome, err error) {
	if _, err = binary.Decode(b, binary.BigEndian, &w); err != nil || w.Magic != magic || w.Version != version {
		return welcome{}, errStranger
	}
	return w, nil
}

// order returns the byte order of the words in the listener's memory, and so of what a Read of them
// returns.
func (w *welcome) order() binary.ByteOrder {
	if w.BigEndian == 1 {
		return binary.BigEndian
	}
	return binary.LittleEndian
}

// bigEndian returns 1 on a big-endian host.
func bigEndian() uint8 { return uint8(binary.NativeEndian.Uint16([]byte{0, 1})) & 1 }

// phase distinguishes control messages.
type phase string

const (
	phaseBegin  phase = "begin"  // driver: the step begins
	phaseReady  phase = "ready"  // listener: go ahead
	phaseCheck  phase = "check"  // driver: its findings
	phaseResult phase = "result" // listener: its findings
)

// control is a control message.
type control struct {
	Step  string `json:"step"`
	Phase phase  `json:"phase"`

	Count int    `json:"count,omitempty"` // begin: number of operations
	Seed  uint64 `json:"seed,omitempty"`  // begin: seed of the data

	OK    bool   `json:"ok,omitempty"`    // check, result: the sender found no difference
	Error string `json:"error,omitempty"` // check, result: the difference
	// check: expected contents of the listener's words, in an order that the step defines
	Words []uint64 `json:"words,omitempty"`
}

func (m *control) encode() ([]byte, error) {
	b, err := json.Marshal(m)
	if err == nil && len(b) > slotSize {
		err = fmt.Errorf("control message of %d bytes", len(b))
	}
	return b, err
}

// decodeControl decodes a control message of the given step and phase; step "" means any.
func decodeControl(b []byte, step string, p phase) (m control, err error) {
	if err := json.Unmarshal(b, &m); err != nil {
		return m, fmt.Errorf("control message: %w", err)
	}
	m.Step, m.Phase, m.Error = output.Printable(m.Step), phase(output.Printable(m.Phase)), output.Printable(m.Error)
	if m.Phase != p || step != "" && m.Step != step {
		return m, fmt.Errorf("control message %s of step %q, not %s of step %q", m.Phase, m.Step, p, step)
	}
	return m, nil
}
