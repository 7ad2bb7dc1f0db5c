// SPDX-License-Identifier: BSD-3-Clause

package devices

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/goverbs/goverbs/compat/ibcompat"
	"github.com/goverbs/goverbs/internal/netdev"
	"github.com/goverbs/goverbs/verbs"
)

// OwnAddress returns an IP address of this host on which a device can be reached: an IPv4 address
// if there is one, and of the user-space RNIC the loopback's.
func OwnAddress(dev *verbs.Device) (netip.Addr, error) {
	if in, wrapped := strings.CutPrefix(dev.Name(), ibcompat.Prefix); wrapped {
		if d, err := verbs.DeviceByName(in); err == nil { // ib: has the addresses of the device below
			dev = d
		}
	}
	if dev == nil || UserSpace(dev) {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1}), nil
	}
	a, err := netdev.Own(dev)
	if err != nil {
		return a, fmt.Errorf("%w (--listen and --connect take one)", err)
	}
	return a, nil
}
