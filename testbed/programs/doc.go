// SPDX-License-Identifier: BSD-3-Clause

// Package programs runs unmodified Debian programs that use libibverbs and librdmacm on the
// user-space RNIC: make test-programs. Written by others, they do not share this project's
// mistakes.
//
// pairs.list lists pairs of programs, a server and a client, with the expected result of each. It
// is an error if a pair fails that should pass, or passes although the list says that it fails.
//
//	kind        server               client               where
//	usiw-usiw   goverbs run -- CMD   goverbs run -- CMD   this host, without kernel RDMA devices
//	usiw-siw    goverbs run -- CMD   CMD                  the guest: siw0, the siw driver of Linux
//	siw-usiw    CMD                  goverbs run -- CMD   the guest
//	siw-siw     CMD                  CMD                  the guest, for comparison: no goverbs
package programs
