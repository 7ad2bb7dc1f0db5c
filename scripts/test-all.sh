#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause

# usage: scripts/test-all.sh [PART...]
#
# Runs the make targets that together are make test-all, one after the other: all of them, or only
# those named ("test-guest KERNEL=6.12" is one PART). A failing part does not stop the others. The
# output of each part is written to bin/test-all/PART.log; stdout gets the last lines of failing
# parts and a table at the end. With RESUME=1, parts that have passed since the sources last changed
# are skipped, so that an interrupted run can be continued. Exits with 1 if a part failed, and with
# 2 for an unknown part.
set -euo pipefail
cd "$(dirname "$0")/.."

parts=(
	test
	test-plain
	test-testbed
	test-bridge
	test-programs
	"test-guest KERNEL=6.12"
	"test-guest KERNEL=newest"
	test-matrices
	"test-matrices KERNEL=6.12"
	"test-matrices KERNEL=newest"
	test-kernel-siw
	"test-kernel-siw KERNEL=6.12"
	"test-kernel-siw KERNEL=newest"
	test-kernel-siw-rules
	test-kernel-siw-sanitized
	harm-kernel-siw
	test-dkms
	soak-kernel-siw
	soak-guest
	bench-peers
	bench-guest
	test-docker
)

for part in "$@"; do
	found=
	for known in "${parts[@]}"; do
		if [ "$part" = "$known" ]; then found=1; fi
	done
	if [ -z "$found" ]; then
		echo "test-all: no part \"$part\"; the parts are:" >&2
		printf '  %s\n' "${parts[@]}" >&2
		exit 2
	fi
done
if [ $# -gt 0 ]; then parts=("$@"); fi

dir=bin/test-all
mkdir -p "$dir"

# sources prints a checksum of the sources, including uncommitted changes.
sources() {
	{
		git rev-parse HEAD
		git diff HEAD
		git ls-files --others --exclude-standard -z | xargs -0r sha256sum
	} | sha256sum | cut -d ' ' -f 1
}

table=()
failed=0
for part in "${parts[@]}"; do
	name=${part// KERNEL=/-}
	log=$dir/$name.log
	passed=$dir/$name.passed # the sources that passed
	if [ -n "${RESUME-}" ] && [ "$(cat "$passed" 2>/dev/null)" = "$(sources)" ]; then
		table+=("$(printf '%-32s %-14s %s' "$part" "passed before" "$(date -r "$passed" '+%F %R')")")
		continue
	fi
	rm -f "$passed"
	echo "== make $part ($(date '+%F %R'), output in $log)"
	before=$(sources)
	start=$SECONDS
	status=0
	# A part is a target and its variables: split it.
	# shellcheck disable=SC2086
	make --no-print-directory $part >"$log" 2>&1 </dev/null || status=$?
	took=$((SECONDS - start))
	result=passed
	if [ "$status" -eq 0 ]; then
		echo "$before" >"$passed"
	else
		result="failed ($status)"
		failed=1
		tail -n 30 "$log"
	fi
	table+=("$(printf '%-32s %-14s %5d s' "$part" "$result" "$took")")
done
echo "== make test-all, $(git describe --always --dirty 2>/dev/null), $(date '+%F %R')"
printf '%s\n' "${table[@]}"
exit "$failed"
