#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause

# Runs go vet on every build of the module: with cgo on this machine, and without cgo for each platform. The tag noibverbs, with
# which preload is built, leaves out files that are also left out without cgo, so it is vetted where it makes a difference: in
# preload, and in the packages that have such files.
set -euo pipefail
cd "$(dirname "$0")/.."

# vet VAR=VALUE... -- PACKAGE...
vet() {
	local settings=()
	while [ "$1" != -- ]; do
		settings+=("$1")
		shift
	done
	shift
	echo "== ${settings[*]} go vet $*"
	env "${settings[@]}" go vet "$@"
}

vet CGO_ENABLED=1 -- ./...
mapfile -t tagged < <(grep -rl --include='*.go' '^//go:build .*noibverbs' . | sed 's,/[^/]*$,,' | sort -u)
vet CGO_ENABLED=1 GOFLAGS="${GOFLAGS-} -tags=noibverbs" -- ./preload "${tagged[@]}"
for os in linux darwin windows; do
	vet GOOS=$os CGO_ENABLED=0 -- ./...
done
