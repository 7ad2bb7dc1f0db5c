// SPDX-License-Identifier: BSD-3-Clause

package devices

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/compat/ibcompat"
	"github.com/goverbs/goverbs/verbs"
)

// netDev returns the name of the network interface of a row of a GID table, "" if there is none here. Where the kernel does
// not tell it for an iWARP device the GID does, which begins with the MAC address.
func netDev(transport verbs.Transport, g verbs.GIDEntry) string {
	if g.NetDev != "" || transport != verbs.TransportIWARP {
		return g.NetDev
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		return ""
	}
	for _, i := range interfaces {
		if n := len(i.HardwareAddr); n > 0 && bytes.Equal(i.HardwareAddr, g.GID[:n]) {
			return i.Name
		}
	}
	return ""
}

// OwnAddress returns an IP address of this host on which a device can be reached: an IPv4 address if there is one, and of the
// user-space RNIC the loopback's.
func OwnAddress(dev *verbs.Device) (netip.Addr, error) {
	if in, wrapped := strings.CutPrefix(dev.Name(), ibcompat.Prefix); wrapped {
		// A wrapped iWARP device has no GIDs.
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
			for _, a := range interfaceAddresses(netDev(dev.Info().Transport, g)) {
				if a = a.Unmap(); a.IsLinkLocalUnicast() {
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

// interfaceAddresses returns the IP addresses of an interface, none if it does not exist.
func interfaceAddresses(name string) []netip.Addr {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return nil
	}
	addrs, err := i.Addrs()
	if err != nil {
		return nil
	}
	var ips []netip.Addr
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			ips = append(ips, p.Addr())
		}
	}
	return ips
}
