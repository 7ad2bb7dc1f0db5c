// SPDX-License-Identifier: BSD-3-Clause

// Package interop has tests of the user-space RNIC against the siw driver of Linux, and of goverbs
// rping against the rping of librdmacm. They run in the guest. docs/interop.md lists what siw does
// differently from the RFCs and which test shows it.
package interop
