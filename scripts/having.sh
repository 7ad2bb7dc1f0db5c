#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause

# usage: scripts/having.sh Benchmark|Fuzz|Example
#
# Prints the directories of the module's packages that have functions of that kind for go test, so that the test binaries of the others
# need not be built.
set -euo pipefail
cd "$(dirname "$0")/.."
export GOFLAGS="${GOFLAGS-$(go env GOFLAGS)} -buildvcs=false" # git may not read a clone of another user
kind=$1
# A module of its own below this one is not a part of ./...
grep -rlE --include='*_test.go' --exclude-dir=testdata --exclude-dir=.git "^func ${kind}[A-Z_]" . |
	sed 's,/[^/]*$,,' | sort -u | while read -r dir; do
	if [ "$(cd "$dir" && go list -m)" = "$(go list -m)" ]; then echo "$dir"; fi
done
