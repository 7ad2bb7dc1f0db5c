// SPDX-License-Identifier: BSD-3-Clause

//go:build !linux

package verbs

import "errors"

// kernelMissing returns why there are no kernel devices.
func kernelMissing() error { return errors.New("rdma-core is used on Linux only") }

// kernelDevices returns no devices.
func kernelDevices() ([]*Device, error) { return nil, nil }
