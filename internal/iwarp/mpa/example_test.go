// SPDX-License-Identifier: BSD-3-Clause

package mpa_test

import (
	"encoding/binary"
	"fmt"
	"log"

	"github.com/goverbs/goverbs/internal/iwarp/mpa"
)

// The frame with which an initiator requests a connection.
func ExampleFrame() {
	f := mpa.Frame{CRC: true, Rev: mpa.Rev1, PrivateData: []byte("hi")}
	b, err := f.Append(nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%q\n", b)
	got, n, err := mpa.ParseFrame(b)
	fmt.Printf("%d bytes, CRC %v, revision %d, %q, %v\n", n, got.CRC, got.Rev, got.PrivateData, err)
	// Output:
	// "MPA ID Req Frame@\x01\x00\x02hi"
	// 22 bytes, CRC true, revision 1, "hi", <nil>
}

// An FPDU: the length of the ULPDU, the ULPDU, padding, and the CRC over all of these.
func ExampleCRC() {
	ulpdu := "hello"
	b := make([]byte, mpa.FPDULen(len(ulpdu)))
	binary.BigEndian.PutUint16(b, uint16(len(ulpdu)))
	copy(b[mpa.LengthLen:], ulpdu)
	end := len(b) - mpa.CRCLen
	mpa.PutCRC(b[end:], mpa.CRC(0, b[:end]))
	fmt.Println(len(b), mpa.Pad(len(ulpdu)), mpa.GetCRC(b[end:]) == mpa.CRC(0, b[:end]))
	// Output: 12 1 true
}
