// SPDX-License-Identifier: BSD-3-Clause

// Package suite runs the conformance suite of package verbstest on every device that a goverbs
// program can use here: the user-space RNIC usiw0 anywhere, and in the guest the kernel's rxe0
// (RoCE) and siw0 (iWARP). The result of each test is compared with the matrix of the kernel, in
// testbed/matrix. A difference in either direction is a failure.
package suite
