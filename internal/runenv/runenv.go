// SPDX-License-Identifier: BSD-3-Clause

// Package runenv has the names that "goverbs run" and what it preloads share: environment variables
// and files.
package runenv

// The environment of a program that "goverbs run" has started.
const (
	Device = "GOVERBS_RUN_DEVICE" // the device: usiw0 (default) or usiw0-plain, or ib: before one of them
	Addr   = "GOVERBS_RUN_ADDR"   // usiw.Config.Addr
	MTU    = "GOVERBS_RUN_MTU"    // usiw.Config.MTU
	CRC    = "GOVERBS_RUN_CRC"    // usiw.Config.CRC: on, off or auto
	// the file to which the process PID writes a capture; others append "." and their number to its
	// name
	Pcap     = "GOVERBS_RUN_PCAP"
	PID      = "GOVERBS_RUN_PID"       // the process that CMD became
	KeepReal = "GOVERBS_RUN_KEEP_REAL" // neither empty nor 0: the program sees the devices of the kernel too
	// neither empty nor 0: say on stderr what the device does not have, and why calls fail
	Verbose = "GOVERBS_RUN_VERBOSE"
)

// The libraries, which are in one directory: Shim opens RNIC.
const (
	Shim = "libgoverbs-preload.so"
	RNIC = "libgoverbs-rnic.so"
)
