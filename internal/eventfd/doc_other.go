// SPDX-License-Identifier: BSD-3-Clause

//go:build !linux

// Package eventfd waits for descriptors of rdma-core, which exists on Linux only.
package eventfd
