// SPDX-License-Identifier: BSD-3-Clause

// Package mapmem allocates memory for regions: mapped from the system, outside the Go heap. The
// addresses of freed memory stay reserved for a while, so that a late access faults instead of
// reading whatever was mapped there next.
package mapmem
