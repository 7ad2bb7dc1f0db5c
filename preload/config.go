// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package main

import (
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/internal/runenv"
	"github.com/goverbs/goverbs/usiw"
)

// config returns the RNIC's Config and the name of the device.
func config(getenv func(string) string) (cfg usiw.Config, device string, err error) {
	device = getenv(runenv.Device)
	if device == "" {
		device = "usiw0"
	}
	switch strings.TrimPrefix(device, "ib:") {
	case "usiw0":
		cfg.Name = "usiw0"
	case "usiw0-plain":
		cfg.Name, cfg.Without = "usiw0-plain", ext.Operations
	default:
		return cfg, "", fmt.Errorf("%s=%q: not usiw0, usiw0-plain, or ib: before one of them", runenv.Device, device)
	}
	cfg.GuardMemory = true // a program of C may free memory that is registered
	if s := getenv(runenv.Addr); s != "" {
		if cfg.Addr, err = netip.ParseAddr(s); err != nil {
			return cfg, "", fmt.Errorf("%s=%q: not an IP address", runenv.Addr, s)
		}
	}
	if s := getenv(runenv.MTU); s != "" {
		if cfg.MTU, err = strconv.Atoi(s); err != nil {
			return cfg, "", fmt.Errorf("%s=%q: not a number", runenv.MTU, s)
		}
	}
	switch s := getenv(runenv.CRC); s {
	case "", "auto":
	case "on":
		cfg.CRC = usiw.On
	case "off":
		cfg.CRC = usiw.Off
	default:
		return cfg, "", fmt.Errorf("%s=%q: not on, off or auto", runenv.CRC, s)
	}
	return cfg, device, nil
}

// captureName returns the name of this process's capture file, or "" for none.
func captureName(getenv func(string) string) string {
	name := getenv(runenv.Pcap)
	if name != "" && getenv(runenv.PID) != strconv.Itoa(os.Getpid()) {
		name += "." + strconv.Itoa(os.Getpid())
	}
	return name
}
