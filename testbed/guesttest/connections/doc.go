// SPDX-License-Identifier: BSD-3-Clause

// Package connections tests package cm on kernel devices.
package connections
