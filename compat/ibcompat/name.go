// SPDX-License-Identifier: BSD-3-Clause

package ibcompat

import (
	"strings"

	"github.com/goverbs/goverbs/verbs"
)

// DeviceByName returns the device called name, like verbs.DeviceByName; for "ib:NAME" it returns
// the device NAME, wrapped with cfg. Wrapped devices are not registered: each call returns a new
// one.
func DeviceByName(name string, cfg Config) (*verbs.Device, error) {
	in, wrapped := strings.CutPrefix(name, Prefix)
	dev, err := verbs.DeviceByName(in)
	if err != nil || !wrapped {
		return dev, err
	}
	return Wrap(dev, cfg)
}
