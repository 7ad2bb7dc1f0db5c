// SPDX-License-Identifier: BSD-3-Clause

package ibcompat

import (
	"strings"

	"github.com/goverbs/goverbs/verbs"
)

// verbs.DeviceByName("ib:NAME") wraps the device NAME with the zero Config.
func init() {
	verbs.RegisterMaker(Prefix, func(name string) (*verbs.Device, error) {
		below := strings.TrimPrefix(name, Prefix)
		if below == "" || strings.HasPrefix(below, Prefix) { // there is one ib: device over each device
			return nil, verbs.ErrNoDevice
		}
		dev, err := verbs.DeviceByName(below)
		if err != nil {
			return nil, err
		}
		return Wrap(dev, Config{})
	})
}
