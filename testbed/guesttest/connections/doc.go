// SPDX-License-Identifier: BSD-3-Clause

// Package connections tests package cm on the devices of the kernel.
package connections
