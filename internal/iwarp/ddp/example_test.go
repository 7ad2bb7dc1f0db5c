// SPDX-License-Identifier: BSD-3-Clause

package ddp_test

import (
	"fmt"

	"github.com/goverbs/goverbs/internal/iwarp/ddp"
)

// The header of a segment that names the buffer in which it is placed.
func ExampleTagged() {
	b := make([]byte, ddp.TaggedLen)
	ddp.Tagged{Last: true, ULP: 0x40, STag: 0x1a2b3c01, TO: 4096}.Put(b)
	fmt.Printf("% x\n", b)
	h, err := ddp.ParseTagged(b)
	fmt.Printf("%v %#x %d %v\n", ddp.IsTagged(b[0]), h.STag, h.TO, err)
	// Output:
	// c1 40 1a 2b 3c 01 00 00 00 00 00 00 10 00
	// true 0x1a2b3c01 4096 <nil>
}
