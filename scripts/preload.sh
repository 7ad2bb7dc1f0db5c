#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause

# usage: scripts/preload.sh [DIRECTORY]
#
# Builds the libraries that goverbs run preloads: libgoverbs-preload.so, which implements the
# functions of libibverbs and librdmacm in C, and libgoverbs-rnic.so, the user-space RNIC in Go,
# which the former opens. They are written to DIRECTORY (default: bin). Needs a C compiler and the
# headers of rdma-core.
#
# asyncpreemptoff keeps the Go runtime from preempting the RNIC's goroutines by signals, which would
# interrupt the C program's system calls.
set -euo pipefail
cd "$(dirname "$0")/.."

to=${1:-bin}
mkdir -p "$to"
CGO_ENABLED=1 go build -buildvcs=false -tags noibverbs -buildmode=c-shared -ldflags=-X=runtime.godebugDefault=asyncpreemptoff=1 \
	-o "$to/libgoverbs-rnic.so" ./preload
rm -f "$to/libgoverbs-rnic.h" # only the shim calls the library, and declares its functions itself
${CC:-$(go env CC)} -O2 -Wall -Wextra -Werror -fvisibility=hidden -shared -fPIC -o "$to/libgoverbs-preload.so" preload/shim/*.c
