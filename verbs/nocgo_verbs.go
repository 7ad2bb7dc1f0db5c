// SPDX-License-Identifier: BSD-3-Clause

//go:build !linux || !cgo || noibverbs

package verbs

import (
	"errors"
	"runtime"
)

// kernelMissing is the reason why there are no devices of the kernel.
func kernelMissing() error {
	if runtime.GOOS != "linux" {
		return errors.New("rdma-core is used on Linux only")
	}
	return errors.New("built without cgo or with the tag noibverbs")
}

// kernelDevices lists nothing.
func kernelDevices() ([]*Device, error) { return nil, nil }
