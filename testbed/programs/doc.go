// SPDX-License-Identifier: BSD-3-Clause

// Package programs runs programs of Debian that use libibverbs and librdmacm, unchanged, on the
// user-space RNIC: make test-programs. They were written by others, so they do not share the
// mistakes of this project.
//
// pairs.list has the programs in pairs, a server and a client, and says what is expected of each. A
// pair that fails though it should pass is an error, and so is one that passes though the list says
// that it fails.
//
//	kind        server                 client                 where
//	usiw-usiw   goverbs run -- CMD     goverbs run -- CMD     this host, without any RDMA device of the kernel
//	usiw-siw    goverbs run -- CMD     CMD                    the guest: siw0, the siw driver of Linux
//	siw-usiw    CMD                    goverbs run -- CMD     the guest
//	siw-siw     CMD                    CMD                    the guest: for comparison, without goverbs
package programs
