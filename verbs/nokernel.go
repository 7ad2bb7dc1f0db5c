// SPDX-License-Identifier: BSD-3-Clause

//go:build !linux

package verbs

import "errors"

// kernelMissing is the reason why there are no devices of the kernel.
func kernelMissing() error { return errors.New("rdma-core is used on Linux only") }

// kernelDevices lists nothing.
func kernelDevices() ([]*Device, error) { return nil, nil }
