// SPDX-License-Identifier: BSD-3-Clause

// Package devices has tests of the guest's own devices: they are what the other tests in the guest take them for.
package devices
