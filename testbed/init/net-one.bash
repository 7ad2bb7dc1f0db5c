# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash

# One host with both devices. Each is on its own virtual cable, whose other end (d1, e1) is up but
# unused.

# nic DEVICE TYPE NETDEV PEER NET creates an RDMA device on one end of a new cable, with addresses
# 10.NET.0.1 and fd00:NET::1.
nic() {
	ip link add "$3" type veth peer name "$4"
	ip link set "$3" up
	ip link set "$4" up
	ip addr add "10.$5.0.1/24" dev "$3"
	ip addr add "fd00:$5::1/64" dev "$3"
	rdma link add "$1" type "$2" netdev "$3"
}
nic siw0 siw d0 d1 77
nic rxe0 rxe e0 e1 78
