// SPDX-License-Identifier: BSD-3-Clause

// Package interop tests the user-space RNIC against the siw driver of Linux, and goverbs rping
// against librdmacm's rping. The tests run in the guest. docs/interop.md lists where siw deviates
// from the RFCs and which test shows it.
package interop
