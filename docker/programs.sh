#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause

# usage: docker/programs.sh DIRECTORY
#
# Makes DIRECTORY the files of the image of docker/Dockerfile.programs: programs of Debian from this machine, the libraries that
# they need, docker/goverbs, and the two libraries that goverbs run preloads, which make preload has put into bin.
set -euo pipefail
cd "$(dirname "$0")/.."
to=$1
programs=(rping rdma_server rdma_client ucmatose ibv_devinfo ib_send_lat ib_send_bw ib_write_lat ib_write_bw ib_read_lat ib_read_bw)

rm -rf "$to"
mkdir -p "$to/usr/bin" "$to/usr/lib/goverbs"
cp docker/goverbs "$to/usr/bin/"
cp bin/libgoverbs-preload.so bin/libgoverbs-rnic.so "$to/usr/lib/goverbs/"

# needed FILE... prints the libraries of files, the dynamic linker among them.
needed() {
	ldd "$@" | awk '$2 == "=>" && $3 ~ /^\// { print $3 } $1 ~ /^\// && $2 ~ /^\(/ { print $1 }' | sort -u
}

files=()
for program in "${programs[@]}"; do
	file=$(command -v "$program")
	cp -L "$file" "$to/usr/bin/"
	files+=("$file")
done
while read -r file; do
	mkdir -p "$to$(dirname "$file")"
	cp -L "$file" "$to$file"
done < <(needed "${files[@]}" bin/libgoverbs-preload.so bin/libgoverbs-rnic.so)
