// SPDX-License-Identifier: BSD-3-Clause

//go:build !linux || !cgo || noibverbs

package main

// withLibibverbs: this program was built without libibverbs, so that verbs.Devices does not have the devices of the kernel.
const withLibibverbs = false
