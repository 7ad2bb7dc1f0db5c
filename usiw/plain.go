// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"strings"

	"github.com/goverbs/goverbs/verbs"
)

// PlainName is the name of a NIC without RFC 7306: an iWARP RNIC as there are others, with neither
// atomics nor immediate data. It is not made unless a program asks for it.
const PlainName = "usiw0-plain"

// rfc7306 are the operations that RFC 7306 adds.
var rfc7306 = func() (set verbs.OpSet) {
	for _, s := range together {
		set |= s
	}
	return set
}()

// ForDevice returns the Config of the NIC that a program registers whose user has chosen a device
// by name: that of [PlainName], also if a device wraps it ("ib:usiw0-plain"), and for every other
// name the zero Config, which is usiw0's. The commands and examples of goverbs do it for their
// option -device:
//
//	nic, err := usiw.Register(usiw.ForDevice(name))
//	dev, err := verbs.DeviceByName(name)
func ForDevice(name string) Config {
	if name[strings.LastIndexByte(name, ':')+1:] != PlainName {
		return Config{}
	}
	return Config{Name: PlainName, Without: rfc7306}
}
