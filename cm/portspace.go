// SPDX-License-Identifier: BSD-3-Clause

package cm

import "fmt"

// PortSpace is the kind of service of a port, with the values of enum rdma_port_space.
type PortSpace uint16

const (
	PortSpaceTCP PortSpace = 0x0106 // RDMA_PS_TCP: connections between RC QPs
	PortSpaceUDP PortSpace = 0x0111 // RDMA_PS_UDP: datagrams between UD QPs
)

// String returns "tcp" or "udp".
func (ps PortSpace) String() string {
	switch ps {
	case PortSpaceTCP:
		return "tcp"
	case PortSpaceUDP:
		return "udp"
	}
	return fmt.Sprintf("PortSpace(%#x)", uint16(ps))
}
