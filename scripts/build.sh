#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause

# usage: scripts/build.sh
#
# Builds bin/goverbs. With a C compiler the program can use the kernel devices on machines that have
# rdma-core. Without one, or with CGO_ENABLED=0, it is a static binary with usiw0 only. The script
# reports on stderr which of the two it builds, and installs nothing. "goverbs version" reports the
# repository's revision if git can read it; git refuses a clone owned by another user.
set -euo pipefail
cd "$(dirname "$0")/.."

vcs=false
if git rev-parse HEAD >/dev/null 2>&1; then vcs=true; fi

kernel=
if [ "$(go env CGO_ENABLED)" != 1 ]; then
	why="cgo is off: there is no C compiler, or CGO_ENABLED=0 is set"
	[ "$(go env GOOS)" = linux ] || why="not on $(go env GOOS)"
elif [[ $(go env GOFLAGS) == *noibverbs* ]]; then
	why="-tags noibverbs"
elif ! scripts/need.sh --have cc; then
	why="a C compiler is missing"
else
	kernel=yes
fi

if [ -n "$kernel" ]; then
	echo "building bin/goverbs with cgo: it opens libibverbs and librdmacm where they are installed" >&2
	CGO_ENABLED=1 go build -buildvcs=$vcs -o bin/goverbs ./cmd/goverbs
else
	echo "building bin/goverbs without the kernel's RDMA devices ($why)" >&2
	CGO_ENABLED=0 go build -buildvcs=$vcs -o bin/goverbs ./cmd/goverbs
fi
