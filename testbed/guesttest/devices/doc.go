// SPDX-License-Identifier: BSD-3-Clause

// Package devices tests that the guest's devices are as the other tests in the guest expect.
package devices
