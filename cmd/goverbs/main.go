// SPDX-License-Identifier: BSD-3-Clause

// Command goverbs shows the RDMA devices of a host and demonstrates what they do.
//
//	goverbs devices [-v] [--json]
//	goverbs demo [--json] [--device NAME] [--pcap FILE]
//	goverbs demo --listen ADDR [--device NAME]
//	goverbs demo --connect ADDR [--device NAME]
//	goverbs rping {-s | -c -a ADDR} [--device NAME]
//	goverbs run [--device NAME] -- CMD [ARG]...
//	goverbs version [--json]
//	goverbs completion {bash | zsh | fish}
//
// Every command but run first adds a user-space RNIC, usiw0, to the devices of its process and uses
// it unless --device names another. A program that was built with cgo has the devices of the kernel
// too. The exit status is 0 if everything was done and verified, 1 if something failed or output
// could not be written, 2 for wrong usage. SIGINT and SIGTERM close everything and give exit status
// 130 and 143.
package main

import (
	"os"

	"github.com/goverbs/goverbs/cmd/goverbs/internal/cli"
)

func main() { os.Exit(cli.Main()) }
