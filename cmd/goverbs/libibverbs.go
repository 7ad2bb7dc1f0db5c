// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package main

// withLibibverbs: this program was built with libibverbs, so that verbs.Devices has the devices of the kernel.
const withLibibverbs = true
