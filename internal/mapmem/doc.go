// SPDX-License-Identifier: BSD-3-Clause

// Package mapmem provides memory for regions: mapped from the system, outside of the Go heap. The
// addresses of memory that has been given back stay reserved for a while, so that a late access
// faults and does not read what somebody else has there now.
package mapmem
