# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash

# Two hosts, 1 and 2. All devices are visible in every network namespace; the connection manager
# selects one by the namespace and the address.

# siw: h1 (10.77.0.1, fd00:77::1, d1, siw1) and h2 (10.77.0.2, fd00:77::2, d2, siw2) are network namespaces.
for i in 1 2; do
	ip netns add h$i
	ip -n h$i link set lo up
	ip netns exec h$i tee /proc/sys/net/ipv6/conf/{all,default}/accept_dad <<<0 >/dev/null
done
ip link add d1 netns h1 type veth peer name d2 netns h2
for i in 1 2; do
	ip -n h$i addr add 10.77.0.$i/24 dev d$i
	ip -n h$i addr add fd00:77::$i/64 dev d$i
	ip -n h$i link set d$i up
done
# Only after both ends are up: a siw port follows its netdev going up, not the cable's carrier.
for i in 1 2; do ip netns exec h$i rdma link add siw$i type siw netdev d$i; done

# rxe of Linux 6.1 receives in the first namespace only, so both ends of its cable are there
# (10.78.0.1, e1, rxe1 and 10.78.0.2, e2, rxe2). Routing sends the packets between them over the
# cable instead of the loopback device. Clients bind their address: rping -I 10.78.0.1 -a 10.78.0.2.
#
# One processor receives all packets of an end (rps_cpus). By default each processor receives the
# packets that were sent on it, so packets that a QP sends on two processors overtake each other,
# unlike on a real network. rxe then requests retransmission, and a QP may fail with
# IBV_WC_RETRY_EXC_ERR.
ip link add e1 type veth peer name e2
put 0 /proc/sys/net/ipv4/conf/{all,default,e1,e2}/rp_filter
put 1 /proc/sys/net/ipv4/conf/all/accept_local
for i in 1 2; do
	ip addr add 10.78.0.$i/32 dev e$i
	put 1 /sys/class/net/e$i/queues/rx-0/rps_cpus
	ip link set e$i up
done
for pair in "1 2" "2 1"; do
	read -r near far <<<"$pair"
	ip route add "10.78.0.$far/32" dev "e$near" src "10.78.0.$near" table 100
	ip neigh replace "10.78.0.$far" lladdr "$(cat "/sys/class/net/e$far/address")" dev "e$near" nud permanent
	ip rule add pref 10 iif "e$near" lookup local
done
ip rule add pref 20 to 10.78.0.0/24 lookup 100
ip rule add pref 30 lookup local
ip rule del pref 0
for i in 1 2; do rdma link add rxe$i type rxe netdev e$i; done
