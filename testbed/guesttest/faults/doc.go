// SPDX-License-Identifier: BSD-3-Clause

// Package faults tests what happens when connections are disturbed in use: lost packets, killed
// sockets and processes, pulled cables. The tests run in the guest, on all devices.
package faults
