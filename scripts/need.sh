#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause

# usage: scripts/need.sh [--have] PROGRAM...
#
# Checks for programs that tests and checks use, and installs missing ones if possible. With --have
# it installs nothing, and exits with status 1 if one is missing:
#
#	cc      C compiler and C library headers, for go test -race and go vet with cgo
#	asan    gcc with the address sanitizer's library, for go test -asan
#	tshark  checks the captures that package usiw/capture writes
#	ps      lists the processes that commands under test have started
#	ip      connects two network namespaces by a virtual cable that a test can cut
#	zsh, fish
#	        complete the command's words, as bash does
#	fi_pingpong, ucx_perftest
#	        from libfabric and UCX, which bench-peers compares with
#	verbs   rdma-core's headers and libraries, libibverbs and librdmacm, for internal/fakeverbs
#	        and the guest
#	others  programs that checks, the guest of testbed/ and its tests call
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin

has() {
	case $1 in
	cc)
		printf '#include <pthread.h>\n#include <stdlib.h>\nint main(void) { return 0; }\n' |
			${CC:-$(go env CC)} -x c -o /dev/null - 2>/dev/null
		;;
	asan)
		printf 'int main(void) { return 0; }\n' | ${CC:-$(go env CC)} -fsanitize=address -x c -o /dev/null - 2>/dev/null
		;;
	verbs)
		printf '#include <rdma/rdma_cma.h>\nint main(void) { return !ibv_get_device_list(NULL) + !rdma_event_str(0); }\n' |
			${CC:-$(go env CC)} -x c -o /dev/null - -libverbs -lrdmacm 2>/dev/null
		;;
	busybox-static) [ -x /bin/busybox ] && ! ldd /bin/busybox >/dev/null 2>&1 ;;
	*) command -v "$1" >/dev/null ;;
	esac
}

if [ "${1-}" = --have ]; then
	shift
	for need in "$@"; do
		has "$need" || exit 1
	done
	exit 0
fi
missing=()
packages=()
for need in "$@"; do
	if has "$need"; then
		continue
	fi
	missing+=("$need")
	case $need in
	cc | asan) packages+=(gcc libc6-dev) ;;
	tshark) packages+=(tshark) ;;
	ps) packages+=(procps) ;;
	ip) packages+=(iproute2) ;;
	fi_pingpong) packages+=(libfabric-bin) ;;
	ucx_perftest) packages+=(ucx-utils) ;;
	verbs) packages+=(libibverbs-dev librdmacm-dev) ;;
	busybox-static | cpio | make | gcc-12 | tcpdump | shellcheck | mmdebstrap | curl | iperf | iperf3 | zsh | fish | fio | qperf | flex | bison | bc) packages+=("$need") ;;
	redis-server) packages+=(redis-server redis-tools) ;;
	ssh) packages+=(openssh-client) ;;
	sshd) packages+=(openssh-server) ;;
	NPtcp) packages+=(netpipe-tcp) ;;
	qemu-system-x86_64) packages+=(qemu-system-x86) ;;
	depmod) packages+=(kmod) ;;
	spatch) packages+=(coccinelle) ;;
	xz) packages+=(xz-utils) ;;
	strip) packages+=(binutils) ;;
	flock | setpriv) packages+=(util-linux) ;;
	ss | tc | rdma) packages+=(iproute2) ;;
	nft) packages+=(nftables) ;;
	rping | rstream) packages+=(rdmacm-utils ibverbs-providers) ;;
	dtest | dtestx) packages+=(dapl2-utils libdapl2) ;;
	ibv_devinfo) packages+=(ibverbs-utils ibverbs-providers) ;;
	ib_send_bw) packages+=(perftest ibverbs-providers) ;;
	*)
		echo "scripts/need.sh does not know where to find $need" >&2
		exit 2
		;;
	esac
done
if [ ${#missing[@]} -eq 0 ]; then
	exit 0
fi
mapfile -t packages < <(printf '%s\n' "${packages[@]}" | sort -u)
"$(dirname "$0")/apt.sh" "missing: ${missing[*]}" "${packages[@]}"
for need in "${missing[@]}"; do
	if ! has "$need"; then
		echo "$need still does not work after the installation${CC:+ (CC is $CC)}" >&2
		exit 2
	fi
done
