// SPDX-License-Identifier: BSD-3-Clause

package devices

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/compat/ibcompat"
	"github.com/goverbs/goverbs/internal/netdev"
	"github.com/goverbs/goverbs/verbs"
)

// OwnAddress returns an IP address of this host on which a device can be reached: an IPv4 address if there is one, and of the
// user-space RNIC the loopback's.
func OwnAddress(dev *verbs.Device) (netip.Addr, error) {
	if in, wrapped := strings.CutPrefix(dev.Name(), ibcompat.Prefix); wrapped {
		// It has the addresses of the device below.
		if d, err := verbs.DeviceByName(in); err == nil {
			dev = d
		}
	}
	if dev == cm.Auto || UserSpace(dev) {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1}), nil
	}
	ctx, err := dev.Open()
	if err != nil {
		return netip.Addr{}, err
	}
	defer ctx.Close()
	attr, err := ctx.QueryDevice()
	if err != nil {
		return netip.Addr{}, err
	}
	var best netip.Addr
	for port := 1; port <= attr.PhysPortCnt; port++ {
		gids, err := ctx.GIDs(port)
		if err != nil {
			return netip.Addr{}, err
		}
		for _, g := range gids {
			for _, a := range netdev.Addresses(netdev.OfGID(dev.Info().Transport, g)) {
				if a.IsLinkLocalUnicast() {
					continue
				}
				if !best.IsValid() || a.Is4() && !best.Is4() {
					best = a
				}
			}
		}
	}
	if !best.IsValid() {
		return best, fmt.Errorf("no interface of device %v has an IP address here (--listen and --connect take one)", dev)
	}
	return best, nil
}
