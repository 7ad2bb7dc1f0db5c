// SPDX-License-Identifier: BSD-3-Clause

// Package rsockets tests package rsocket against the rsockets of librdmacm, with librdmacm's
// programs. The tests run in the guest.
package rsockets
