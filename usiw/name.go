// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"fmt"

	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/verbs"
)

// byName has the Configs of the NICs that verbs.DeviceByName makes: with everything, and without
// RFC 7306, which is an iWARP RNIC as there are others.
var byName = map[string]Config{
	"usiw0":       {Name: "usiw0"},
	"usiw0-plain": {Name: "usiw0-plain", Without: ext.Operations},
}

func init() {
	verbs.RegisterMaker("usiw", func(name string) (*verbs.Device, error) {
		cfg, ok := byName[name]
		if !ok {
			return nil, verbs.ErrNoDevice
		}
		nic, err := New(cfg)
		if err != nil { // a NIC that is not registered has the name
			return nil, fmt.Errorf("%w named %q (usiw.Register adds a NIC to verbs.Devices): %w", verbs.ErrNoDevice, name, err)
		}
		return nic.Device(), nil
	})
}
