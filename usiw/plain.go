// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"strings"

	"github.com/goverbs/goverbs/verbs"
)

// PlainName is the name of a NIC without RFC 7306: like some other iWARP RNICs, it has neither
// atomics nor immediate data. It is created only if a program asks for it.
const PlainName = "usiw0-plain"

// rfc7306 is the set of operations that RFC 7306 adds.
var rfc7306 = func() (set verbs.OpSet) {
	for _, s := range together {
		set |= s
	}
	return set
}()

// ForDevice returns the Config to register for a device that the user chose by name: that of
// [PlainName] if the name is PlainName, also inside a wrapping device's name ("ib:usiw0-plain"),
// and for every other name the zero Config, which creates usiw0. The goverbs commands and examples
// use it for their -device option:
//
//	nic, err := usiw.Register(usiw.ForDevice(name))
//	dev, err := verbs.DeviceByName(name)
func ForDevice(name string) Config {
	if name[strings.LastIndexByte(name, ':')+1:] != PlainName {
		return Config{}
	}
	return Config{Name: PlainName, Without: rfc7306}
}
