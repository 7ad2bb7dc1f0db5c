#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause

# usage: scripts/fuzz.sh TIME
#
# Runs every fuzz target of the module for TIME each (a Go duration, or a count such as 1000x). A
# failing input is written to testdata/fuzz of its package, and every later go test runs it again.
set -euo pipefail
time=$1
count=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT
packages=$(scripts/having.sh Fuzz)
for package in $packages; do
	tests=$(go test -list '^Fuzz' "$package")
	for target in $(grep '^Fuzz' <<<"$tests" || true); do
		echo "== $target of $package, $time"
		if ! go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$package" 2>&1 | tee "$log"; then
			# Go may report the end of TIME itself as a failure. If the output names no other
			# failure, nothing was found.
			if ! grep -qx '    context deadline exceeded' "$log" || grep -qE 'Failing input|panic:|_test\.go:|hung or terminated' "$log"; then
				exit 1
			fi
			echo "== $target: the time was over, nothing was found"
		fi
		count=$((count + 1))
	done
done
if [ "$count" -eq 0 ]; then
	echo "no fuzz target found" >&2
	exit 1
fi
echo "== $count fuzz targets passed"
