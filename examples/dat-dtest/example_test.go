// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"strings"
)

// The immediates that both sides saw; testdata/output.txt has the whole output.
func Example() {
	var out bytes.Buffer
	if err := run(context.Background(), &out, config{device: "ib:usiw0"}); err != nil {
		log.Print(err)
	}
	for line := range strings.Lines(out.String()) {
		if strings.Contains(line, "with immediate") {
			fmt.Print(strings.TrimSpace(line), "\n")
		}
	}
	// Output:
	// RDMA Write with immediate 0x7777: "client data"
	// RDMA Write with immediate 0x1111: "server data"
}
