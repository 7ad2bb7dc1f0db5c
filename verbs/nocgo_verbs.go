// SPDX-License-Identifier: BSD-3-Clause

//go:build !linux || !cgo || noibverbs

package verbs

// kernelDevices lists nothing: the program was built without libibverbs.
func kernelDevices() ([]*Device, error) { return nil, nil }
