// SPDX-License-Identifier: BSD-3-Clause

// Command goverbs lists the RDMA devices of a host and demonstrates what they can do.
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
// Every command except run first adds a user-space RNIC, usiw0, to the devices of its process, and
// uses it unless --device names another device. A program built with cgo can also use the kernel
// devices. The exit status is 0 if everything was done and verified, 1 if something failed or
// output could not be written, and 2 for wrong usage. SIGINT and SIGTERM close everything and exit
// with status 130 and 143.
package main

import (
	"os"

	"github.com/goverbs/goverbs/cmd/goverbs/internal/cli"
)

func main() { os.Exit(cli.Main()) }
