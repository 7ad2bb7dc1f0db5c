// SPDX-License-Identifier: BSD-3-Clause

// Package faults holds tests of what happens on the wire and around it while connections are in
// use: lost packets, sockets and processes that are killed, cables that are pulled. They run in the
// guest, for all devices.
package faults
