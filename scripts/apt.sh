#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause

# usage: scripts/apt.sh WHY PACKAGE...
#
# Installs Debian packages without asking and says so. Where that cannot be done it prints the line to run and exits 2.
set -eu
why=$1
shift
line="apt-get install -y --no-install-recommends $*"
if ! command -v apt-get >/dev/null 2>&1; then
	echo "$why: install it; on Debian: $line" >&2
	exit 2
fi
if [ "$(id -u)" -ne 0 ]; then
	echo "$why; as root: $line" >&2
	exit 2
fi
echo "$why; installing by apt: $*"
export DEBIAN_FRONTEND=noninteractive
# Somebody else may be installing right now.
set -- -o DPkg::Lock::Timeout=600 "$@"
# Package lists may be missing or old, or there may be no network but a local mirror: install decides. The lists have a lock
# for which apt does not wait, and a mirror may have a bad moment: so it is tried again.
for pause in 5 15 0; do
	apt-get update -qq </dev/null || true
	if apt-get install -y -qq --no-install-recommends "$@" </dev/null >/dev/null; then
		exit 0
	fi
	sleep "$pause"
done
echo "apt could not do: $line" >&2
exit 2
