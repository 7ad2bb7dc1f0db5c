// SPDX-License-Identifier: BSD-3-Clause

package demo

import (
	"encoding/binary"
	"math/rand/v2"
)

// pattern generates the data of a step. Both sides generate the same from the seed that the driver
// sends, and compare.
type pattern struct{ seed uint64 }

// fill fills b with byte sequence i.
func (p pattern) fill(b []byte, i int) {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], p.seed)
	binary.LittleEndian.PutUint64(key[8:], uint64(i))
	_, _ = rand.NewChaCha8(key).Read(b) // never fails
}

// bytes returns byte sequence i, of n bytes.
func (p pattern) bytes(i, n int) []byte {
	b := make([]byte, n)
	p.fill(b, i)
	return b
}

// word returns word i.
func (p pattern) word(i int) uint64 {
	return rand.New(rand.NewPCG(p.seed, uint64(i))).Uint64()
}
