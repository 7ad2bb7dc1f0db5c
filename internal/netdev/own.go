// SPDX-License-Identifier: BSD-3-Clause

package netdev

import (
	"fmt"
	"net/netip"

	"github.com/goverbs/goverbs/verbs"
)

// Own returns an IP address of this host at which a kernel device can be reached, to serve as the
// default of an option. It prefers an IPv4 address.
func Own(dev *verbs.Device) (netip.Addr, error) {
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
			for _, a := range Addresses(OfGID(dev.Info().Transport, g)) {
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
		return best, fmt.Errorf("no interface of device %v has an IP address here", dev)
	}
	return best, nil
}
