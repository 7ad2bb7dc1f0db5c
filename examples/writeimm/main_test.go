// SPDX-License-Identifier: BSD-3-Clause

package main

func Example() {
	main()
	// Output: RECV_RDMA_WITH_IMM: 13 bytes, immediate 7306: "hello, memory"
}
