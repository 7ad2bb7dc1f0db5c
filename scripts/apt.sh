#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause

# usage: scripts/apt.sh WHY PACKAGE...
#
# Installs Debian packages without prompting, and reports that it does. If it cannot, it prints the
# command to run and exits with status 2.
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
# Another process may be installing packages at the same time.
set -- -o DPkg::Lock::Timeout=600 "$@"
# apt-get update may fail although the installation works, for example without a network but with a
# local mirror, so its status is ignored. Both commands are retried, because apt does not wait for
# the lock of the package lists and a mirror may fail briefly.
for pause in 5 15 0; do
	apt-get update -qq </dev/null || true
	if apt-get install -y -qq --no-install-recommends "$@" </dev/null >/dev/null; then
		exit 0
	fi
	sleep "$pause"
done
echo "apt could not do: $line" >&2
exit 2
