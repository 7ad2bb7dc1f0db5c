// SPDX-License-Identifier: BSD-3-Clause

// Package rsockets has tests of package rsocket against the rsockets of librdmacm, with the
// programs of librdmacm. They run in the guest.
package rsockets
