// SPDX-License-Identifier: BSD-3-Clause

// Package runenv has the names of environment variables and files that "goverbs run" shares with
// the libraries it preloads.
package runenv

// The environment of a program started by "goverbs run".
const (
	Device = "GOVERBS_RUN_DEVICE" // usiw0 (default) or usiw0-plain, optionally after ib:
	Addr   = "GOVERBS_RUN_ADDR"   // usiw.Config.Addr
	MTU    = "GOVERBS_RUN_MTU"    // usiw.Config.MTU
	CRC    = "GOVERBS_RUN_CRC"    // usiw.Config.CRC: on, off or auto
	// the file to which the process PID writes a capture; other processes append "." and their PID
	// to its name
	Pcap     = "GOVERBS_RUN_PCAP"
	PID      = "GOVERBS_RUN_PID"       // the process that became CMD
	KeepReal = "GOVERBS_RUN_KEEP_REAL" // neither empty nor 0: kernel devices too
	// neither empty nor 0: report on stderr what the device lacks and why calls fail
	Verbose = "GOVERBS_RUN_VERBOSE"
)

// The libraries, in one directory. Shim opens RNIC.
const (
	Shim = "libgoverbs-preload.so"
	RNIC = "libgoverbs-rnic.so"
)
