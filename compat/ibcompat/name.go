// SPDX-License-Identifier: BSD-3-Clause

package ibcompat

import (
	"strings"

	"github.com/goverbs/goverbs/verbs"
)

// DeviceByName returns the device of a name as verbs.DeviceByName does, and for "ib:NAME" the
// device NAME, wrapped with cfg. The devices that it wraps are not registered: each call for one
// returns another.
func DeviceByName(name string, cfg Config) (*verbs.Device, error) {
	in, wrapped := strings.CutPrefix(name, Prefix)
	dev, err := verbs.DeviceByName(in)
	if err != nil || !wrapped {
		return dev, err
	}
	return Wrap(dev, cfg)
}
