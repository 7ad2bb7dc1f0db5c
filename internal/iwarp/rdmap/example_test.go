// SPDX-License-Identifier: BSD-3-Clause

package rdmap_test

import (
	"fmt"

	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
)

// The byte of a DDP header that identifies the message.
func ExampleControl() {
	b := rdmap.Control(rdmap.OpReadRequest)
	version, op := rdmap.ParseControl(b)
	fmt.Printf("%#x: version %d, %v\n", b, version, op)
	// Output: 0x41: version 1, RDMA Read Request
}

// A FetchAdd request, and what the responder does with it.
func ExampleAtomicRequest() {
	b := make([]byte, rdmap.AtomicRequestLen)
	rdmap.AtomicRequest{Op: rdmap.AtomicFetchAdd, ID: 1, STag: 0x1a2b3c01, TO: 4096, AddSwap: 5}.Put(b)
	r, err := rdmap.ParseAtomicRequest(b)
	fmt.Println(r.Op, r.TO, err)
	fmt.Println(rdmap.FetchAdd(37, r.AddSwap, r.AddSwapMask))
	// Output:
	// FetchAdd 4096 <nil>
	// 42
}
