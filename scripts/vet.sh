#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause

# Runs go vet on every build of the module: with cgo on this machine, with and without libibverbs,
# and without cgo for each platform.
set -euo pipefail
vet() {
	echo "== $* go vet ./..."
	env "$@" go vet ./...
}
vet CGO_ENABLED=1
vet CGO_ENABLED=1 GOFLAGS=-tags=noibverbs
for os in linux darwin windows; do
	vet GOOS=$os CGO_ENABLED=0
done
