// SPDX-License-Identifier: BSD-3-Clause

// Package devices tests that the devices of the guest are as the other tests in the guest expect
// them.
package devices
